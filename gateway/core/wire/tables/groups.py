"""Consumer groups, classic and KIP-848: offsets, listing, membership.
Grammar: gateway/core/wire/schema.py. Source: Kafka 4.3.1's message definitions.
"""

from __future__ import annotations

from typing import Final

TABLES: Final = """\
OffsetCommit request
  GroupId string
  GenerationIdOrMemberEpoch i32 =-1
  MemberId string
  GroupInstanceId string? 7+ =null
  RetentionTimeMs i64 2-4 =-1
  Topics []
    Name string 2-9
    TopicId uuid 10+
    Partitions []
      PartitionIndex i32
      CommittedOffset i64
      CommittedLeaderEpoch i32 6+ =-1
      CommittedMetadata string?
OffsetCommit response
  ThrottleTimeMs i32 3+
  Topics []
    Name string 2-9
    TopicId uuid 10+
    Partitions []
      PartitionIndex i32
      ErrorCode i16

OffsetFetch request
  GroupId string 1-7
  Topics []?2+ 1-7
    Name string
    PartitionIndexes []i32
  Groups [] 8+
    GroupId string
    MemberId string? 9+ =null
    MemberEpoch i32 9+ =-1
    Topics []?
      Name string 8-9
      TopicId uuid 10+
      PartitionIndexes []i32
  RequireStable bool 7+
OffsetFetch response
  ThrottleTimeMs i32 3+
  Topics [] 1-7
    Name string
    Partitions []
      PartitionIndex i32
      CommittedOffset i64
      CommittedLeaderEpoch i32 5+ =-1
      Metadata string?
      ErrorCode i16
  ErrorCode i16 2-7
  Groups [] 8+
    GroupId string
    Topics []
      Name string 8-9
      TopicId uuid 10+
      Partitions []
        PartitionIndex i32
        CommittedOffset i64
        CommittedLeaderEpoch i32 =-1
        Metadata string?
        ErrorCode i16
    ErrorCode i16

TxnOffsetCommit request
  TransactionalId string
  GroupId string
  ProducerId i64
  ProducerEpoch i16
  GenerationId i32 3+ =-1
  MemberId string 3+
  GroupInstanceId string? 3+ =null
  Topics []
    Name string
    Partitions []
      PartitionIndex i32
      CommittedOffset i64
      CommittedLeaderEpoch i32 2+ =-1
      CommittedMetadata string?
TxnOffsetCommit response
  ThrottleTimeMs i32
  Topics []
    Name string
    Partitions []
      PartitionIndex i32
      ErrorCode i16

ListGroups request
  StatesFilter []string 4+
  TypesFilter []string 5+
ListGroups response
  ThrottleTimeMs i32 1+
  ErrorCode i16
  Groups []
    GroupId string
    ProtocolType string
    GroupState string 4+
    GroupType string 5+

DescribeGroups request
  Groups []string
  IncludeAuthorizedOperations bool 3+
DescribeGroups response
  ThrottleTimeMs i32 1+
  Groups []
    ErrorCode i16
    ErrorMessage string? 6+ =null
    GroupId string
    GroupState string
    ProtocolType string
    ProtocolData string
    Members []
      MemberId string
      GroupInstanceId string? 4+ =null
      ClientId string
      ClientHost string
      MemberMetadata bytes
      MemberAssignment bytes
    AuthorizedOperations i32 3+ =-2147483648

DeleteGroups request
  GroupsNames []string
DeleteGroups response
  ThrottleTimeMs i32
  Results []
    GroupId string
    ErrorCode i16

OffsetDelete request
  GroupId string
  Topics []
    Name string
    Partitions []
      PartitionIndex i32
OffsetDelete response
  ErrorCode i16
  ThrottleTimeMs i32
  Topics []
    Name string
    Partitions []
      PartitionIndex i32
      ErrorCode i16

JoinGroup request
  GroupId string
  SessionTimeoutMs i32
  RebalanceTimeoutMs i32 1+ =-1
  MemberId string
  GroupInstanceId string? 5+ =null
  ProtocolType string
  Protocols []
    Name string
    Metadata bytes
  Reason string? 8+ =null
JoinGroup response
  ThrottleTimeMs i32 2+
  ErrorCode i16
  GenerationId i32 =-1
  ProtocolType string? 7+ =null
  ProtocolName string?7+
  Leader string
  SkipAssignment bool 9+
  MemberId string
  Members []
    MemberId string
    GroupInstanceId string? 5+ =null
    Metadata bytes

SyncGroup request
  GroupId string
  GenerationId i32
  MemberId string
  GroupInstanceId string? 3+ =null
  ProtocolType string? 5+ =null
  ProtocolName string? 5+ =null
  Assignments []
    MemberId string
    Assignment bytes
SyncGroup response
  ThrottleTimeMs i32 1+
  ErrorCode i16
  ProtocolType string? 5+ =null
  ProtocolName string? 5+ =null
  Assignment bytes

Heartbeat request
  GroupId string
  GenerationId i32
  MemberId string
  GroupInstanceId string? 3+ =null
Heartbeat response
  ThrottleTimeMs i32 1+
  ErrorCode i16

LeaveGroup request
  GroupId string
  MemberId string 0-2
  Members [] 3+
    MemberId string
    GroupInstanceId string? =null
    Reason string? 5+ =null
LeaveGroup response
  ThrottleTimeMs i32 1+
  ErrorCode i16
  Members [] 3+
    MemberId string
    GroupInstanceId string?
    ErrorCode i16

ConsumerGroupHeartbeat request
  GroupId string
  MemberId string
  MemberEpoch i32
  InstanceId string? =null
  RackId string? =null
  RebalanceTimeoutMs i32 =-1
  SubscribedTopicNames []string? =null
  SubscribedTopicRegex string? 1+ =null
  ServerAssignor string? =null
  TopicPartitions []? =null
    TopicId uuid
    Partitions []i32
ConsumerGroupHeartbeat response
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

ConsumerGroupDescribe request
  GroupIds []string
  IncludeAuthorizedOperations bool
ConsumerGroupDescribe response
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
      InstanceId string? =null
      RackId string? =null
      MemberEpoch i32
      ClientId string
      ClientHost string
      SubscribedTopicNames []string
      SubscribedTopicRegex string? =null
      Assignment {}
        TopicPartitions []
          TopicId uuid
          TopicName string
          Partitions []i32
      TargetAssignment {}
        TopicPartitions []
          TopicId uuid
          TopicName string
          Partitions []i32
      MemberType i8 1+ =-1
    AuthorizedOperations i32 =-2147483648

StreamsGroupHeartbeat request
  GroupId string
  MemberId string
  MemberEpoch i32
  EndpointInformationEpoch i32
  InstanceId string? =null
  RackId string? =null
  RebalanceTimeoutMs i32 =-1
  Topology {}? =null
    Epoch i32
    Subtopologies []
      SubtopologyId string
      SourceTopics []string
      SourceTopicRegex []string
      StateChangelogTopics []
        Name string
        Partitions i32
        ReplicationFactor i16
        TopicConfigs []
          Key string
          Value string
      RepartitionSinkTopics []string
      RepartitionSourceTopics []
        Name string
        Partitions i32
        ReplicationFactor i16
        TopicConfigs []
          Key string
          Value string
      CopartitionGroups []
        SourceTopics []i16
        SourceTopicRegex []i16
        RepartitionSourceTopics []i16
  ActiveTasks []? =null
    SubtopologyId string
    Partitions []i32
  StandbyTasks []? =null
    SubtopologyId string
    Partitions []i32
  WarmupTasks []? =null
    SubtopologyId string
    Partitions []i32
  ProcessId string? =null
  UserEndpoint {}? =null
    Host string
    Port u16
  ClientTags []? =null
    Key string
    Value string
  TaskOffsets []? =null
    SubtopologyId string
    Partition i32
    Offset i64
  TaskEndOffsets []? =null
    SubtopologyId string
    Partition i32
    Offset i64
  ShutdownApplication bool
StreamsGroupHeartbeat response
  ThrottleTimeMs i32
  ErrorCode i16
  ErrorMessage string? =null
  MemberId string
  MemberEpoch i32
  HeartbeatIntervalMs i32
  AcceptableRecoveryLag i32
  TaskOffsetIntervalMs i32
  Status []? =null
    StatusCode i8
    StatusDetail string
  ActiveTasks []? =null
    SubtopologyId string
    Partitions []i32
  StandbyTasks []? =null
    SubtopologyId string
    Partitions []i32
  WarmupTasks []? =null
    SubtopologyId string
    Partitions []i32
  EndpointInformationEpoch i32
  PartitionsByUserEndpoint []? =null
    UserEndpoint {}
      Host string
      Port u16
    ActivePartitions []
      Topic string
      Partitions []i32
    StandbyPartitions []
      Topic string
      Partitions []i32

StreamsGroupDescribe request
  GroupIds []string
  IncludeAuthorizedOperations bool
StreamsGroupDescribe response
  ThrottleTimeMs i32
  Groups []
    ErrorCode i16
    ErrorMessage string? =null
    GroupId string
    GroupState string
    GroupEpoch i32
    AssignmentEpoch i32
    Topology {}? =null
      Epoch i32
      Subtopologies []? =null
        SubtopologyId string
        SourceTopics []string
        RepartitionSinkTopics []string
        StateChangelogTopics []
          Name string
          Partitions i32
          ReplicationFactor i16
          TopicConfigs []
            Key string
            Value string
        RepartitionSourceTopics []
          Name string
          Partitions i32
          ReplicationFactor i16
          TopicConfigs []
            Key string
            Value string
    Members []
      MemberId string
      MemberEpoch i32
      InstanceId string? =null
      RackId string? =null
      ClientId string
      ClientHost string
      TopologyEpoch i32
      ProcessId string
      UserEndpoint {}? =null
        Host string
        Port u16
      ClientTags []
        Key string
        Value string
      TaskOffsets []
        SubtopologyId string
        Partition i32
        Offset i64
      TaskEndOffsets []
        SubtopologyId string
        Partition i32
        Offset i64
      Assignment {}
        ActiveTasks []
          SubtopologyId string
          Partitions []i32
        StandbyTasks []
          SubtopologyId string
          Partitions []i32
        WarmupTasks []
          SubtopologyId string
          Partitions []i32
      TargetAssignment {}
        ActiveTasks []
          SubtopologyId string
          Partitions []i32
        StandbyTasks []
          SubtopologyId string
          Partitions []i32
        WarmupTasks []
          SubtopologyId string
          Partitions []i32
      IsClassic bool
    AuthorizedOperations i32 =-2147483648
"""
