"""`keyway group`: the groups of a node, their members, partitions and positions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Annotated

import typer

from gateway.admin.rows import GroupDescription, GroupList, GroupSummary, PartitionRow
from gateway.cli.group_settings import group_delete, group_settings
from gateway.cli.node_client import ask, ask_all, group_path, show_list
from gateway.cli.options import (
    DEFAULT_ADMIN,
    AdminOption,
    NameFilter,
    Output,
    Watching,
    WatchOption,
)
from gateway.cli.parked import group_parked, group_release, group_value
from gateway.cli.positions import group_positions, group_seek
from gateway.cli.tables import View, age, print_line, print_table, show
from gateway.cli.unreadable import group_skip, group_unreadable

app = typer.Typer(help="Key-Shared groups of a running node.", no_args_is_help=True)
app.command("positions", cls=Watching)(group_positions)
app.command("seek")(group_seek)
app.command("parked", cls=Watching)(group_parked)
app.command("value")(group_value)
app.command("release")(group_release)
app.command("settings")(group_settings)
app.command("delete")(group_delete)
app.command("unreadable", cls=Watching)(group_unreadable)
app.command("skip")(group_skip)

_SUMMARY = ("GROUP", "STATE", "MEMBERS", "TOPICS", "WINDOWS", "TOTAL-LAG", "LAG-SECONDS", "PARKED")
_MEMBERSHIP = ("CONSUMER-ID", "HOST", "CLIENT-ID", "EPOCH", "TOPICS")
# The first six columns are those of kafka-consumer-groups.sh, then come ours.
_PARTITION = (
    *("GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "LAG-SECONDS"),
    *("STATE", "READ-OFFSET", "UNSETTLED", "IN-FLIGHT", "BACKING-OFF", "DEAD-LETTERING", "PARKED"),
)
# UNACKED and BLOCKED are records of keys that drain, ATTEMPTS counts how often their new owners
# asked meanwhile, CLEARED the keys that have drained since the member joined, JOINED-BEHIND is the
# last sent position when it joined others.
_MEMBER = (
    *("TOPIC", "PARTITION", "CONSUMER-ID", "READY-KEYS", "IN-FLIGHT", "DRAINING-KEYS", "UNACKED"),
    *("BLOCKED", "ATTEMPTS", "CLEARED", "JOINED-BEHIND", "DROPPED"),
)


@app.command("list", cls=Watching)
def group_list(
    name: NameFilter = None,
    state: Annotated[
        str | None, typer.Option(help="Only groups of this state: Stable, Empty, ...")
    ] = None,
    watch: WatchOption = None,
    admin: AdminOption = DEFAULT_ADMIN,
    output: Output = "table",
) -> None:
    """List the groups, also those of other nodes that share its Redis."""
    pages = partial(ask_all, admin, "/v1/groups", GroupList, "groups", name=name, state=state)
    show_list(pages, _SUMMARY, _summary, output, watch)


def _summary(row: GroupSummary) -> tuple[object, ...]:
    return (
        *(row.group, row.state, row.members, row.topics, row.windows, row.lag),
        *(age(row.lag_seconds), row.parked),
    )


@app.command("describe", cls=Watching)
def group_describe(
    group: str,
    watch: WatchOption = None,
    admin: AdminOption = DEFAULT_ADMIN,
    output: Output = "table",
) -> None:
    """Show the members and windows of one group."""

    def look() -> View:
        answer = ask(admin, group_path(group), GroupDescription)
        return View(answer.raw, lambda: _print_group(answer.row))

    show(look, output, watch)


def _print_group(found: GroupDescription) -> None:
    print_line(f"group {found.group}  state {found.state}  epoch {found.epoch}{_policies(found)}")
    print_table(
        _MEMBERSHIP,
        [
            (row.member_id, row.host, row.client_id, row.epoch, row.topics)
            for row in found.memberships
        ],
    )
    print_table(_PARTITION, [_partition(found.group, row) for row in found.partitions])
    busy = list(_busy_members(found.partitions))
    if busy:
        print_table(_MEMBER, busy)
    for row in found.partitions:
        for line in _remarks(row):
            print_line(line)


def _policies(found: GroupDescription) -> str:
    policies = found.policies
    if policies is None:
        return ""
    return f"  rejected {policies.rejected.value}  exhausted {policies.exhausted.value}"


def _partition(group: str, row: PartitionRow) -> Sequence[object]:
    return (
        *(group, row.topic, row.partition, row.cursor, row.log_end, row.lag, age(row.lag_seconds)),
        *(row.state, row.read_position, row.unsettled, row.in_flight, row.backing_off),
        *(row.dead_lettering, row.parked_records),
    )


def _busy_members(partitions: Sequence[PartitionRow]) -> Iterator[Sequence[object]]:
    """Members that have anything of a partition."""
    for row in partitions:
        for member in row.members:
            if member.ready_keys or member.in_flight or member.dropped:
                yield (
                    *(row.topic, row.partition, member.member_id),
                    *(member.ready_keys, member.in_flight, member.draining_keys),
                    *(member.draining_in_flight, member.draining_blocked),
                    *(member.draining_attempts, member.draining_cleared),
                    *(member.last_sent_position_when_joining, member.dropped),
                )


def _remarks(row: PartitionRow) -> Iterator[str]:
    """Lines about a window that needs an operator."""
    place = f"{row.topic}-{row.partition}"
    full = row.full_span
    if full is not None:
        holder = f", at member {full.member_id}" if full.member_id else ""
        what = {
            "window_records": "window of records",
            "span_max": f"span of {row.span_max} offsets",
            "held_max": f"room for {row.held_max} records aside",
        }[full.limit]
        yield (
            f"{place}: the {what} is full: offset {full.offset} is"
            f" not settled (key hash {full.key_hash or '-'}, {full.records} records of its"
            f" key are read{holder}). No key goes on. `keyway group parked` and `keyway group"
            " release` end it for parked records"
        )
    for late in row.consumers_after_mark_delete_position:
        yield (
            f"{place}: {late.name} ({late.id}, {late.address}) joined behind offset"
            f" {late.last_sent_position_when_joining}, which is not settled"
        )
    for member in row.members:
        if member.silent:
            yield f"{place}: member {member.member_id} fetches nothing: other members have its keys"
    if row.trouble:
        yield f"{place}: waits: {row.trouble}"
    if row.read_trouble:
        yield f"{place}: nothing more can be read: {row.read_trouble}"
    if row.open_transaction is not None:
        held = row.open_transaction
        yield (
            f"{place}: waits for an open transaction at offset {held.offset}, for"
            f" {held.seconds:.0f} s or longer: no member that reads committed records gets beyond"
            " it. `kafka-transactions.sh find-hanging` names its producer"
        )
    if row.dead_letter_trouble:
        yield f"{place}: dead letters are not written: {row.dead_letter_trouble}"
