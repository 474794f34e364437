"""Topics and configs: CreateTopics, DescribeConfigs, IncrementalAlterConfigs.
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
