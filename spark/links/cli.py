"""`keyway distribute`: check, run, status, switch, verify. Loads Spark and Kafka clients only when
a command runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from keyway.kafka.asking import LOOK_S_MAX
from keyway.terminal.exits import Exit, end
from keyway.terminal.extras import what_to_install
from keyway.terminal.usage import OneLineUsage
from keyway.terminal.watching import Output, View, Watching, WatchOption, show

app = typer.Typer(
    cls=OneLineUsage,
    help="Records copied between clusters, along their tree.",
    no_args_is_help=True,
    add_completion=False,
)

MASTER = "local[2,3]"  # two tasks at a time, each tried three times
ConfigArgument = Annotated[Path, typer.Argument(help="The YAML that describes the clusters.")]
ClusterOption = Annotated[str, typer.Option(help="The cluster whose records are copied.")]


@contextmanager
def told() -> Iterator[None]:
    """Ends the command with one line for a fault that a user can mend: 2 for a missing package or a
    wrong configuration, 3 for a cluster that does not answer.
    """
    try:
        from confluent_kafka import KafkaException

        from keyway.clusters.config import ConfigError
        from keyway.clusters.core.tree import TreeError
    except ModuleNotFoundError as error:
        raise _lacking(error) from error
    try:
        yield
    except ModuleNotFoundError as error:
        raise _lacking(error) from error
    except (ConfigError, TreeError) as error:
        end(str(error), Exit.CONFIGURATION)
    except KafkaException as error:
        end(error.args[0].str(), Exit.AWAY)


def _lacking(error: ModuleNotFoundError) -> typer.Exit:
    typer.echo(f"keyway: {what_to_install(error)}", err=True)
    return typer.Exit(Exit.CONFIGURATION)


@app.command()
def check(config: ConfigArgument, output: Output = "table") -> None:
    """Show the tree and every hop, and verify the settings of every cluster. Exits with 1 if a
    record could be lost or repeated, or a cluster cannot be used.
    """
    with told():
        from keyway.clusters.config import load
        from keyway.terminal.progress import Progress
        from spark.links.check import check_clusters, findings_text, tree_text

        settings = load(config)
        if output == "table":
            typer.echo(tree_text(settings.checked_tree()))
        with Progress() as progress:
            findings = check_clusters(settings, progress.step)
        raw = [finding.as_json() for finding in findings]
        show(lambda: View(raw, lambda: typer.echo(findings_text(findings))), output)
        if any(finding.fault for finding in findings):
            raise typer.Exit(Exit.REFUSED)


@app.command()
def run(
    config: ConfigArgument,
    cluster: ClusterOption,
    level: Annotated[int | None, typer.Option(help="One link; without it all of them.")] = None,
    master: Annotated[str, typer.Option(help="Spark's master.")] = MASTER,
    from_start: Annotated[
        bool,
        typer.Option(
            "--from-start",
            help="Copy topics again that the target has copies of, but of which the link has no"
            " position.",
        ),
    ] = False,
) -> None:
    """Copy the records of one cluster until SIGTERM or SIGINT."""
    with told():
        from spark.links.job import run_job

        run_job(config, cluster, level, master=master, from_start=from_start)


@app.command(cls=Watching)
def status(
    config: ConfigArgument,
    link: Annotated[str | None, typer.Option(help="Only this link, like CLUSTER-level-1.")] = None,
    topic: Annotated[
        str | None, typer.Option(help="Only this one of the topics of a link.")
    ] = None,
    watch: WatchOption = None,
    output: Output = "table",
) -> None:
    """Show how far every link is, and why it waits. Exits with 1 if a link or a topic is not
    copied, with 3 if a cluster does not answer.
    """
    with told():
        from keyway.clusters.config import load
        from spark.links.show import Links, exit_of, links_table

        links = Links(load(config), link, topic)
        code = Exit.DONE

        def look() -> View:
            nonlocal code
            rows = links.look(within_s=LOOK_S_MAX if watch else None)
            code = exit_of(rows)
            return View(rows, lambda: typer.echo(links_table(rows)))

        show(look, output, watch)
        if watch is None:
            raise typer.Exit(code)


@app.command()
def switch(
    config: ConfigArgument,
    cluster: ClusterOption,
    level: Annotated[int, typer.Option(help="The link's level.")],
    to: Annotated[str, typer.Option(help="The new target.")],
    rewind: Annotated[
        bool, typer.Option(help="Copy again from the first record that the subtree lacks.")
    ] = False,
    execute: Annotated[bool, typer.Option("--execute", help="Act; else only show.")] = False,
    output: Output = "table",
) -> None:
    """Give a link another target. Shows first the records that the old one has not forwarded."""
    with told():
        from keyway.clusters.config import load
        from keyway.terminal.progress import Progress
        from spark.links.switching import ask_for_switch, switch_text

        settings = load(config)
        with Progress() as progress:
            shown = ask_for_switch(
                settings, cluster, level, to, rewind=rewind, execute=execute, step=progress.step
            )
        show(lambda: View(shown, lambda: typer.echo(switch_text(shown))), output)


@app.command()
def verify(
    config: ConfigArgument,
    first: Annotated[str, typer.Argument(help="A cluster.")],
    second: Annotated[str, typer.Argument(help="Another cluster.")],
    topic: Annotated[str, typer.Argument(help="Its logical name.")],
    master: Annotated[str, typer.Option(help="Spark's master.")] = "local[2]",
    output: Output = "table",
) -> None:
    """Compare a topic of two clusters, record by record, by origin. Exits with 1 if they differ."""
    with told():
        from keyway.clusters.config import load
        from keyway.terminal.progress import Progress
        from spark.links.verify import comparison_text, verify_topic

        settings = load(config)
        with Progress() as progress:
            found = verify_topic(settings, first, second, topic, master=master, progress=progress)
        show(lambda: View(found, lambda: typer.echo(comparison_text(found))), output)
        if not found["alike"]:
            raise typer.Exit(Exit.REFUSED)
