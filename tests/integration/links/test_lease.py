"""One process has the lease of a piece of work; the next one gets it when the first is gone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from gateway.embedded.kafka import KafkaCluster
from keyway.kafka.lease import Lease
from tests.rig.kafka import create_topic
from tests.rig.patience import wait_until

pytestmark = pytest.mark.integration


@pytest.fixture
def lease(kafka: KafkaCluster, fresh_name: Callable[[str], str]) -> Iterator[Callable[[], Lease]]:
    """Each call is another process."""
    name = fresh_name("lease")
    create_topic(kafka.bootstrap_servers, name)
    settings = {"bootstrap.servers": kafka.bootstrap_servers}
    with ExitStack() as stack:

        def ask() -> Lease:
            one = Lease(settings, name, group=name, session_ms=6_000)
            stack.callback(one.release)
            return one

        yield ask


def test_a_second_process_waits_until_the_first_has_ended(lease: Callable[[], Lease]) -> None:
    first, second = lease(), lease()
    wait_until(lambda: first.poll(0.1), what="lease", deadline_s=120)

    def joined() -> bool:
        first.poll(0.05)
        second.poll(0.05)
        return len(first.members()) == 2

    wait_until(joined, what="a second member", deadline_s=120)
    for _ in range(20):
        assert first.poll(0.05)
        assert not second.poll(0.05)
    first.release()
    wait_until(lambda: second.poll(0.1), what="lease of the second", deadline_s=120)


def test_a_process_that_was_frozen_has_lost_it(lease: Callable[[], Lease]) -> None:
    """Kafka may not have noticed yet; it asks anew, as anybody else."""
    first = lease()
    wait_until(lambda: first.poll(0.1), what="lease", deadline_s=120)
    first._polled_s -= 5
    assert not first.poll(0)
    wait_until(lambda: first.poll(0.1), what="lease again", deadline_s=120)
