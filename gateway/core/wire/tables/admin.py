"""Topics, configs, brokers: CreateTopics, CreatePartitions, DescribeConfigs, AlterConfigs,
IncrementalAlterConfigs, AlterPartitionReassignments, UnregisterBroker.
Grammar: gateway/core/wire/schema.py. Source: Kafka 4.3.1's message definitions.
"""

from __future__ import annotations

from typing import Final

TABLES: Final = """\
CreateTopics request
  Topics []
    Name string
    NumPartitions i32
    ReplicationFactor i16
    Assignments []
      PartitionIndex i32
      BrokerIds []i32
    Configs []
      Name string
      Value string?
  timeoutMs i32 =60000
  validateOnly bool
CreateTopics response
  ThrottleTimeMs i32
  Topics []
    Name string
    TopicId uuid 7+
    ErrorCode i16
    ErrorMessage string?
    TopicConfigErrorCode i16 5+ #0
    NumPartitions i32 5+ =-1
    ReplicationFactor i16 5+ =-1
    Configs []? 5+
      Name string
      Value string?
      ReadOnly bool
      ConfigSource i8 =-1
      IsSensitive bool

CreatePartitions request
  Topics []
    Name string
    Count i32
    Assignments []?
      BrokerIds []i32
  TimeoutMs i32
  ValidateOnly bool
CreatePartitions response
  ThrottleTimeMs i32
  Results []
    Name string
    ErrorCode i16
    ErrorMessage string? =null

AlterPartitionReassignments request
  TimeoutMs i32 =60000
  AllowReplicationFactorChange bool 1+ =true
  Topics []
    Name string
    Partitions []
      PartitionIndex i32
      Replicas []i32? =null
AlterPartitionReassignments response
  ThrottleTimeMs i32
  AllowReplicationFactorChange bool 1+ =true
  ErrorCode i16
  ErrorMessage string?
  Responses []
    Name string
    Partitions []
      PartitionIndex i32
      ErrorCode i16
      ErrorMessage string?

UnregisterBroker request
  BrokerId i32
UnregisterBroker response
  ThrottleTimeMs i32
  ErrorCode i16
  ErrorMessage string?

DescribeConfigs request
  Resources []
    ResourceType i8
    ResourceName string
    ConfigurationKeys []string?
  IncludeSynonyms bool
  IncludeDocumentation bool 3+
DescribeConfigs response
  ThrottleTimeMs i32
  Results []
    ErrorCode i16
    ErrorMessage string?
    ResourceType i8
    ResourceName string
    Configs []
      Name string
      Value string?
      ReadOnly bool
      ConfigSource i8 =-1
      IsSensitive bool
      Synonyms []
        Name string
        Value string?
        Source i8
      ConfigType i8 3+
      Documentation string? 3+

AlterConfigs request
  Resources []
    ResourceType i8
    ResourceName string
    Configs []
      Name string
      Value string?
  ValidateOnly bool
AlterConfigs response
  ThrottleTimeMs i32
  Responses []
    ErrorCode i16
    ErrorMessage string?
    ResourceType i8
    ResourceName string

IncrementalAlterConfigs request
  Resources []
    ResourceType i8
    ResourceName string
    Configs []
      Name string
      ConfigOperation i8
      Value string?
  ValidateOnly bool
IncrementalAlterConfigs response
  ThrottleTimeMs i32
  Responses []
    ErrorCode i16
    ErrorMessage string?
    ResourceType i8
    ResourceName string
"""
