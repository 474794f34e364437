"""A topic deleted and created again on the cluster that a group comes back to."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.integration.offsets.conftest import Addresses
from tests.rig.kafka import create_topic, delete_topic
from tests.rig.offset_clusters import (
    Services,
    commit,
    committed,
    produce_at,
    values,
    write_config,
)

pytestmark = [pytest.mark.deep, pytest.mark.integration]
Copied = Callable[[int], str]
Names = Callable[[str], str]


def test_records_of_the_new_life_are_not_taken_for_those_of_the_old_one(
    pair: Addresses, copied: Copied, fresh_name: Names, tmp_path: Path
) -> None:
    """The service starts after it, so the group's progress alone tells."""
    topic, fast, slow = copied(20), fresh_name("fast"), fresh_name("slow")
    commit(pair["B"], slow, topic, 3)
    commit(pair["B"], fast, topic, 20)
    path = write_config(tmp_path, pair)
    with Services.of(path) as services:
        services.until_applied("A", slow, topic)
        services.until_applied("A", fast, topic)
    delete_topic(pair["A"], topic)
    create_topic(pair["A"], topic)
    produce_at(pair["A"], topic, values(0, 5, name="new"))
    with Services.of(path) as services:
        for group in (slow, fast):
            services.until(partial(services.decided, "A", group, topic), what="decided")
            assert services.row("A", group, topic).new == 0
        produce_at(pair["A"], topic, values(5, 30, name="new"))

        def all_read() -> bool:
            index = services.by_name["A"].partitions.index((topic, 0))
            return index is not None and index.end == 35

        services.until(all_read, what="read")
        services.rounds(20)
        for group in (slow, fast):
            assert services.row("A", group, topic).new == 0
            assert committed(services.config, "A", group)[topic, 0].offset == 0


def test_a_topic_created_anew_and_refilled_between_two_looks(
    pair: Addresses, copied: Copied, fresh_name: Names, tmp_path: Path
) -> None:
    """Its log is longer than the former one when the service looks again: only the id differs. The
    service here does not look at logs by itself during the test.
    """
    topic, group, other = copied(20), fresh_name("group"), fresh_name("other")
    commit(pair["B"], group, topic, 20)
    with Services.of(write_config(tmp_path, pair, refresh_ms=600_000)) as services:
        services.until_applied("A", group, topic)
        delete_topic(pair["A"], topic)
        create_topic(pair["A"], topic)
        produce_at(pair["A"], topic, values(0, 50, name="new"))
        commit(pair["B"], group, topic, 19)
        commit(pair["B"], other, topic, 20)

        def moved() -> bool:
            rows = [services.row("A", name, topic) for name in (group, other)]
            return all(row is not None and row.source_offset in (19, 20) for row in rows)

        services.until(moved, what="looked at")
        services.until(lambda: services.decided("A", other, topic), what="decided")
        services.rounds(5)
        assert services.row("A", other, topic).new == 0
        for name in (group, other):
            assert committed(services.config, "A", name)[topic, 0].offset == 0
