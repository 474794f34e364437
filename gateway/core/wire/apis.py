"""Kafka's APIs: versions, header versions, and the schemas of those we decode.

Source: kafka-clients 4.3.1 (`ApiKeys`, `ApiMessageType`). To decode one more API, add its request
and response to a file of `tables/`: everything else follows from there.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from gateway.core.wire.errors import UnknownApi
from gateway.core.wire.schema import Field, Schema, Versions, parse_tables, parse_versions
from gateway.core.wire.tables import admin, cluster, data, groups, share


class ApiKey(IntEnum):
    """`org.apache.kafka.common.protocol.ApiKeys`, by its names; 4 to 7 have no version any more."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    LEADER_AND_ISR = 4
    STOP_REPLICA = 5
    UPDATE_METADATA = 6
    CONTROLLED_SHUTDOWN = 7
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    VOTE = 52
    BEGIN_QUORUM_EPOCH = 53
    END_QUORUM_EPOCH = 54
    DESCRIBE_QUORUM = 55
    ALTER_PARTITION = 56
    UPDATE_FEATURES = 57
    ENVELOPE = 58
    FETCH_SNAPSHOT = 59
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    BROKER_REGISTRATION = 62
    BROKER_HEARTBEAT = 63
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    ALLOCATE_PRODUCER_IDS = 67
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    CONTROLLER_REGISTRATION = 70
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    ASSIGN_REPLICAS_TO_DIRS = 73
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    ADD_RAFT_VOTER = 80
    REMOVE_RAFT_VOTER = 81
    UPDATE_RAFT_VOTER = 82
    INITIALIZE_SHARE_GROUP_STATE = 83
    READ_SHARE_GROUP_STATE = 84
    WRITE_SHARE_GROUP_STATE = 85
    DELETE_SHARE_GROUP_STATE = 86
    READ_SHARE_GROUP_STATE_SUMMARY = 87
    STREAMS_GROUP_HEARTBEAT = 88
    STREAMS_GROUP_DESCRIBE = 89
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92


# key, name, versions, first flexible version. internal: between brokers and controllers only.
_KNOWN: Final = """\
0 Produce 3-13 9+
1 Fetch 4-18 12+
2 ListOffsets 1-11 6+
3 Metadata 0-13 9+
8 OffsetCommit 2-10 8+
9 OffsetFetch 1-10 6+
10 FindCoordinator 0-6 3+
11 JoinGroup 0-9 6+
12 Heartbeat 0-4 4+
13 LeaveGroup 0-5 4+
14 SyncGroup 0-5 4+
15 DescribeGroups 0-6 5+
16 ListGroups 0-5 3+
17 SaslHandshake 0-1 -
18 ApiVersions 0-4 3+
19 CreateTopics 2-7 5+
20 DeleteTopics 1-6 4+
21 DeleteRecords 0-2 2+
22 InitProducerId 0-6 2+
23 OffsetForLeaderEpoch 2-4 4+
24 AddPartitionsToTxn 0-5 3+
25 AddOffsetsToTxn 0-4 3+
26 EndTxn 0-5 3+
27 WriteTxnMarkers 1-2 1+
28 TxnOffsetCommit 0-5 3+
29 DescribeAcls 1-3 2+
30 CreateAcls 1-3 2+
31 DeleteAcls 1-3 2+
32 DescribeConfigs 1-4 4+
33 AlterConfigs 0-2 2+
34 AlterReplicaLogDirs 1-2 2+
35 DescribeLogDirs 1-5 2+
36 SaslAuthenticate 0-2 2+
37 CreatePartitions 0-3 2+
38 CreateDelegationToken 1-3 2+
39 RenewDelegationToken 1-2 2+
40 ExpireDelegationToken 1-2 2+
41 DescribeDelegationToken 1-3 2+
42 DeleteGroups 0-2 2+
43 ElectLeaders 0-2 2+
44 IncrementalAlterConfigs 0-1 1+
45 AlterPartitionReassignments 0-1 0+
46 ListPartitionReassignments 0 0+
47 OffsetDelete 0 -
48 DescribeClientQuotas 0-1 1+
49 AlterClientQuotas 0-1 1+
50 DescribeUserScramCredentials 0 0+
51 AlterUserScramCredentials 0 0+
52 Vote 0-2 0+ internal
53 BeginQuorumEpoch 0-1 1+ internal
54 EndQuorumEpoch 0-1 1+ internal
55 DescribeQuorum 0-2 0+
56 AlterPartition 2-3 0+ internal
57 UpdateFeatures 0-2 0+
58 Envelope 0 0+ internal
59 FetchSnapshot 0-1 0+ internal
60 DescribeCluster 0-2 0+
61 DescribeProducers 0 0+
62 BrokerRegistration 0-4 0+ internal
63 BrokerHeartbeat 0-2 0+ internal
64 UnregisterBroker 0 0+
65 DescribeTransactions 0 0+
66 ListTransactions 0-2 0+
67 AllocateProducerIds 0 0+ internal
68 ConsumerGroupHeartbeat 0-1 0+
69 ConsumerGroupDescribe 0-1 0+
70 ControllerRegistration 0 0+ internal
71 GetTelemetrySubscriptions 0 0+
72 PushTelemetry 0 0+
73 AssignReplicasToDirs 0 0+ internal
74 ListConfigResources 0-1 0+
75 DescribeTopicPartitions 0 0+
76 ShareGroupHeartbeat 1 0+
77 ShareGroupDescribe 1 0+
78 ShareFetch 1-2 0+
79 ShareAcknowledge 1-2 0+
80 AddRaftVoter 0-1 0+
81 RemoveRaftVoter 0 0+
82 UpdateRaftVoter 0 0+ internal
83 InitializeShareGroupState 0 0+ internal
84 ReadShareGroupState 0 0+ internal
85 WriteShareGroupState 0-1 0+ internal
86 DeleteShareGroupState 0 0+ internal
87 ReadShareGroupStateSummary 0-1 0+ internal
88 StreamsGroupHeartbeat 0 0+
89 StreamsGroupDescribe 0 0+
90 DescribeShareGroupOffsets 0-1 0+
91 AlterShareGroupOffsets 0 0+
92 DeleteShareGroupOffsets 0 0+
"""


