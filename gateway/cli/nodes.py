"""`keyway node`: the nodes that share a Redis, and an operator's orders to them.

An order is stored when the node answers; the owners then hand over within a second or so. The
command waits for that, with progress, and says what moved.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Annotated, Any

import typer

from gateway.admin.node_rows import NodeList, NodeRow
from gateway.cli.node_client import ask
from gateway.cli.options import DEFAULT_ADMIN, AdminOption, Output, Watching, WatchOption
from gateway.cli.tables import View, print_data, print_line, show, table_view
from keyway.terminal.exits import end
from keyway.terminal.progress import Progress

app = typer.Typer(help="Nodes that share a Redis.", no_args_is_help=True)

_NODE = ("NODE", "STATE", "REST", "OWNS", "MOVING", "HEARD-MS")
_LOOK_S = 0.2
_WAIT_S_MAX = 60.0

NodeArgument = Annotated[
    str, typer.Argument(help="The name of the node: nodes.id in its keyway.yaml.")
]
WaitOption = Annotated[
    bool, typer.Option("--wait/--no-wait", help="Wait until the virtual brokers have moved.")
]
WaitSeconds = Annotated[
    float, typer.Option("--seconds", min=0.1, help="The longest wait; then exit status 1.")
]


@app.command("list", cls=Watching)
def node_list(
    watch: WatchOption = None,
    admin: AdminOption = DEFAULT_ADMIN,
    output: Output = "table",
) -> None:
    """List the nodes that share a Redis, and the virtual brokers that each owns."""

    def look() -> View:
        found = ask(admin, "/v1/nodes", NodeList)
        rows = [
            (node.node, _state(node), node.admin, node.owns, node.moving, node.heard_ms)
            for node in found.row.nodes
        ]
        return table_view(found.raw, _NODE, rows)

    show(look, output, watch)


def _state(row: NodeRow) -> str:
    return f"{row.state}, drained" if row.drained else row.state


@app.command("drain")
def node_drain(
    node: NodeArgument,
    wait: WaitOption = True,
    seconds: WaitSeconds = _WAIT_S_MAX,
    admin: AdminOption = DEFAULT_ADMIN,
    output: Output = "table",
) -> None:
    """Move all that a node owns to the other nodes, and give it nothing more.

    That ends with `keyway node undrain`, or when the node restarts.
    """

    def done(found: NodeList) -> bool:
        return all(not row.owns for row in found.nodes if row.node == node)

    _order(admin, "drain", {"node": node}, done if wait else None, seconds, output)


@app.command("undrain")
def node_undrain(
    node: NodeArgument,
    wait: WaitOption = True,
    seconds: WaitSeconds = _WAIT_S_MAX,
    admin: AdminOption = DEFAULT_ADMIN,
    output: Output = "table",
) -> None:
    """Let a drained node own virtual brokers again; it gets its part of them."""

    def done(found: NodeList) -> bool:
        return all(not row.moving for row in found.nodes)

    _order(admin, "undrain", {"node": node}, done if wait else None, seconds, output)


@app.command("move")
def node_move(
    broker: Annotated[int, typer.Argument(min=0, help="The id of the virtual broker.")],
    node: Annotated[
        str | None,
        typer.Argument(help="The next owner of the broker; without it, Keyway chooses again."),
    ] = None,
    wait: WaitOption = True,
    seconds: WaitSeconds = _WAIT_S_MAX,
    admin: AdminOption = DEFAULT_ADMIN,
    output: Output = "table",
) -> None:
    """Move a virtual broker to a node. It stays there until it is moved again, or the node is
    drained or gone.
    """

    def done(found: NodeList) -> bool:
        owners = _owners(found)
        moving = any(broker in row.moving for row in found.nodes)
        return not moving and (node is None or owners.get(broker) == node)

    _order(admin, "move", {"broker": broker, "node": node}, done if wait else None, seconds, output)


def _order(
    admin: str,
    verb: str,
    body: dict[str, Any],
    done: Callable[[NodeList], bool] | None,
    seconds: float,
    output: str,
) -> None:
    """`done` None: does not wait. Ends the command if it is not done in time."""
    before = _owners(ask(admin, "/v1/nodes", NodeList).row)
    answer = ask(admin, f"/v1/nodes/{verb}", NodeList, method="POST", body=body)
    until = time.monotonic() + seconds
    with Progress() as progress:
        progress.step(f"{verb}: virtual brokers move")
        while done is not None and not done(answer.row) and time.monotonic() < until:
            time.sleep(_LOOK_S)
            answer = ask(admin, "/v1/nodes", NodeList)
            moving = sum(len(node.moving) for node in answer.row.nodes)
            progress.detail = lambda count=moving: f"{count} under way"
    after = _owners(answer.row)
    moved = {
        number: (before.get(number), to) for number, to in after.items() if before.get(number) != to
    }
    if output != "table":
        rows = [
            {"broker": number, "from": was, "to": to} for number, (was, to) in sorted(moved.items())
        ]
        print_data({**answer.raw, "moved": rows}, output)
    else:
        for broker, (was, to) in sorted(moved.items()):
            print_line(f"virtual broker {broker}: {was or '-'} to {to}")
        if not moved:
            print_line("ordered" if done is None else "nothing had to move")
    if done is not None and not done(answer.row):
        left = [f"{node.node} has {', '.join(map(str, node.owns))}" for node in answer.row.nodes]
        end(f"not done after {seconds:g} s, but ordered: {'; '.join(left)}")


def _owners(found: NodeList) -> dict[int, str]:
    return {broker: node.node for node in found.nodes for broker in node.owns}
