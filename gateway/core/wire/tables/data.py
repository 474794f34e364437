"""Records and offsets in the log: Produce, Fetch, ListOffsets, OffsetForLeaderEpoch, DeleteRecords,
InitProducerId. Grammar: gateway/core/wire/schema.py. Source: Kafka 4.3.1's message definitions.

Produce starts at 3: versions 0-2 are gone since Kafka 4.0, though brokers still advertise 0
(KAFKA-18659). InitProducerId 6 is unstable in 4.3.1 and not advertised by default.
"""

from __future__ import annotations

from typing import Final

TABLES: Final = """\
Produce request
  TransactionalId string? =null
  Acks i16
  TimeoutMs i32
  TopicData []
    Name string 3-12
    TopicId uuid 13+
    PartitionData []
      Index i32
      Records records? =null
Produce response
  Responses []
    Name string 3-12
    TopicId uuid 13+
    PartitionResponses []
      Index i32
      ErrorCode i16
      BaseOffset i64
      LogAppendTimeMs i64 =-1
      LogStartOffset i64 5+ =-1
      RecordErrors [] 8+
        BatchIndex i32
        BatchIndexErrorMessage string? =null
      ErrorMessage string? 8+ =null
      CurrentLeader {} 10+ #0
        LeaderId i32 =-1
        LeaderEpoch i32 =-1
  ThrottleTimeMs i32
  NodeEndpoints [] 10+ #0
    NodeId i32
    Host string
    Port i32
    Rack string? =null

Fetch request
  ClusterId string? 12+ #0 =null
  ReplicaId i32 4-14 =-1
  ReplicaState {} 15+ #1
    ReplicaId i32 =-1
    ReplicaEpoch i64 =-1
  MaxWaitMs i32
  MinBytes i32
  MaxBytes i32 =2147483647
  IsolationLevel i8
  SessionId i32 7+
  SessionEpoch i32 7+ =-1
  Topics []
    Topic string 4-12
    TopicId uuid 13+
    Partitions []
      Partition i32
      CurrentLeaderEpoch i32 9+ =-1
      FetchOffset i64
      LastFetchedEpoch i32 12+ =-1
      LogStartOffset i64 5+ =-1
      PartitionMaxBytes i32
      ReplicaDirectoryId uuid 17+ #0
      HighWatermark i64 18+ #1 =9223372036854775807
  ForgottenTopicsData [] 7+
    Topic string 7-12
    TopicId uuid 13+
    Partitions []i32
  RackId string 11+
Fetch response
  ThrottleTimeMs i32
  ErrorCode i16 7+
  SessionId i32 7+
  Responses []
    Topic string 4-12
    TopicId uuid 13+
    Partitions []
      PartitionIndex i32
      ErrorCode i16
      HighWatermark i64
      LastStableOffset i64 =-1
      LogStartOffset i64 5+ =-1
      DivergingEpoch {} 12+ #0
        Epoch i32 =-1
        EndOffset i64 =-1
      CurrentLeader {} 12+ #1
        LeaderId i32 =-1
        LeaderEpoch i32 =-1
      SnapshotId {} 12+ #2
        EndOffset i64 =-1
        Epoch i32 =-1
      AbortedTransactions []?
        ProducerId i64
        FirstOffset i64
      PreferredReadReplica i32 11+ =-1
      Records records? =null
  NodeEndpoints [] 16+ #0
    NodeId i32
    Host string
    Port i32
    Rack string? =null

ListOffsets request
  ReplicaId i32
  IsolationLevel i8 2+
  Topics []
    Name string
    Partitions []
      PartitionIndex i32
      CurrentLeaderEpoch i32 4+ =-1
      Timestamp i64
  TimeoutMs i32 10+
ListOffsets response
  ThrottleTimeMs i32 2+
  Topics []
    Name string
    Partitions []
      PartitionIndex i32
      ErrorCode i16
      Timestamp i64 =-1
      Offset i64 =-1
      LeaderEpoch i32 4+ =-1

OffsetForLeaderEpoch request
  ReplicaId i32 3+ =-2
  Topics []
    Topic string
    Partitions []
      Partition i32
      CurrentLeaderEpoch i32 =-1
      LeaderEpoch i32
OffsetForLeaderEpoch response
  ThrottleTimeMs i32
  Topics []
    Topic string
    Partitions []
      ErrorCode i16
      Partition i32
      LeaderEpoch i32 =-1
      EndOffset i64 =-1

DeleteRecords request
  Topics []
    Name string
    Partitions []
      PartitionIndex i32
      Offset i64
  TimeoutMs i32
DeleteRecords response
  ThrottleTimeMs i32
  Topics []
    Name string
    Partitions []
      PartitionIndex i32
      LowWatermark i64
      ErrorCode i16

InitProducerId request
  TransactionalId string?
  TransactionTimeoutMs i32
  ProducerId i64 3+ =-1
  ProducerEpoch i16 3+ =-1
  Enable2Pc bool 6+
  KeepPreparedTxn bool 6+
InitProducerId response
  ThrottleTimeMs i32
  ErrorCode i16
  ProducerId i64 =-1
  ProducerEpoch i16
  OngoingTxnProducerId i64 6+ =-1
  OngoingTxnProducerEpoch i16 6+ =-1
"""
