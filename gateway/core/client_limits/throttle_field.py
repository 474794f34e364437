"""Where ThrottleTimeMs of a response stands, and a longer time written there.

Nearly all responses have it right behind their head, Produce as its last field. In the others
(ApiVersions, delegation tokens, OffsetDelete), in a Produce response that names a new leader, and
where the field is cut off by the end of a read, the wait is not told: muting alone holds the rate.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

_PRODUCE: Final = 0
_HEAD_BYTES: Final = 8  # size, correlation id
_THROTTLE = Struct(">i")  # ms
THROTTLE_BYTES: Final = 4

# API: the first version with the field, the first flexible one (its head ends with tagged fields).
# Source: the message definitions of kafka-clients 4.3.1.
_NEVER: Final = 127
_BEHIND_HEAD: Final[dict[int, tuple[int, int]]] = {
    1: (1, 12),  # Fetch
    2: (2, 6),  # ListOffsets
    3: (3, 9),  # Metadata
    8: (3, 8),  # OffsetCommit
    9: (3, 6),  # OffsetFetch
    10: (1, 3),  # FindCoordinator
    11: (2, 6),  # JoinGroup
    12: (1, 4),  # Heartbeat
    13: (1, 4),  # LeaveGroup
    14: (1, 4),  # SyncGroup
    15: (1, 5),  # DescribeGroups
    16: (1, 3),  # ListGroups
    19: (2, 5),  # CreateTopics
    20: (1, 4),  # DeleteTopics
    21: (0, 2),  # DeleteRecords
    22: (0, 2),  # InitProducerId
    23: (2, 4),  # OffsetForLeaderEpoch
    24: (0, 3),  # AddPartitionsToTxn
    25: (0, 3),  # AddOffsetsToTxn
    26: (0, 3),  # EndTxn
    28: (0, 3),  # TxnOffsetCommit
    29: (0, 2),  # DescribeAcls
    30: (0, 2),  # CreateAcls
    31: (0, 2),  # DeleteAcls
    32: (0, 4),  # DescribeConfigs
    33: (0, 2),  # AlterConfigs
    34: (0, 2),  # AlterReplicaLogDirs
    35: (0, 2),  # DescribeLogDirs
    37: (0, 2),  # CreatePartitions
    42: (0, 2),  # DeleteGroups
    43: (0, 2),  # ElectLeaders
    44: (0, 1),  # IncrementalAlterConfigs
    45: (0, 0),  # AlterPartitionReassignments
    46: (0, 0),  # ListPartitionReassignments
    48: (0, 1),  # DescribeClientQuotas
    49: (0, 1),  # AlterClientQuotas
    50: (0, 0),  # DescribeUserScramCredentials
    51: (0, 0),  # AlterUserScramCredentials
    57: (0, 0),  # UpdateFeatures
    60: (0, 0),  # DescribeCluster
    61: (0, 0),  # DescribeProducers
    64: (0, 0),  # UnregisterBroker
    65: (0, 0),  # DescribeTransactions
    66: (0, 0),  # ListTransactions
    68: (0, 0),  # ConsumerGroupHeartbeat
    69: (0, 0),  # ConsumerGroupDescribe
    71: (0, 0),  # GetTelemetrySubscriptions
    72: (0, 0),  # PushTelemetry
    74: (0, 0),  # ListConfigResources
    75: (0, 0),  # DescribeTopicPartitions
    76: (0, 0),  # ShareGroupHeartbeat
    77: (0, 0),  # ShareGroupDescribe
    78: (0, 0),  # ShareFetch
    79: (0, 0),  # ShareAcknowledge
    88: (0, 0),  # StreamsGroupHeartbeat
    89: (0, 0),  # StreamsGroupDescribe
    90: (0, 0),  # DescribeShareGroupOffsets
    91: (0, 0),  # AlterShareGroupOffsets
    92: (0, 0),  # DeleteShareGroupOffsets
}
_PRODUCE_FLEXIBLE_FROM: Final = 9


def throttle_at(api_key: int, version: int, data: bytes, start: int, end: int) -> int:
    """Where the field of the response data[start:end] stands, its size prefix included; -1: it has
    none, or not all of it is in `data`.
    """
    if api_key == _PRODUCE:
        at = end - _THROTTLE.size
        if version >= _PRODUCE_FLEXIBLE_FROM:
            if end > len(data) or data[end - 1]:
                return -1
            at -= 1
        floor = start + _HEAD_BYTES if version else end
    else:
        throttle_from, flexible_from = _BEHIND_HEAD.get(api_key, (_NEVER, _NEVER))
        at = floor = start + _HEAD_BYTES
        if version < throttle_from:
            return -1
        if version >= flexible_from:
            if at >= len(data) or data[at]:
                return -1  # no broker has tagged fields there yet
            at += 1
    return at if floor <= at and at + _THROTTLE.size <= min(end, len(data)) else -1


def throttle_of(data: bytes, at: int) -> int:
    """The throttle time of an answer, in ms."""
    throttle_ms: int = _THROTTLE.unpack_from(data, at)[0]
    return throttle_ms


def throttled(data: bytes, at: int, throttle_ms: int) -> bytes:
    """`data` with this time at `at`, unless it has a longer one there."""
    longest_ms = max(throttle_of(data, at), throttle_ms)
    return b"".join((data[:at], _THROTTLE.pack(longest_ms), data[at + _THROTTLE.size :]))
