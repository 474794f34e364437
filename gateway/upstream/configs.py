"""Configurations as upstream has them."""

from __future__ import annotations

from collections.abc import Iterable

from gateway.core.wire.apis import ApiKey
from gateway.core.wire.errors import ErrorCode
from gateway.core.wire.schema import Message
from gateway.upstream.errors import Refused
from gateway.upstream.opening import API_VERSIONS_BODY
from gateway.upstream.requests import Calls

RESOURCE_TOPIC, RESOURCE_BROKER, RESOURCE_GROUP = 2, 4, 32  # ConfigResource.Type
TOPIC_CONFIG = 1  # DescribeConfigsResponse.ConfigSource: set for this very topic
GROUP_CONFIG = 8  # for this very group


async def group_config(upstream: Calls, group: str) -> dict[str, str]:
    """Configs that were set for this very group, without defaults; {} also when the upstream
    has no group configs. Raises UpstreamError.
    """
    try:
        entries = await _configs(upstream, RESOURCE_GROUP, group, None)
    except Refused as refused:
        if refused.error_code in (ErrorCode.INVALID_REQUEST, ErrorCode.UNSUPPORTED_VERSION):
            return {}
        raise
    return _values(entry for entry in entries if entry["ConfigSource"] == GROUP_CONFIG)


async def broker_config(upstream: Calls, broker_id: int, names: list[str]) -> dict[str, str]:
    """Raises UpstreamError."""
    return _values(await _configs(upstream, RESOURCE_BROKER, str(broker_id), names, broker_id))


async def topic_config(upstream: Calls, topic: str, names: list[str]) -> dict[str, str]:
    """Raises UpstreamError."""
    return _values(await _configs(upstream, RESOURCE_TOPIC, topic, names))


async def share_version(upstream: Calls) -> int:
    """The level of the feature share.version that the cluster works with; 0: share groups are off,
    or the brokers do not know the feature. Raises UpstreamError.
    """
    response = await upstream.call(ApiKey.API_VERSIONS, API_VERSIONS_BODY)
    levels = {row["Name"]: row["MaxVersionLevel"] for row in response["FinalizedFeatures"]}
    level: int = levels.get("share.version", 0)
    return level


async def own_topic_config(upstream: Calls, topic: str) -> dict[str, str]:
    """Configs that were set for this very topic, without defaults. Raises UpstreamError."""
    entries = await _configs(upstream, RESOURCE_TOPIC, topic, None)
    return _values(entry for entry in entries if entry["ConfigSource"] == TOPIC_CONFIG)


async def _configs(
    upstream: Calls, kind: int, name: str, names: list[str] | None, broker_id: int | None = None
) -> list[Message]:
    resource = {"ResourceType": kind, "ResourceName": name, "ConfigurationKeys": names}
    response = await upstream.call(
        ApiKey.DESCRIBE_CONFIGS, {"Resources": [resource]}, broker_id=broker_id
    )
    result = response["Results"][0]
    if result["ErrorCode"] != 0:
        raise Refused(result["ErrorCode"], f"configuration of {name!r}")
    entries: list[Message] = result["Configs"]
    return entries


def _values(entries: Iterable[Message]) -> dict[str, str]:
    return {entry["Name"]: entry["Value"] for entry in entries if entry["Value"] is not None}
