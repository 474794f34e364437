"""`keyway repartition`: more partitions for a topic, with the order of its keys kept."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from gateway.admin.repartition_rows import RepartitionList, RepartitionPlan, RepartitionRow
from gateway.cli.node_client import ask, path_with
from gateway.cli.options import DEFAULT_ADMIN, AdminOption, Output, Watching, WatchOption
from gateway.cli.tables import View, print_data, print_line, show, table_view
from keyway.terminal.exits import end

app = typer.Typer(
    help="More partitions for a topic, with the order of its keys kept.", no_args_is_help=True
)

_STATUS = ("TOPIC", "PARTITIONS", "PHASE", "LATE-RECORDS", "WAITS-FOR")

TopicArgument = Annotated[str, typer.Argument(help="The topic.")]
PartitionsOption = Annotated[
    int, typer.Option("--partitions", min=1, help="How many it is to have: a multiple.")
]
UnorderedOption = Annotated[
    list[str] | None,
    typer.Option(
        "--unordered", help="A group whose order of keys is given up here; may be repeated."
    ),
]


@app.command("plan")
def repartition_plan(
    topic: TopicArgument,
    partitions: PartitionsOption,
    unordered: UnorderedOption = None,
    admin: AdminOption = DEFAULT_ADMIN,
    output: Output = "table",
) -> None:
    """Say whether a topic can get more partitions, and what that would mean. Nothing is changed.

    Exit status 1 if it cannot.
    """
    _ask(topic, partitions, unordered, admin, output, execute=False)


@app.command("start")
def repartition_start(
    topic: TopicArgument,
    partitions: PartitionsOption,
    unordered: UnorderedOption = None,
    admin: AdminOption = DEFAULT_ADMIN,
    output: Output = "table",
) -> None:
    """Give a topic more partitions. `keyway repartition status --watch` shows how far it is."""
    _ask(topic, partitions, unordered, admin, output, execute=True)


def _ask(
    topic: str,
    partitions: int,
    unordered: list[str] | None,
    admin: str,
    output: str,
    *,
    execute: bool,
) -> None:
    body: dict[str, Any] = {
        "topic": topic,
        "partitions": partitions,
        "unordered": unordered or [],
        "execute": execute,
    }
    answer = ask(admin, "/v1/repartitions", RepartitionPlan, method="POST", body=body)
    plan = answer.row
    if output != "table":
        print_data(answer.raw, output)
    else:
        _print_plan(plan)
    if plan.refusals:
        end(f"topic {topic!r}: {'; '.join(plan.refusals)}")


def _print_plan(plan: RepartitionPlan) -> None:
    print_line(f"topic {plan.topic}: {plan.before} to {plan.after} partitions")
    print_line(f"keys are placed by {plan.partitioner or 'a partitioner that is not known'}")
    print_line(f"order of keys kept for: {', '.join(plan.ordered_groups) or 'no group'}")
    if plan.unordered_groups:
        print_line(f"order of keys not kept for: {', '.join(plan.unordered_groups)}")
    for warning in plan.warnings:
        print_line(f"note: {warning}")
    print_line("begun" if plan.executed else "nothing is done: `keyway repartition start` does it")


@app.command("status", cls=Watching)
def repartition_status(
    topic: Annotated[str | None, typer.Argument(help="Only this topic.")] = None,
    watch: WatchOption = None,
    admin: AdminOption = DEFAULT_ADMIN,
    output: Output = "table",
) -> None:
    """Show topics that get more partitions, or did: how far, and what they wait for."""

    def look() -> View:
        given = {} if topic is None else {"topic": topic}
        found = ask(admin, path_with("/v1/repartitions", **given), RepartitionList)
        rows = [
            (
                *(
                    repartition.topic,
                    f"{repartition.before} to {repartition.after}",
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
    admin: AdminOption = DEFAULT_ADMIN,
    output: Output = "table",
) -> None:
    """Give a repartition up, while clients have not seen the new partitions. The new partitions
    stay hidden: Kafka deletes none, and the next repartition takes them.
    """
    body = {"topic": topic}
    answer = ask(admin, "/v1/repartitions/abort", RepartitionRow, method="POST", body=body)
    if output != "table":
        print_data(answer.raw, output)
    else:
        print_line(f"topic {topic}: aborted, clients see {answer.row.before} partitions")
