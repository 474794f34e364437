"""Cluster and protocol: ApiVersions, Metadata, FindCoordinator, DescribeCluster,
DescribeTopicPartitions, DescribeQuorum; SASL and client telemetry.
Grammar: gateway/core/wire/schema.py. Source: Kafka 4.3.1's message definitions.
"""

from __future__ import annotations

from typing import Final

TABLES: Final = """\
ApiVersions request
  ClientSoftwareName string 3+
  ClientSoftwareVersion string 3+
ApiVersions response
  ErrorCode i16
  ApiKeys []
    ApiKey i16
    MinVersion i16
    MaxVersion i16
  ThrottleTimeMs i32 1+
  SupportedFeatures [] 3+ #0
    Name string
    MinVersion i16
    MaxVersion i16
  FinalizedFeaturesEpoch i64 3+ #1 =-1
  FinalizedFeatures [] 3+ #2
    Name string
    MaxVersionLevel i16
    MinVersionLevel i16
  ZkMigrationReady bool 3+ #3

Metadata request
  Topics []?1+
    TopicId uuid 10+
    Name string?10+
  AllowAutoTopicCreation bool 4+ =true
  IncludeClusterAuthorizedOperations bool 8-10
  IncludeTopicAuthorizedOperations bool 8+
Metadata response
  ThrottleTimeMs i32 3+
  Brokers []
    NodeId i32
    Host string
    Port i32
    Rack string? 1+ =null
  ClusterId string? 2+ =null
  ControllerId i32 1+ =-1
  Topics []
    ErrorCode i16
    Name string?12+
    TopicId uuid 10+
    IsInternal bool 1+
    Partitions []
      ErrorCode i16
      PartitionIndex i32
      LeaderId i32
      LeaderEpoch i32 7+ =-1
      ReplicaNodes []i32
      IsrNodes []i32
      OfflineReplicas []i32 5+
    TopicAuthorizedOperations i32 8+ =-2147483648
  ClusterAuthorizedOperations i32 8-10 =-2147483648
  ErrorCode i16 13+

FindCoordinator request
  Key string 0-3
  KeyType i8 1+
  CoordinatorKeys []string 4+
FindCoordinator response
  ThrottleTimeMs i32 1+
  ErrorCode i16 0-3
  ErrorMessage string? 1-3
  NodeId i32 0-3
  Host string 0-3
  Port i32 0-3
  Coordinators [] 4+
    Key string
    NodeId i32
    Host string
    Port i32
    ErrorCode i16
    ErrorMessage string?

DescribeCluster request
  IncludeClusterAuthorizedOperations bool
  EndpointType i8 1+ =1
  IncludeFencedBrokers bool 2+
DescribeCluster response
  ThrottleTimeMs i32
  ErrorCode i16
  ErrorMessage string? =null
  EndpointType i8 1+ =1
  ClusterId string
  ControllerId i32 =-1
  Brokers []
    BrokerId i32
    Host string
    Port i32
    Rack string? =null
    IsFenced bool 2+
  ClusterAuthorizedOperations i32 =-2147483648

DescribeTopicPartitions request
  Topics []
    Name string
  ResponsePartitionLimit i32 =2000
  Cursor {}? =null
    TopicName string
    PartitionIndex i32
DescribeTopicPartitions response
  ThrottleTimeMs i32
  Topics []
    ErrorCode i16
    Name string?
    TopicId uuid
    IsInternal bool
    Partitions []
      ErrorCode i16
      PartitionIndex i32
      LeaderId i32
      LeaderEpoch i32 =-1
      ReplicaNodes []i32
      IsrNodes []i32
      EligibleLeaderReplicas []i32? =null
      LastKnownElr []i32? =null
      OfflineReplicas []i32
    TopicAuthorizedOperations i32 =-2147483648
  NextCursor {}? =null
    TopicName string
    PartitionIndex i32

DescribeQuorum request
  Topics []
    TopicName string
    Partitions []
      PartitionIndex i32
DescribeQuorum response
  ErrorCode i16
  ErrorMessage string? 2+
  Topics []
    TopicName string
    Partitions []
      PartitionIndex i32
      ErrorCode i16
      ErrorMessage string? 2+
      LeaderId i32
      LeaderEpoch i32
      HighWatermark i64
      CurrentVoters []
        ReplicaId i32
        ReplicaDirectoryId uuid 2+
        LogEndOffset i64
        LastFetchTimestamp i64 1+ =-1
        LastCaughtUpTimestamp i64 1+ =-1
      Observers []
        ReplicaId i32
        ReplicaDirectoryId uuid 2+
        LogEndOffset i64
        LastFetchTimestamp i64 1+ =-1
        LastCaughtUpTimestamp i64 1+ =-1
  Nodes [] 2+
    NodeId i32
    Listeners []
      Name string
      Host string
      Port u16

SaslHandshake request
  Mechanism string
SaslHandshake response
  ErrorCode i16
  Mechanisms []string

SaslAuthenticate request
  AuthBytes bytes
SaslAuthenticate response
  ErrorCode i16
  ErrorMessage string?
  AuthBytes bytes
  SessionLifetimeMs i64 1+

GetTelemetrySubscriptions request
  ClientInstanceId uuid
GetTelemetrySubscriptions response
  ThrottleTimeMs i32
  ErrorCode i16
  ClientInstanceId uuid
  SubscriptionId i32
  AcceptedCompressionTypes []i8
  PushIntervalMs i32
  TelemetryMaxBytes i32
  DeltaTemporality bool
  RequestedMetrics []string

PushTelemetry request
  ClientInstanceId uuid
  SubscriptionId i32
  Terminating bool
  CompressionType i8
  Metrics bytes
PushTelemetry response
  ThrottleTimeMs i32
  ErrorCode i16
"""
