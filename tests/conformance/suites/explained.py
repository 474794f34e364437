"""Differences that are known, and their reasons: a row of the published page each."""

from __future__ import annotations

from tests.conformance.suites.compared import Explained

_OF_CONFLUENT = {
    "whole_batch_exceeding_max_poll_records": "Kafka may give a whole batch to a client that asks"
    " for fewer records; Keyway never gives more than `max.poll.records`",
    "read_uncommitted_delivers_uncommitted_records": "a Key-Shared group reads committed records"
    " unless `isolation_level` or Kafka's `share.isolation.level` says otherwise",
    "partition_max_record_locks_caps_in_flight": "Kafka gives more in one poll than"
    " `share.partition.max.record.locks` allows; Keyway does not",
}
EXPLAINED = (
    Explained(
        "aiokafka",
        "*::test_delete_topics",
        "it asks any of three brokers whether the topic is gone, at once: one that has not heard of"
        " it yet still names it, with Keyway and without",
    ),
    Explained(
        "aiokafka",
        "*::test_*concurrent_send_on_*connection*",
        "it asks one of three brokers, at random, for a partition that another one may lead: with"
        " Keyway and without",
    ),
    *(
        Explained("confluent-kafka-python", f"*::test_*{name}", reason)
        for name, reason in _OF_CONFLUENT.items()
    ),
    Explained(
        "kafka-python",
        "*::test_alter_replica_log_dirs",
        "it asks one broker of three for a topic's only replica: two in three times that is on"
        " another broker, with Keyway and without",
    ),
    Explained(
        "librdkafka",
        "0041_fetch_max_bytes",
        "500 MB have to pass within 60 s: on a busy machine it fails with Keyway and without",
    ),
)
