"""The judgement of `keyway doctor` about the other nodes that share its Redis. Pure; the facts come
from gateway/node/other_nodes.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from gateway.node.diagnosis import Finding, fault, ok, warning

CLOCKS_APART_S_MAX = 2.0  # lag in seconds and times of retries differ by as much from node to node


@dataclass(frozen=True, slots=True)
class Ours:
    """`agreed`: what all nodes must have alike, as far as it is known; `settings`: tells whether
    two nodes have the same groups; `clock_off_s`: the clock of Redis, less that of this machine.
    """

    id: str
    agreed: Mapping[str, str]
    settings: str
    clock_off_s: float


@dataclass(frozen=True, slots=True)
class OtherNode:
    """Another node that is alive. `rest`: its address; `rest_silence`: why it cannot be asked
    there; `closed`: why clients that come from here do not reach it, by address.
    """

    id: str
    agreed: Mapping[str, str]
    settings: str
    clock_off_s: float | None
    rest: str
    rest_silence: str = ""
    closed: Mapping[str, str] = field(default_factory=dict)


def of_nodes(ours: Ours, others: Sequence[OtherNode]) -> Iterator[Finding]:
    if not others:
        yield ok(
            "nodes",
            f"no node but perhaps {ours.id} lives in this Redis; if others should, they have"
            " another state.redis_url, or another database",
        )
        return
    names = ", ".join(other.id for other in others)
    yield ok("nodes", f"{names} {'lives' if len(others) == 1 else 'live'} in this Redis, too")
    yield from _settings(ours, others)
    yield from _clocks(ours, others)
    yield from _addresses(others)


def _settings(ours: Ours, others: Sequence[OtherNode]) -> Iterator[Finding]:
    differ = False
    for node in others:
        for name in sorted(ours.agreed.keys() & node.agreed.keys()):
            if ours.agreed[name] != node.agreed[name]:
                differ = True
                yield fault(
                    "settings of nodes",
                    f"node {node.id} has another {name}: {node.agreed[name]}, here"
                    f" {ours.agreed[name]}; this node will not start",
                    "give both nodes the same value, or give this node another Redis",
                )
    others_groups = [other.id for other in others if other.settings != ours.settings]
    if others_groups:
        yield warning(
            "settings of nodes",
            f"nodes with other settings of groups: {', '.join(others_groups)}",
            "give all nodes the same groups in keyway.yaml",
        )
    elif not differ:
        yield ok("settings of nodes", "the same cluster, slots, listeners and groups")


def _clocks(ours: Ours, others: Sequence[OtherNode]) -> Iterator[Finding]:
    """All are compared with the clock of the one Redis."""
    known = {other.id: other.clock_off_s for other in others if other.clock_off_s is not None}
    apart = {name: abs(off - ours.clock_off_s) for name, off in known.items()}
    far = {name: seconds for name, seconds in apart.items() if seconds > CLOCKS_APART_S_MAX}
    for name, seconds in far.items():
        yield warning(
            "clocks of nodes",
            f"the clock of node {name} and that of this machine are {seconds:.1f} s apart",
            "let NTP or chrony set the clocks of both machines",
        )
    if apart and not far:
        yield ok("clocks of nodes", f"at most {max(apart.values()):.1f} s apart")


def _addresses(others: Sequence[OtherNode]) -> Iterator[Finding]:
    amiss = False
    for node in others:
        if node.rest_silence:
            amiss = True
            yield warning(
                "addresses of nodes",
                f"REST of node {node.id} at {node.rest}: {node.rest_silence}",
                "set its admin.host to an address that the other nodes reach, and open the way",
            )
        for address, reason in node.closed.items():
            amiss = True
            yield warning(
                "addresses of nodes",
                f"clients are told {address} of node {node.id}, and from here: {reason}",
                "set its listen.advertised_host to a name that clients reach, and open the way",
            )
    if not amiss:
        yield ok("addresses of nodes", "REST and the ports of clients answer from here")
