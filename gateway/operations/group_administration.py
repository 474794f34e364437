"""A group's settings with the place that each comes from, their change, and a group's end.

Settings that Kafka has a config for are changed there, so that Kafka's tools show the same. All
others are in keyway.yaml. Upstream is asked under the gateway's own identity, which needs
ALTER_CONFIGS and DELETE on the group for this.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import structlog

from gateway.config.groups import QUEUE_DECIDES, GroupSection
from gateway.core.share.dead_letter_queue import TOPIC_NAME
from gateway.core.wire.apis import ApiKey
from gateway.core.wire.errors import ErrorCode, error_name
from gateway.members.group_settings import KAFKA_NAMES, GroupSettings
from gateway.operations.errors import InvalidOperation, StateUnavailable, UpstreamRefused
from gateway.operations.group_offsets import GroupOffsets
from gateway.upstream.configs import RESOURCE_GROUP
from gateway.upstream.errors import UpstreamError

log = structlog.get_logger("keyway.admin")

_SET, _DELETE = 0, 1  # AlterConfigOp.OpType
_DELETED = (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND)  # the second: it never committed
_INVALID = (ErrorCode.INVALID_CONFIG, ErrorCode.INVALID_REQUEST)


Origin = Literal["kafka", "keyway.yaml", "default"]


@dataclass(frozen=True, slots=True)
class Setting:
    """`value`: as JSON has it. `kafka_name`: of the config that changes it; None: keyway.yaml."""

    name: str
    value: object
    origin: Origin
    kafka_name: str | None


@dataclass(frozen=True, slots=True)
class GroupAdministration:
    offsets: GroupOffsets
    settings: GroupSettings

    async def effective(self, group: str) -> list[Setting]:
        """The group's settings as they count now. Raises GroupUnknown, StateUnavailable."""
        await self.offsets.require(group)
        try:
            section = await self.settings.learn(group)
        except UpstreamError as error:
            raise StateUnavailable(f"the group's configs cannot be read: {error}") from error
        return self._rows(group, section)

    async def alter(self, group: str, values: Mapping[str, str | None]) -> list[Setting]:
        """Changes settings, by the names of keyway.yaml. None takes a setting back to keyway.yaml.
        Kafka checks the values, and takes all or none. Raises GroupUnknown, InvalidOperation,
        UpstreamRefused, StateUnavailable.
        """
        await self.offsets.require(group)
        for name in values:
            if name not in GroupSection.model_fields:
                raise InvalidOperation(f"{name} is no setting of a group")
            if name not in KAFKA_NAMES:
                raise InvalidOperation(f"{name} is set in keyway.yaml: Kafka has no config for it")
        configs = [
            {
                "Name": KAFKA_NAMES[name],
                "ConfigOperation": _DELETE if value is None else _SET,
                "Value": value,
            }
            for name, value in values.items()
        ]
        resource = {"ResourceType": RESOURCE_GROUP, "ResourceName": group, "Configs": configs}
        body = {"Resources": [resource], "ValidateOnly": False}
        try:
            answer = await self.offsets.upstream.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, body)
        except UpstreamError as error:
            raise StateUnavailable(f"upstream: {error}") from error
        (row,) = answer["Responses"]
        if row["ErrorCode"] in _INVALID:
            raise InvalidOperation(row["ErrorMessage"] or error_name(row["ErrorCode"]))
        if row["ErrorCode"] != ErrorCode.NONE:
            raise UpstreamRefused(ErrorCode(row["ErrorCode"]))
        names = {KAFKA_NAMES[name]: value for name, value in values.items()}
        await self.settings.altered({group: names})
        log.info("group_settings_altered", group=group, settings=sorted(values))
        return self._rows(group, self.settings.of(group))

    async def delete(self, group: str) -> None:
        """Deletes the group with its committed offsets, its windows and parked records, and its key
        filters. Raises GroupUnknown, GroupInUse, UpstreamRefused, StateUnavailable.
        """
        await self.offsets.require(group)
        async with self.offsets.at_rest(group, lambda _: True):
            body = {"GroupsNames": [group]}
            try:
                broker = await self.offsets.upstream.coordinator(group)
                answer = await self.offsets.upstream.call(
                    ApiKey.DELETE_GROUPS, body, broker_id=broker
                )
            except UpstreamError as error:
                raise StateUnavailable(f"upstream: {error}") from error
            (row,) = answer["Results"]
            if row["ErrorCode"] not in _DELETED:
                raise UpstreamRefused(ErrorCode(row["ErrorCode"]))
            await self.offsets.forget_group(group)

    def _rows(self, group: str, section: GroupSection) -> list[Setting]:
        in_kafka = self.settings.set_in_kafka(group)
        in_file = self.settings.config.group(group).model_fields_set
        values = section.model_dump(mode="json", exclude={"match", "filters"})
        names = KAFKA_NAMES
        if section.dead_letter_queue is not None:
            names = names | dict.fromkeys(QUEUE_DECIDES, TOPIC_NAME)
        return [
            Setting(name, value, _origin(name, names, in_kafka, in_file), names.get(name))
            for name, value in values.items()
        ]


def _origin(
    name: str, kafka_names: Mapping[str, str], in_kafka: Mapping[str, str], in_file: set[str]
) -> Origin:
    if kafka_names.get(name) in in_kafka:
        return "kafka"
    return "keyway.yaml" if name in in_file else "default"
