"""`keyway pipeline check FILE` and `keyway pipeline run FILE`, or `python -m spark.pipelines.cli`.

Exit status (keyway/terminal/exits.py): 1 if the file is right, but not for these records (a path
that leads nowhere, every record in quarantine), or the run cannot go on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer
from confluent_kafka import KafkaException
from rich.console import Console
from rich.table import Table
from rich.text import Text

from keyway import service
from keyway.terminal.exits import Exit, end
from keyway.terminal.usage import OneLineUsage
from keyway.terminal.watching import Output, View, show

if TYPE_CHECKING:
    from spark.pipelines.check import DrySchemas, Findings, Trial
    from spark.pipelines.config import Pipeline
    from spark.pipelines.run import Counts

app = typer.Typer(
    cls=OneLineUsage,
    help="Transform the records of a topic: mask, rename, drop, timestamp, filter, route.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)

COLUMNS_MAX = 100_000  # a table in a pipe or a narrow window is never cut
SHOWN_MAX = 1_000
PROGRESS_S = 2.0  # between two lines
MASTER = "local[2,3]"  # two tasks at a time, each tried three times
PipelineFile = Annotated[Path, typer.Argument(metavar="FILE", help="The pipeline's YAML.")]


@app.callback()
def _root() -> None:
    """Options of every command: none."""


@app.command()
def check(
    file: PipelineFile,
    records: Annotated[
        int,
        typer.Option("-n", "--records", min=0, max=SHOWN_MAX, help="To show; 0: only the file."),
    ] = 5,
    output: Output = "table",
) -> None:
    """Validate FILE and show real records before and after; nothing is written."""
    from keyway.terminal.progress import Progress
    from spark.pipelines.check import as_json
    from spark.pipelines.config import load_pipeline
    from spark.pipelines.probe import FAILURES, dry_schemas, probed

    try:
        pipeline = load_pipeline(file)
        schemas = dry_schemas(pipeline)
        with Progress() as progress:
            progress.step("reading records of the source")
            findings = probed(pipeline, schemas, records)
    except FAILURES as error:
        _end(error)
    raw = as_json(pipeline, findings, records, schemas)
    show(lambda: View(raw, lambda: _print_table(pipeline, findings, records, schemas)), output)
    for fault in findings.faults:
        typer.echo(f"keyway: {file}:{fault.line}: {fault.reason}", err=True)
    if findings.faults or (findings.trials and findings.quarantined == len(findings.trials)):
        raise typer.Exit(Exit.REFUSED)


@app.command()
def run(
    file: PipelineFile,
    once: Annotated[
        bool, typer.Option("--once", help="End when the records are done that are there now.")
    ] = False,
    master: Annotated[str, typer.Option(help="Spark's master.")] = MASTER,
    output: Output = "table",
) -> None:
    """Run FILE, from its source to its target, until SIGTERM or SIGINT; exactly once."""
    stop = service.started()
    from pyspark.errors import PySparkException

    from spark.pipelines.config import load_pipeline
    from spark.pipelines.probe import FAILURES, dry_schemas, probed, require_paths
    from spark.pipelines.run import PipelineRun, RunError
    from spark.session import SETTINGS, kafka_session
    from spark.streaming.faults import cause
    from spark.streaming.produce import PositionMoved

    try:
        pipeline = load_pipeline(file)
        pipeline.require_places()
        require_paths(pipeline, probed(pipeline, dry_schemas(pipeline)))
        session = kafka_session(
            f"keyway-pipeline-{pipeline.config.name}", master=master, settings=SETTINGS
        )
        try:
            work = PipelineRun(session, pipeline, stop=stop, changed=_progress(), waits=_waits)
            work.run(once=once)
        finally:
            session.stop()
    except FAILURES as error:
        _end(error)
    except RunError as error:
        end(str(error))
    except (PySparkException, KafkaException, PositionMoved) as error:
        end(cause(error), Exit.AWAY)
    show(lambda: View(asdict(work.counts), lambda: typer.echo(_told(work.counts))), output)


def _end(error: Exception) -> NoReturn:
    """For one of FAILURES: the file is wrong, or the source or the registry gave no answer."""
    from spark.pipelines.sample import SampleError
    from spark.transforms.registry import RegistryError

    away = isinstance(error, SampleError | RegistryError)
    end(str(error), Exit.AWAY if away else Exit.CONFIGURATION)


def _progress() -> Callable[[Counts], None]:
    """Says on stderr how far the run is, every two seconds at most."""
    said_s = -PROGRESS_S  # the first batch is told at once

    def changed(counts: Counts) -> None:
        nonlocal said_s
        if monotonic() - said_s >= PROGRESS_S:
            said_s = monotonic()
            typer.echo(_told(counts), err=True)

    return changed


def _waits(fault: str) -> None:
    typer.echo(f"keyway: waits: {fault}", err=True)


def _told(counts: Counts) -> str:
    return (
        f"{counts.written} records written, {counts.quarantined} of them to quarantine;"
        f" {counts.filtered} filtered out; {counts.again} of an earlier run not written again"
    )


def _print_table(
    pipeline: Pipeline, findings: Findings, records: int, schemas: DrySchemas | None
) -> None:
    table = Table("PARTITION", "OFFSET", "TO", "FIELD", "BEFORE", "AFTER", box=None)
    for trial in findings.shown(records):
        first = (str(trial.record.partition), str(trial.record.offset))
        to = trial.outcome.topic or "(filtered out)"
        for at, cells in enumerate(_rows(pipeline, trial, schemas)):
            place = (*first, to) if at == 0 else ("", "", "")
            table.add_row(*map(Text, (*place, *cells)))
    if table.row_count:
        Console(width=COLUMNS_MAX, soft_wrap=True).print(table)
    for subject in findings.schemas:
        typer.echo(f"run would register a schema for subject {subject}")
    typer.echo(
        f"{pipeline.path}: {len(pipeline.plan.steps)} steps, {len(findings.trials)} records tried,"
        f" {findings.quarantined} of them to quarantine"
    )


def _rows(
    pipeline: Pipeline, trial: Trial, schemas: DrySchemas | None
) -> list[tuple[str, str, str]]:
    """FIELD, BEFORE, AFTER: at least one row."""
    from spark.pipelines.check import changes

    problem = trial.outcome.problem
    if problem is not None:
        line = pipeline.line_of_step(problem.step)
        return [("(quarantine)", "", f"{pipeline.path}:{line}: {problem.reason}")]
    rows = [
        (change.field, change.before or "", change.after or "")
        for change in changes(pipeline, trial, schemas)
    ]
    return rows or [("(unchanged)", "", "")]


if __name__ == "__main__":
    app(prog_name="keyway pipeline")
