"""`keyway repartition`: more partitions for a topic, or any number in a new topic that takes its
place, with the order of its keys kept.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from gateway.admin.repartition_rows import RepartitionList, RepartitionPlan, RepartitionRow
from gateway.cli.node_client import ask, path_with
from gateway.cli.options import DEFAULT_ADMIN, AdminOption, Output, Watching, WatchOption
from gateway.cli.tables import View, print_data, print_line, show, table_view
from gateway.core.repartition.partitioners import Partitioner
from keyway.terminal.exits import end

app = typer.Typer(
    help="More or fewer partitions for a topic, with the order of its keys kept.",
    no_args_is_help=True,
)

_STATUS = ("TOPIC", "PARTITIONS", "PHASE", "LATE-RECORDS", "WAITS-FOR")

TopicArgument = Annotated[str, typer.Argument(help="The topic.")]
PartitionsOption = Annotated[
    int,
    typer.Option(
        "--partitions", min=1, help="How many: a multiple of what it has, or any with --into."
    ),
]
IntoOption = Annotated[
    str, typer.Option("--into", help="A new topic that is to take its place, with so many.")
]
UnorderedOption = Annotated[
    list[str] | None,
    typer.Option(
        "--unordered", help="A group whose order of keys is given up here; may be repeated."
    ),
]
PartitionerOption = Annotated[
    Partitioner | None,
    typer.Option(
        help="What its producers use, for a topic with too few keys to tell: murmur2 is Java's"
        " default, crc32 librdkafka's."
    ),
]

ForceOption = Annotated[
    bool,
    typer.Option(
        "--force",
        help="Also if Kafka gives members of KIP-848 groups partitions that stay hidden.",
    ),
]


@app.command("plan")
def repartition_plan(
    topic: TopicArgument,
    partitions: PartitionsOption,
    into: IntoOption = "",
    unordered: UnorderedOption = None,
    partitioner: PartitionerOption = None,
    admin: AdminOption = DEFAULT_ADMIN,
    output: Output = "table",
) -> None:
    """Say whether a topic can get so many partitions, and what that would mean. Nothing is changed.

    Exit status 1 if it cannot.
    """
    _ask(_body(topic, partitions, into, unordered, partitioner, execute=False), admin, output)


@app.command("start")
def repartition_start(
    topic: TopicArgument,
    partitions: PartitionsOption,
    into: IntoOption = "",
    unordered: UnorderedOption = None,
    partitioner: PartitionerOption = None,
    admin: AdminOption = DEFAULT_ADMIN,
    output: Output = "table",
) -> None:
    """Give a topic more partitions, or begin to move it into a new one with any number of them.
    `keyway repartition status --watch` shows how far it is.
    """
    _ask(_body(topic, partitions, into, unordered, partitioner, execute=True), admin, output)


def _body(
    topic: str,
    partitions: int,
    into: str,
    unordered: list[str] | None,
    partitioner: Partitioner | None,
    *,
    execute: bool,
) -> dict[str, Any]:
    return {
        "topic": topic,
        "partitions": partitions,
        "into": into or None,
        "unordered": unordered or [],
        "partitioner": None if partitioner is None else partitioner.value,
        "execute": execute,
    }


def _ask(body: dict[str, Any], admin: str, output: str) -> None:
    answer = ask(admin, "/v1/repartitions", RepartitionPlan, method="POST", body=body)
    plan = answer.row
    if output != "table":
        print_data(answer.raw, output)
    else:
        _print_plan(plan)
    if plan.refusals:
        end(f"topic {plan.topic!r}: {'; '.join(plan.refusals)}")


def _print_plan(plan: RepartitionPlan) -> None:
    print_line(f"topic {plan.topic}: {_counts(plan)}")
    if plan.into is None:
        unknown = "a partitioner that is not known"
        print_line(f"keys are placed by {plan.partitioner.value if plan.partitioner else unknown}")
    print_line(f"order of keys kept for: {', '.join(plan.ordered_groups) or 'no group'}")
    if plan.unordered_groups:
        print_line(f"order of keys not kept for: {', '.join(plan.unordered_groups)}")
    for warning in plan.warnings:
        print_line(f"note: {warning}")
    print_line("begun" if plan.executed else "nothing is done: `keyway repartition start` does it")


def _counts(row: RepartitionPlan | RepartitionRow) -> str:
    return f"{row.before} to {row.after} partitions" + (f" of {row.into}" if row.into else "")


@app.command("status", cls=Watching)
def repartition_status(
    topic: Annotated[str | None, typer.Argument(help="Only this topic.")] = None,
    watch: WatchOption = None,
    admin: AdminOption = DEFAULT_ADMIN,
    output: Output = "table",
) -> None:
    """Show topics that get other partitions, or did: how far, and what they wait for."""

    def look() -> View:
        given = {} if topic is None else {"topic": topic}
        found = ask(admin, path_with("/v1/repartitions", **given), RepartitionList)
        rows = [
            (
                *(
                    repartition.topic,
                    _counts(repartition).replace(" partitions", ""),
                    repartition.phase,
                    repartition.late_records,
                ),
                repartition.error or "; ".join(repartition.waits_for) or None,
            )
            for repartition in found.row.repartitions
        ]
        return table_view(found.raw, _STATUS, rows)

    show(look, output, watch)


@app.command("abort")
def repartition_abort(
    topic: TopicArgument,
    force: ForceOption = False,
    admin: AdminOption = DEFAULT_ADMIN,
    output: Output = "table",
) -> None:
    """Give a repartition up, while clients have not seen the new partitions. The new partitions
    stay hidden: Kafka deletes none, and the next repartition takes them.
    """
    body = {"topic": topic, "force": force}
    answer = ask(admin, "/v1/repartitions/abort", RepartitionRow, method="POST", body=body)
    if output != "table":
        print_data(answer.raw, output)
    else:
        left = f"; topic {answer.row.into} may be deleted" if answer.row.into else ""
        print_line(f"topic {topic}: aborted, clients see {answer.row.before} partitions{left}")
