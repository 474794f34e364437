"""Share groups (KIP-932, 1206, 1222): the APIs of stock share consumers and their admin tools.
Grammar: gateway/core/wire/schema.py. Source: Kafka 4.3.1's message definitions.

Version 0 of 76-79 was Kafka 4.0's early access and is gone.
"""

from __future__ import annotations

from typing import Final

TABLES: Final = """\
ShareGroupHeartbeat request
  GroupId string
  MemberId string
  MemberEpoch i32
  RackId string? =null
  SubscribedTopicNames []string? =null
ShareGroupHeartbeat response
  ThrottleTimeMs i32
  ErrorCode i16
  ErrorMessage string? =null
  MemberId string? =null
  MemberEpoch i32
  HeartbeatIntervalMs i32
  Assignment {}? =null
    TopicPartitions []
      TopicId uuid
      Partitions []i32

ShareGroupDescribe request
  GroupIds []string
  IncludeAuthorizedOperations bool
ShareGroupDescribe response
  ThrottleTimeMs i32
  Groups []
    ErrorCode i16
    ErrorMessage string? =null
    GroupId string
    GroupState string
    GroupEpoch i32
    AssignmentEpoch i32
    AssignorName string
    Members []
      MemberId string
      RackId string? =null
      MemberEpoch i32
      ClientId string
      ClientHost string
      SubscribedTopicNames []string
      Assignment {}
        TopicPartitions []
          TopicId uuid
          TopicName string
          Partitions []i32
    AuthorizedOperations i32 =-2147483648

ShareFetch request
  GroupId string? =null
  MemberId string?
  ShareSessionEpoch i32
  MaxWaitMs i32
  MinBytes i32
  MaxBytes i32 =2147483647
  MaxRecords i32
  BatchSize i32
  ShareAcquireMode i8 2+
  IsRenewAck bool 2+
  Topics []
    TopicId uuid
    Partitions []
      PartitionIndex i32
      AcknowledgementBatches ackbatches
  ForgottenTopicsData []
    TopicId uuid
    Partitions []i32
ShareFetch response
  ThrottleTimeMs i32
  ErrorCode i16
  ErrorMessage string? =null
  AcquisitionLockTimeoutMs i32
  Responses []
    TopicId uuid
    Partitions []
      PartitionIndex i32
      ErrorCode i16
      ErrorMessage string? =null
      AcknowledgeErrorCode i16
      AcknowledgeErrorMessage string? =null
      CurrentLeader {}
        LeaderId i32
        LeaderEpoch i32
      Records records
      AcquiredRecords acquired
  NodeEndpoints []
    NodeId i32
    Host string
    Port i32
    Rack string? =null

ShareAcknowledge request
  GroupId string? =null
  MemberId string?
  ShareSessionEpoch i32
  IsRenewAck bool 2+
  Topics []
    TopicId uuid
    Partitions []
      PartitionIndex i32
      AcknowledgementBatches ackbatches
ShareAcknowledge response
  ThrottleTimeMs i32
  ErrorCode i16
  ErrorMessage string? =null
  AcquisitionLockTimeoutMs i32 2+
  Responses []
    TopicId uuid
    Partitions []
      PartitionIndex i32
      ErrorCode i16
      ErrorMessage string? =null
      CurrentLeader {}
        LeaderId i32
        LeaderEpoch i32
  NodeEndpoints []
    NodeId i32
    Host string
    Port i32
    Rack string? =null

DescribeShareGroupOffsets request
  Groups []
    GroupId string
    Topics []?
      TopicName string
      Partitions []i32
DescribeShareGroupOffsets response
  ThrottleTimeMs i32
  Groups []
    GroupId string
    Topics []
      TopicName string
      TopicId uuid
      Partitions []
        PartitionIndex i32
        StartOffset i64
        LeaderEpoch i32
        Lag i64 1+ =-1
        ErrorCode i16
        ErrorMessage string? =null
    ErrorCode i16
    ErrorMessage string? =null

AlterShareGroupOffsets request
  GroupId string
  Topics []
    TopicName string
    Partitions []
      PartitionIndex i32
      StartOffset i64
AlterShareGroupOffsets response
  ThrottleTimeMs i32
  ErrorCode i16
  ErrorMessage string? =null
  Responses []
    TopicName string
    TopicId uuid
    Partitions []
      PartitionIndex i32
      ErrorCode i16
      ErrorMessage string? =null

DeleteShareGroupOffsets request
  GroupId string
  Topics []
    TopicName string
DeleteShareGroupOffsets response
  ThrottleTimeMs i32
  ErrorCode i16
  ErrorMessage string? =null
  Responses []
    TopicName string
    TopicId uuid
    ErrorCode i16
    ErrorMessage string? =null
"""
