"""The only broker of a target is killed and comes back without the end of a log, as after a loss of
power, and a link fills it up before the service looks again.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from gateway.embedded.kafka import KafkaCluster
from offsets.commands import plan
from offsets.core.limits import SEGMENT_RECORDS
from offsets.core.plan import Mode, Refusal
from offsets.options import Options
from tests.integration.offsets.conftest import Addresses
from tests.rig.kafka import QUICK_TURNS, create_topic
from tests.rig.lost_tails import lose_tail_of
from tests.rig.offset_clusters import (
    PlainLink,
    Services,
    commit,
    committed,
    produce_at,
    values,
    write_config,
)

pytestmark = [pytest.mark.deep, pytest.mark.integration]

# An index that comes from its file finds lost records by whole segments alone.
COPIED = SEGMENT_RECORDS
KEPT, ALL, NEXT = COPIED * 2 // 5, COPIED * 11 // 5, COPIED // 10


@pytest.mark.parametrize("restarted", [False, True], ids=["at-work", "restarted"])
def test_copies_that_took_the_places_of_lost_ones_are_known(
    pair: Addresses, fresh_name: Callable[[str], str], tmp_path: Path, *, restarted: bool
) -> None:
    """What stands at an offset now is another record than the index had there. Groups that came to
    the lost ones were put behind those that took their places, and never got them.
    """
    topic, before, group = (fresh_name(name) for name in ("topic", "before", "group"))
    with KafkaCluster(1, share_groups=False, properties=QUICK_TURNS) as kafka:
        for address in (pair["A"], kafka.bootstrap_servers):
            create_topic(address, topic)
        produce_at(pair["A"], topic, values(0, COPIED))
        with closing(PlainLink(("A", pair["A"]), kafka.bootstrap_servers)) as link:
            assert link.copy(topic, records_max=KEPT) == KEPT
            assert link.copy(topic) == COPIED - KEPT
        addresses = {"A": pair["A"], "B": kafka.bootstrap_servers}
        path = write_config(tmp_path, addresses, refresh_ms=600_000)
        services = Services.of(path)
        try:
            commit(pair["A"], before, topic, 5)
            services.until_applied("B", before, topic)
            if restarted:
                services.close()
            lose_tail_of(kafka, topic, KEPT)
            produce_at(pair["A"], topic, values(COPIED, ALL - COPIED))
            with closing(PlainLink(("A", pair["A"]), kafka.bootstrap_servers)) as link:
                link.skip(topic, 0, COPIED)
                assert link.copy(topic) == ALL - COPIED
            if restarted:
                services = Services.of(path)
            commit(pair["A"], group, topic, COPIED + NEXT)
            services.until(partial(services.decided, "B", group, topic), what="decided")
            services.until_applied("B", group, topic)
            here = committed(services.config, "B", group)[topic, 0].offset
            assert here == KEPT + NEXT, "the record behind it is the one that comes next"
        finally:
            services.close()


@pytest.mark.parametrize("restarted", [False, True], ids=["at-work", "restarted"])
def test_records_that_an_origin_got_in_place_of_lost_ones_were_not_processed(
    pair: Addresses, fresh_name: Callable[[str], str], tmp_path: Path, *, restarted: bool
) -> None:
    """Groups worked on B on copies of A's records; A lost some of them, and got others there. Those
    counted as processed, and a group that came back to A never got them.
    """
    topic, moved, group = (fresh_name(name) for name in ("topic", "moved", "group"))
    with KafkaCluster(1, share_groups=False, properties=QUICK_TURNS) as kafka:
        addresses = {"A": kafka.bootstrap_servers, "B": pair["B"]}
        for address in addresses.values():
            create_topic(address, topic)
        produce_at(addresses["A"], topic, values(0, KEPT))
        produce_at(addresses["A"], topic, values(KEPT, COPIED - KEPT))
        with closing(PlainLink(("A", addresses["A"]), pair["B"])) as link:
            assert link.copy(topic) == COPIED
        path = write_config(tmp_path, addresses, refresh_ms=600_000)
        services = Services.of(path)
        try:
            commit(pair["B"], moved, topic, COPIED)
            services.until_applied("A", moved, topic)
            if restarted:
                services.close()
            lose_tail_of(kafka, topic, KEPT)
            produce_at(addresses["A"], topic, values(COPIED, ALL - COPIED))
            if restarted:
                services = Services.of(path)
            commit(pair["B"], group, topic, COPIED)
            services.until(partial(services.decided, "A", group, topic), what="decided")
            services.until_applied("A", group, topic)
            here = committed(services.config, "A", group)[topic, 0].offset
            assert here == KEPT, "the first record that A got in place of a lost one"
            commit(pair["B"], moved, topic, COPIED)
            services.until(lambda: services.row("A", moved, topic).new == KEPT, what="seen")
            assert services.row("A", moved, topic).refusals == (Refusal.TARGET_AHEAD,)
            (row,) = plan(services.config, group, "A", Options(Mode.AUTO))
            assert row.new == KEPT, "a command knows it, too"
        finally:
            services.close()
