"""The keys of a member: rules first, then the declaration in its client.id."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import Any, cast

import pytest
from pydantic import ValidationError
from redis.asyncio import Redis

from gateway.config.file import Config
from gateway.config.groups import FilterRule, GroupSection
from gateway.core.limits import (
    FILTER_GLOB_BYTES_MAX,
    FILTER_GLOBS_MAX,
    FILTER_RULES_MAX,
    FILTER_SET_BYTES_MAX,
)
from gateway.members import key_filters
from gateway.members.key_filters import InvalidRules, KeyFilters, parse_rules, rule_rows
from gateway.members.redis_table import RedisTable
from tests.rig.virtual_time import run, settle

CONFIG = Config(
    groups=(
        GroupSection(
            match="ruled",
            filters=(
                FilterRule(client_id="eu-*", keys=("eu-*", "at")),
                FilterRule(client_id="exact", keys=("x",)),
            ),
        ),
    )
)

OLD = (FilterRule(client_id="*", keys=("old",)),)
NEW = (FilterRule(client_id="*", keys=("new",)),)


def filters() -> KeyFilters:
    # Redis connects when it is asked, and nothing here asks.
    return KeyFilters(CONFIG, Redis(), lambda: 1_000)


@pytest.mark.parametrize(
    ("group", "client_id", "globs"),
    [
        ("free", "eu-1", ()),
        ("free", "eu-1;keys=us-*", (b"us-*",)),
        ("ruled", "eu-1", (b"eu-*", b"at")),
        ("ruled", "eu-1;keys=us-*", (b"eu-*", b"at")),  # the operator's word goes first
        ("ruled", "exact;keys=us-*", (b"x",)),
        ("ruled", "us-1;keys=eu-*", (b"eu-*",)),  # its declaration is not its name
        ("ruled", "us-1", ()),
        ("free", "us-1;keys=", ()),  # a join is refused for this
    ],
)
def test_who_takes_what(group: str, client_id: str, globs: tuple[bytes, ...]) -> None:
    assert filters().of(group, client_id) == globs


def test_rules_are_read_as_they_are_written() -> None:
    rows = [{"client_id": "eu-*", "keys": ["eu-*", "grün?"]}, {"client_id": "*", "keys": ["*"]}]
    assert rule_rows(parse_rules(rows)) == rows
    assert parse_rules([]) == ()


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        (None, "rules: a list is expected"),
        ({}, "rules: "),
        ("rules", "rules: "),
        ([1], "rules.0: an object is expected"),
        ([{}], "rules.0.client_id: is missing"),
        ([{"client_id": "a"}], "rules.0.keys: "),
        ([{"client_id": "a", "keys": ["k"], "more": 1}], "rules.0.more: unknown field"),
        ([{"client_id": "", "keys": ["k"]}], "rules.0.client_id: must not be empty"),
        ([{"client_id": 1, "keys": ["k"]}], "rules.0.client_id: text is expected"),
        ([{"client_id": "a", "keys": []}], "rules.0.keys: must not be empty"),
        ([{"client_id": "a", "keys": "k"}], "rules.0.keys: "),
        ([{"client_id": "a", "keys": [1]}], "rules.0.keys.0: "),
        ([{"client_id": "a", "keys": [""]}], "rules.0.keys: A key filter is empty"),
        ([{"client_id": "a", "keys": ["\ud800"]}], "rules.0.keys"),
        (
            [{"client_id": "a", "keys": ["k"] * (FILTER_GLOBS_MAX + 1)}],
            f"rules.0.keys: {FILTER_GLOBS_MAX + 1} key filters: at most {FILTER_GLOBS_MAX}.",
        ),
        (
            [{"client_id": "a", "keys": ["k" * (FILTER_GLOB_BYTES_MAX + 1)]}],
            f"rules.0.keys: A key filter of {FILTER_GLOB_BYTES_MAX + 1} bytes",
        ),
        ([{"client_id": "a", "keys": ["k"]}] * (FILTER_RULES_MAX + 1), "rules: "),
        (
            [{"client_id": f"a{at}", "keys": [f"*-{at:04}-*"]} for at in range(100)],
            "rules: The key filters of a group are too many together: ",
        ),
        (
            [{"client_id": "a" * FILTER_SET_BYTES_MAX, "keys": ["k"]}],
            f"rules: {FILTER_SET_BYTES_MAX + 1} bytes of client ids and keys",
        ),
    ],
)
def test_rules_that_are_refused(rows: Any, says: str) -> None:
    with pytest.raises(InvalidRules, match=f"^{re.escape(says)}"):
        parse_rules(rows)
    if isinstance(rows, list) and says != "rules.0.keys":  # YAML has no half characters
        with pytest.raises(ValidationError):
            GroupSection.model_validate({"filters": rows})


class SlowTable:
    """Reads and removes at once, and answers late."""

    def __init__(self) -> None:
        self.rows: dict[str, tuple[FilterRule, ...]] = {"g": OLD}
        self.answers = asyncio.Event()

    async def load(self) -> dict[str, tuple[FilterRule, ...]]:
        rows = dict(self.rows)
        await self.answers.wait()
        return rows

    async def write(
        self, rows: dict[str, tuple[FilterRule, ...]], gone: Sequence[str] = ()
    ) -> None:
        self.rows |= rows
        for group in gone:
            self.rows.pop(group, None)
            await self.answers.wait()


class Unheard:
    async def tell_filters(self) -> None: ...


class Versions:
    """Nothing is kept."""

    async def load(self) -> dict[str, int]:
        return {}

    async def write(self, *_: object) -> None: ...


@pytest.mark.parametrize("first", ["load", "remove"])
def test_rules_that_are_set_meanwhile_are_the_same_here_and_in_redis(first: str) -> None:
    async def work() -> None:
        filter_table, table = filters(), SlowTable()
        filter_table._table = cast("RedisTable[Any]", table)
        filter_table._version_table = cast("RedisTable[int]", Versions())
        filter_table._log = cast(Any, Unheard())
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(filter_table.load() if first == "load" else filter_table.remove("g"))
            await settle()
            tasks.create_task(filter_table.put("g", NEW))
            await settle()
            table.answers.set()
        assert filter_table.rules("g").rules == table.rows["g"] == NEW

    run(work())


def test_filters_are_worked_out_once_until_the_rules_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A join asks for the filters of all members."""
    worked_out: list[str] = []
    of_rules = KeyFilters.of_rules

    def counted(self: KeyFilters, rules: Any, group: str, client_id: str) -> tuple[bytes, ...]:
        worked_out.append(client_id)
        return of_rules(self, rules, group, client_id)

    monkeypatch.setattr(KeyFilters, "of_rules", counted)
    filters = KeyFilters(CONFIG, cast(Redis, None), lambda: 0)
    for _ in range(3):
        assert filters.of("ruled", "eu-1") == (b"eu-*", b"at")
        assert filters.of("other", "eu-1") == ()
    assert worked_out == ["eu-1", "eu-1"], "once for each group"
    filters.reload(Config(groups=(GroupSection(match="ruled", filters=NEW),)))
    assert filters.of("ruled", "eu-1") == (b"new",)


def test_what_is_remembered_of_filters_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that may name groups, and joins none, makes up as many as it likes. The oldest go;
    a group of many members, whose filters each join asks for, finds those of the others.
    """
    monkeypatch.setattr(key_filters, "FILTERS_REMEMBERED_BYTES", 1_700)
    filters = KeyFilters(CONFIG, cast(Redis, None), lambda: 0)
    for at in range(10):
        assert filters.of(f"group-{at}", f"client-{at}") == ()
        assert filters.of("ruled", f"eu-{at}") == (b"eu-*", b"at")
    assert (
        list(filters._known)
        == [
            *(("ruled", "eu-7"), ("group-8", "client-8")),
            *(("ruled", "eu-8"), ("group-9", "client-9"), ("ruled", "eu-9")),
        ][-4:]
    )
    filters.reload(Config())
    for _ in range(10):
        filters.of("ruled", "eu-9")
    assert filters._known_bytes == sum(known.bytes for known in filters._known.values())
