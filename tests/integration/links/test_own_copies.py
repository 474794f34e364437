"""A target that has copies of a link's records, though the link has no position there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.embedded.kafka import KafkaCluster
from keyway.clusters.core.copies import COPY_HEADER, Copy, Origin, Stood, encode
from keyway.clusters.core.tree import ClusterName, Flags
from keyway.clusters.core.trust import CHECKSUM
from spark.links.own_copies import Fresh, topics_copied_before
from spark.streaming.limits import OWN_COPIES_SCANNED_BACK, OWN_COPIES_SCANNED_MAX
from tests.rig.link_by_hand import TIMESTAMP_MS, A, B, C, LinkByHand
from tests.rig.several_clusters import send
from tests.rig.steady_writes import steady_records

pytestmark = pytest.mark.integration

ID, OTHER_ID = "q7GdPzq4RbC5nTZ0m9Zx-_", "AAGdPzq4RbC5nTZ0m9Zx-_"


@pytest.fixture
def link(kafka: KafkaCluster, tmp_path: Path, fresh_name: Callable[[str], str]) -> LinkByHand:
    return LinkByHand(kafka.bootstrap_servers, tmp_path, fresh_name("own"))


def write(link: LinkByHand, topic: str, *origins: Origin | None) -> None:
    """Records of `b`, each a copy or fresh."""
    link.create(topic, B)
    records = []
    for origin in origins:
        stood = Stood(topic, TIMESTAMP_MS, None, b"v")
        headers = [] if origin is None else [(COPY_HEADER, encode(Copy(Flags(2), origin), stood))]
        records.append({"value": b"v", "timestamp": TIMESTAMP_MS, "headers": headers})
    send(link.front, link.name(B, topic), records)


def found(link: LinkByHand, *topics: str) -> set[str]:
    """`a` has them with the id ID, in librdkafka's alphabet."""
    fresh = ID.replace("-", "+").replace("_", "/")
    names = {link.name(B, topic): topic for topic in topics}
    places = {(name, 0): Fresh(topic, fresh) for name, topic in names.items()}
    told = topics_copied_before(link.side(B), link.link(B).group, A, places, CHECKSUM)
    return {names[name] for name in told}


def test_whose_copies_they_are(link: LinkByHand) -> None:
    """Of a renamed cluster the topic's id tells it; headers of version 1 have none."""
    write(link, "renamed", None, Origin(ClusterName("before"), "renamed", 0, 7, ID), None)
    write(link, "without-id", Origin(A, "without-id", 0, 7))
    write(link, "others", None, Origin(C, "others", 0, 7), Origin(C, "others", 0, 8, OTHER_ID))
    write(link, "an-older-life", Origin(A, "an-older-life", 0, 7, OTHER_ID))
    write(link, "empty")
    topics = ("renamed", "without-id", "others", "an-older-life", "empty")
    assert found(link, *topics) == {"renamed", "without-id"}


def test_where_copies_are_looked_for(link: LinkByHand) -> None:
    """The target's own producers write on while the link is away: behind 300 records of theirs no
    copy was found, and the link copied all once more.
    """
    own, few, many = Origin(A, "any", 0, 7, ID), OWN_COPIES_SCANNED_BACK + 1, 700
    write(link, "at-the-end", *[None] * OWN_COPIES_SCANNED_MAX, own)
    write(link, "at-the-start", own, *[None] * many)
    write(link, "between", *[None] * few, *[own] * many, *[None] * (many - 1))
    write(link, "too-few", *[None] * few, own, *[None] * many)
    topics = ("at-the-end", "at-the-start", "between", "too-few")
    assert found(link, *topics) == {"at-the-end", "at-the-start", "between"}


def test_a_topic_that_is_written_to_all_the_time(link: LinkByHand) -> None:
    """No topic of a link was copied while the target's own producers wrote to one."""
    write(link, "busy", Origin(A, "busy", 0, 7, ID))
    with steady_records(link.front, link.name(B, "busy")) as goes_on:
        assert found(link, "busy") == {"busy"}
        assert goes_on(), "it did not wait for a lull"
