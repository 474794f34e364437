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
    *(
        Explained("confluent-kafka-python", f"*::test_*{name}", reason)
        for name, reason in _OF_CONFLUENT.items()
    ),
    Explained(
        "librdkafka",
        "0041_fetch_max_bytes",
        "500 MB have to pass within 60 s: on a busy machine it fails with Keyway and without",
    ),
)
