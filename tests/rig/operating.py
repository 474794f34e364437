"""An operator's tools for a running node: its REST and the `keyway` command."""

from __future__ import annotations

import itertools
import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import Any

from dispatcher.core.model import Member, MemberId
from dispatcher.core.routing.ring import Router
from gateway.admin.peers import NODE_ONLY
from tests.rig.clients.share_lines import Delivery
from tests.rig.clients.share_members import ShareMember
from tests.rig.gateway_process import GatewayProcess
from tests.rig.patience import wait_until
from tests.rig.quick_start import ran

COMMAND_S_MAX = 60


def rest(
    gateway: GatewayProcess,
    path: str,
    body: object = None,
    *,
    method: str | None = None,
    headers: dict[str, str] | None = None,
) -> tuple[int, Any]:
    """Status and JSON of any answer."""
    data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
    request = urllib.request.Request(
        f"http://{gateway.admin}{path}",
        data=data,
        method=method,
        headers={"Content-Type": "application/json", **(headers or {})},
    )
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        refusal = error
    assert refusal.headers["Content-Type"] == "application/problem+json"
    return refusal.code, json.load(refusal)


def health(gateway: GatewayProcess, path: str = "/health") -> tuple[int, dict[str, Any]]:
    """Status and JSON; a node in trouble answers with 503 and its reasons."""
    try:
        with urllib.request.urlopen(f"http://{gateway.admin}{path}", timeout=60) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as refusal:
        with refusal:
            return refusal.code, json.load(refusal)


def windows_of(
    gateway: GatewayProcess, group: str, *, node: str | None = None
) -> list[dict[str, Any]]:
    """The group's windows as REST describes them; [] while it knows no such group. `node`: only
    those of this node, which is the one that is asked.
    """
    headers = None if node is None else {NODE_ONLY: node}
    path = f"/v1/groups/{urllib.parse.quote(group, safe='')}"
    status, answer = rest(gateway, path, headers=headers)
    return list(answer["partitions"]) if status == 200 else []


def poll_until_up(
    gateway: GatewayProcess, group: str, member: ShareMember, *, within_s: float = 30.0
) -> list[Delivery]:
    """Polls until the group's windows are up, so that each knows its start; returns the records."""
    seen = len(member.deliveries)

    def up() -> bool:
        member.poll(0.2)
        rows = windows_of(gateway, group)
        return bool(rows) and all(row["state"] == "up" for row in rows)

    wait_until(up, what=f"the windows of {group} up", deadline_s=within_s)
    return member.deliveries[seen:]


def metrics(gateway: GatewayProcess) -> dict[str, float]:
    """Every sample of a scrape, by its name and labels as they are written."""
    with urllib.request.urlopen(f"http://{gateway.admin}/metrics", timeout=120) as answer:
        lines = answer.read().decode().splitlines()
    samples = (line.rpartition(" ") for line in lines if not line.startswith("#"))
    return {name: float(value) for name, _, value in samples}


def keyway(gateway: GatewayProcess, *arguments: str) -> tuple[int, str, str]:
    """Runs the command against the node: exit status, standard output, standard error."""
    admin = ("--admin", f"http://{gateway.admin}")
    finished = ran([*arguments, *admin], timeout_s=COMMAND_S_MAX)
    return finished.returncode, finished.stdout, finished.stderr


def members_of(gateway: GatewayProcess, group: str) -> dict[str, str]:
    """Member id by client id; {} while the node knows no such group."""
    status, answer = rest(gateway, f"/v1/groups/{urllib.parse.quote(group, safe='')}")
    rows = answer["memberships"] if status == 200 else []
    return {row["client_id"]: row["member_id"] for row in rows}


def keys_of(members: Mapping[str, str], client_id: str, count: int) -> list[bytes]:
    """Keys that the ring gives to this one of `members_of`."""
    clients, router = _ring(members)
    wanted = clients.index(client_id)
    numbered = map(b"key-%d".__mod__, itertools.count())
    found = (key for key in numbered if int(router.owner_of(key, 0)) == wanted)
    return list(itertools.islice(found, count))


def owner_of(members: Mapping[str, str], key: bytes) -> str:
    """Client id of the one of `members_of` that the ring gives this key to."""
    clients, router = _ring(members)
    return clients[int(router.owner_of(key, 0))]


def _ring(members: Mapping[str, str]) -> tuple[list[str], Router]:
    clients = sorted(members)
    return clients, Router(tuple(Member(MemberId(members[client])) for client in clients))
