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
from offsets.core.limits import SEGMENT_RECORDS
from tests.integration.offsets.conftest import Addresses
from tests.rig.kafka import QUICK_TURNS, create_topic
from tests.rig.lost_tails import lose_tail
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
            (broker,) = kafka.brokers
            broker.kill()
            lose_tail(broker, topic, KEPT)
            broker.start()
            kafka.wait_ready()
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
