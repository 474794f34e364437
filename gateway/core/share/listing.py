"""One list of groups out of two: upstream's own and the gateway's Key-Shared groups (ListGroups).

Upstream knows a Key-Shared group as an empty classic one, because its offsets are committed there:
each is listed once, as the share group it is. Share groups of upstream itself cannot be reached
through the gateway and are left out.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from gateway.core.wire.schema import Message

SHARE: Final = "share"


def share_row(name: str, state: str) -> Message:
    return {"GroupId": name, "ProtocolType": SHARE, "GroupState": state, "GroupType": SHARE}


def merged(
    upstream: Iterable[Message],
    ours: dict[str, Message],
    hidden: frozenset[str],
    *,
    states: Iterable[str] = (),
    types: Iterable[str] = (),
) -> list[Message]:
    """`ours`: the ones to list, by name; `hidden`: Key-Shared groups this client may not see or
    that another broker lists. Filters as in the request; none = all. Case does not matter, as in
    Kafka.
    """
    rows = [
        row
        for row in upstream
        if row["GroupId"] not in ours
        and row["GroupId"] not in hidden
        and SHARE not in (row["GroupType"].lower(), row["ProtocolType"].lower())
    ]
    rows += [ours[name] for name in sorted(ours)]
    states = {state.lower() for state in states}
    types = {kind.lower() for kind in types}
    return [
        row
        for row in rows
        if (not states or row["GroupState"].lower() in states)
        and (not types or row["GroupType"].lower() in types)
    ]


def may_be_ours(row: Message) -> bool:
    """Whether upstream's row looks like a group whose offsets somebody commits without being a
    member, as the gateway does.
    """
    return not row["ProtocolType"] and row["GroupState"].lower() in ("", "empty")
