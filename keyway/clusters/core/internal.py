"""Names that belong to Kafka and its tools, Keyway among them, and to no application: they never
follow to another cluster, or not unless the configuration says so.
"""

from __future__ import annotations

from typing import Final

# Topics in which Keyway keeps state, one of each on every cluster. A copy on another cluster would
# stand there as that cluster's own state.
OFFSETS_TOPIC: Final = "_keyway-offsets"
DISTRIBUTION_TOPIC: Final = "_keyway-distribution"
SCHEMAS_TOPIC: Final = "_keyway-schemas"

# Compaction leaves the last segment alone, and Kafka's are 1 GB and a week long: with that, a start
# would have to read all that was written in days.
STATE_TOPIC_CONFIG: Final = {
    "cleanup.policy": "compact",
    "segment.bytes": str(16 * 1024 * 1024),
    "segment.ms": "600000",
    "min.cleanable.dirty.ratio": "0.2",
}

# Groups of Keyway and of Spark's source: their positions mean nothing on another cluster.
OWN_GROUPS: Final = ("keyway-", "spark-kafka-source-", "__")

# Topics that Kafka Streams (also of foreign-key joins, which have suffixes of their own), Connect,
# MirrorMaker 2, Apicurio and Strimzi's Cruise Control make for themselves on each cluster. The two
# with MirrorMaker 2's endings stand in its own `topics.exclude`, too.
TOPICS_EXCLUDED: Final = (
    "*-changelog",
    "*-repartition",
    "*-KTABLE-FK-JOIN-SUBSCRIPTION-*-topic",
    "*-subscription-registration-topic",
    "*-subscription-response-topic",
    "*connect*[-_.]configs",
    "*connect*[-_.]offsets",
    "*connect*[-_.]status",
    "*connect*[-_.]statuses",
    "*[-.]internal",
    "*.replica",
    "kafkasql-journal",
    "kafkasql-snapshots",
    "strimzi.cruisecontrol.*",
)


def is_internal(name: str) -> bool:
    """Names that begin with `_` belong to Kafka and its tools and are the same everywhere."""
    return name.startswith("_")
