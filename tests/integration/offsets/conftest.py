"""Three real Kafkas, A, B and C, for the module's tests; topics and groups have fresh names."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing

import pytest

from gateway.embedded.kafka import KafkaCluster
from tests.rig.kafka import NEVER_KILLED, QUICK_TURNS, create_topic
from tests.rig.offset_clusters import PlainLink, produce_at, values

Addresses = dict[str, str]


@pytest.fixture(scope="package")  # not longer: idle ones take their share of the cores
def two_kafkas() -> Iterator[Addresses]:
    """The addresses of A and B."""
    properties = QUICK_TURNS | NEVER_KILLED
    with ExitStack() as stack:
        kafkas = [stack.enter_context(KafkaCluster(1, properties=properties)) for _ in "AB"]
        yield {name: kafka.bootstrap_servers for name, kafka in zip("AB", kafkas, strict=True)}


@pytest.fixture(scope="package")
def pair(two_kafkas: Addresses) -> Addresses:
    return two_kafkas


@pytest.fixture
def both(pair: Addresses, fresh_name: Callable[[str], str]) -> Callable[..., str]:
    """Creates a topic on A and B, and returns its name; `on_b`: B's own partitions and config."""

    def create(
        partitions: int = 1,
        config: Mapping[str, str] | None = None,
        *,
        on_b: tuple[int, Mapping[str, str] | None] | None = None,
    ) -> str:
        name = fresh_name("topic")
        create_topic(pair["A"], name, partitions=partitions, config=config)
        there, there_config = on_b or (partitions, config)
        create_topic(pair["B"], name, partitions=there, config=there_config)
        return name

    return create


@pytest.fixture
def copied(pair: Addresses, both: Callable[..., str]) -> Iterator[Callable[[int], str]]:
    """Creates a topic on A and B with so many records of A, and returns its name."""
    with closing(PlainLink(("A", pair["A"]), pair["B"])) as link:

        def create(count: int) -> str:
            topic = both()
            produce_at(pair["A"], topic, values(0, count))
            link.copy(topic)
            return topic

        yield create