@dataclass(frozen=True)
class KnownApi:
    """An API of Kafka 4.3.1, whether or not we decode it."""

    key: int
    name: str  # as in Kafka's message definitions, "ListOffsets"
    min_version: int
    max_version: int
    flexible_from: int | None
    internal: bool


@dataclass(frozen=True)
class Api:
    """An API we decode."""

    key: int
    name: str
    min_version: int
    max_version: int
    flexible_from: int | None
    request: Schema
    response: Schema


def _known_api(line: str) -> KnownApi:
    words = line.split()
    versions = parse_versions(words[2])
    return KnownApi(
        key=int(words[0]),
        name=words[1],
        min_version=versions.first,
        max_version=versions.last,
        flexible_from=None if words[3] == "-" else parse_versions(words[3]).first,
        internal=len(words) > 4,
    )


def _schema(known: KnownApi, what: str, tables: dict[str, list[Field]]) -> Schema:
    name = f"{known.name} {what}"
    versions = Versions(known.min_version, known.max_version)
    return Schema(name, versions, known.flexible_from, tables[name])


def _apis() -> dict[int, Api]:
    tables: dict[str, list[Field]] = {}
    for text in (cluster.TABLES, data.TABLES, groups.TABLES, share.TABLES, admin.TABLES):
        tables.update(parse_tables(text))
    return {
        known.key: Api(
            key=known.key,
            name=known.name,
            min_version=known.min_version,
            max_version=known.max_version,
            flexible_from=known.flexible_from,
            request=_schema(known, "request", tables),
            response=_schema(known, "response", tables),
        )
        for known in KNOWN.values()
        if f"{known.name} request" in tables
    }


KNOWN: Final[dict[int, KnownApi]] = {
    known.key: known for known in (_known_api(line) for line in _KNOWN.splitlines())
}
APIS: Final[dict[int, Api]] = _apis()


_API_VERSIONS: Final = 18  # as a plain number: this is asked for every frame


def _is_flexible(key: int, version: int) -> bool:
    known = KNOWN.get(key)
    if known is None:
        raise UnknownApi(f"API key {key}")
    return known.flexible_from is not None and version >= known.flexible_from


def request_header_version(key: int, version: int) -> int:
    """1 or 2, also for versions newer than we know: flexible stays flexible. Raises UnknownApi."""
    return 2 if _is_flexible(key, version) else 1


def response_header_version(key: int, version: int) -> int:
    """0 or 1. Raises UnknownApi.

    Always 0 for ApiVersions: a client must be able to read the answer of a broker that does not
    know the version it asked with (KIP-511).
    """
    return 1 if _is_flexible(key, version) and key != _API_VERSIONS else 0
