"""Writes to a target's log."""

from __future__ import annotations

import asyncio

import pytest

from keyway.kafka.compacted import Record
from schema_dist.core.contents import Contents
from schema_dist.core.model import GLOBAL, SetCompatibility
from schema_dist.core.records import CompatibilitySet, decode
from schema_dist.log_writer import LogTarget


def test_what_else_stands_in_a_subjects_config_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """A record is the whole config: with the level alone it would delete the target's own alias."""
    target = LogTarget({"bootstrap.servers": "127.0.0.1:1"}, "_schemas", None)
    for at, event in enumerate(
        (
            CompatibilitySet("s", "FULL", '{"alias":"t"}'),
            CompatibilitySet("u", None, '{"normalize":true}'),
            CompatibilitySet("v", "FULL"),
        )
    ):
        target.contents.apply(event, at)
    sent: list[Record] = []

    async def read() -> Contents:
        return target.contents

    monkeypatch.setattr(target._records, "write", sent.extend)
    monkeypatch.setattr(target._reader, "read", read)
    levels = {"s": None, "u": "NONE", "v": None, GLOBAL: "FULL"}
    writes = [SetCompatibility(subject, level) for subject, level in levels.items()]
    assert asyncio.run(target.apply(writes)) == [None] * 4
    assert [decode(key, value) for key, value in sent] == [
        CompatibilitySet("s", None, '{"alias":"t"}'),
        CompatibilitySet("u", "NONE", '{"normalize":true}'),
        CompatibilitySet("v", None),
        CompatibilitySet(GLOBAL, "FULL"),
    ]
    assert [value is None for _, value in sent] == [False, False, True, False]
    target.close()
