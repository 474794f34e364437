"""Two lists of groups become one, each group once."""

from __future__ import annotations

from gateway.core.share.listing import may_be_ours, merged, share_row

CLASSIC = {
    "GroupId": "plain",
    "ProtocolType": "consumer",
    "GroupState": "Stable",
    "GroupType": "classic",
}
# How upstream sees a Key-Shared group: offsets are committed, and there are no members.
COMMITS = {"GroupId": "ours", "ProtocolType": "", "GroupState": "Empty", "GroupType": "classic"}
FOREIGN = {
    "GroupId": "theirs",
    "ProtocolType": "share",
    "GroupState": "Stable",
    "GroupType": "share",
}
OURS = {"ours": share_row("ours", "Stable"), "new": share_row("new", "Empty")}
ALL = frozenset(OURS)


def names(rows: list[dict[str, str]]) -> list[str]:
    return [row["GroupId"] for row in rows]


def test_each_group_is_listed_once_as_what_it_is() -> None:
    rows = merged([CLASSIC, COMMITS, FOREIGN], OURS, ALL)
    assert names(rows) == ["plain", "new", "ours"]
    assert rows[0] == CLASSIC
    assert {row["GroupType"] for row in rows[1:]} == {"share"}


def test_what_may_not_be_seen_is_not_listed_as_something_else() -> None:
    assert names(merged([CLASSIC, COMMITS], {}, ALL)) == ["plain"]


def test_filters() -> None:
    assert names(merged([], OURS, ALL, types=["Share"])) == ["new", "ours"]
    assert names(merged([COMMITS], OURS, ALL, types=["classic"])) == []
    assert names(merged([COMMITS], OURS, ALL, states=["empty"])) == ["new"]
    assert names(merged([], OURS, ALL, states=["Dead"], types=["share"])) == []
    assert names(merged([CLASSIC, COMMITS], OURS, ALL, states=["stable"])) == ["plain", "ours"]
    assert names(merged([CLASSIC, COMMITS], OURS, ALL, types=["classic"])) == ["plain"]
    assert names(merged([CLASSIC], OURS, ALL, types=["share", "classic"])) == [
        "plain",
        "new",
        "ours",
    ]


def test_rows_of_versions_without_types() -> None:
    old = {"GroupId": "theirs", "ProtocolType": "share", "GroupState": "", "GroupType": ""}
    assert names(merged([old], OURS, ALL)) == ["new", "ours"]


def test_what_may_be_ours() -> None:
    assert may_be_ours(COMMITS)
    assert may_be_ours({**COMMITS, "GroupState": "", "GroupType": ""}), "older versions say less"
    assert not may_be_ours(CLASSIC)
    assert not may_be_ours({**COMMITS, "GroupState": "Stable"})
