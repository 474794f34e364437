"""A group's settings: keyway.yaml, under an admin's settings for this very group in Kafka.

Kafka's group configs (IncrementalAlterConfigs, resource GROUP) with a meaning here are taken over
when they were set for the group itself; a group without any follows keyway.yaml, whatever the
broker's defaults are. They are asked for before a group's first window opens and every
GROUP_CONFIG_MS; a change reaches windows that are up. A config that is set through the gateway
counts at once, also for an unused group; the other nodes are told.

While the cluster's share.version is 2, a dead letter queue of Kafka's (KIP-1191) takes all poison
of its group, whatever keyway.yaml says about poison.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import structlog

from gateway.config.file import Config
from gateway.config.groups import QUEUE_DECIDES, GroupSection
from gateway.core.share.altered_configs import AlteredConfigs, Values
from gateway.core.share.dead_letter_queue import TOPIC_NAME, queue_of
from gateway.core.wire.errors import ErrorCode
from gateway.members.limits import ALTERED_GROUPS_MAX, ALTERED_SHOWN_MS, GROUP_CONFIG_MS
from gateway.members.redis_table import TableUnavailable
from gateway.upstream.errors import Refused, UpstreamError

log = structlog.get_logger("keyway.groups")

# Kafka's names of 4.3 (KIP-932, KIP-1240, KIP-1263) and ours.
TEXTS = {
    "share.auto.offset.reset": "auto_offset_reset",
    "share.isolation.level": "isolation_level",
}
NUMBERS = {
    "share.record.lock.duration.ms": "lock_duration_ms",
    "share.delivery.count.limit": "deliveries_max",
    "share.assignment.interval.ms": "assignment_interval_ms",
    "share.heartbeat.interval.ms": "heartbeat_interval_ms",
    "share.session.timeout.ms": "session_timeout_ms",
    # Kafka counts the offsets between the first and the last record in flight; records read and not
    # settled are the nearest to it, and none of them more can be locked.
    "share.partition.max.record.locks": "window_records",
}
FLAGS = {"share.renew.acknowledge.enable": "renew_acknowledge"}
KAFKA_NAMES = {ours: name for name, ours in (TEXTS | NUMBERS | FLAGS).items()}


def overridden(
    section: GroupSection, set_in_kafka: Mapping[str, str], *, queues: bool = False
) -> GroupSection:
    """`section` with the values Kafka has for the group; Kafka has checked them already. `queues`:
    the cluster has dead letter queues.
    """
    changes: dict[str, Any] = {
        ours: set_in_kafka[name].lower() if name == "share.isolation.level" else set_in_kafka[name]
        for name, ours in TEXTS.items()
        if name in set_in_kafka
    }
    for name, ours in NUMBERS.items():
        if set_in_kafka.get(name, "").isdecimal():
            changes[ours] = int(set_in_kafka[name])
    for name, ours in FLAGS.items():
        if name in set_in_kafka:
            changes[ours] = set_in_kafka[name].lower() == "true"
    queue = queue_of(set_in_kafka) if queues else None
    section = section.model_copy(update=changes) if changes else section
    return section if queue is None else section.with_queue(queue)


# The gateway may not see the configs, or the broker knows none of groups. Any other error says
# nothing of them, and a group that starts by the wrong settings skips records.
NO_CONFIGS = frozenset(
    {
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_CONFIG,
        ErrorCode.UNSUPPORTED_VERSION,
    }
)


async def no_queues() -> bool:
    return False


@dataclass(slots=True)
class GroupSettings:
    config: Config
    ask: Callable[[str], Awaitable[dict[str, str]]]  # the configs set for a group; UpstreamError
    now_ms: Callable[[], int]
    queues_work: Callable[[], Awaitable[bool]] = no_queues  # share.version >= 2; UpstreamError
    # Tells the other nodes; TableUnavailable.
    tell: Callable[[Mapping[str, Values]], Awaitable[None]] | None = None
    _on_change: list[Callable[[str, GroupSection], None]] = field(default_factory=list)
    _known: dict[str, GroupSection] = field(default_factory=dict)
    _in_kafka: dict[str, dict[str, str]] = field(default_factory=dict)  # as last shown
    _altered: AlteredConfigs = field(
        default_factory=lambda: AlteredConfigs(ALTERED_GROUPS_MAX, ALTERED_SHOWN_MS)
    )
    _queues: bool = False  # as last asked; nobody asks before a group's configs name one
    _refused: set[str] = field(default_factory=set)  # groups whose configs we may not see

    def on_change(self, callback: Callable[[str, GroupSection], None]) -> None:
        self._on_change.append(callback)

    def of(self, group: str) -> GroupSection:
        """The group's settings, as far as they are known now."""
        known = self._known.get(group)
        return self.config.group(group) if known is None else known

    def skips_expected(self, group: str) -> bool:
        return self.of(group).skips_expected

    def set_in_kafka(self, group: str) -> dict[str, str]:
        """The configs that count for the group, as far as is known now."""
        return self._altered.over(group, self._in_kafka.get(group, {}), self.now_ms())

    async def known(self, group: str) -> GroupSection:
        """Asks only if it never did. Raises UpstreamError."""
        known = self._known.get(group)
        return await self.learn(group) if known is None else known

    async def learn(self, group: str) -> GroupSection:
        """The group's settings as Kafka has them now. Raises UpstreamError when upstream does not
        say what they are.
        """
        shown: dict[str, str] = {}
        try:
            shown = await self.ask(group)
            self._refused.discard(group)
        except Refused as refused:
            if refused.error_code not in NO_CONFIGS:
                raise
            # The gateway's identity needs DESCRIBE_CONFIGS on the group for this, and no more.
            if group not in self._refused:
                self._refused.add(group)
                log.warning("group_config_refused", group=group, reason=str(refused))
        if TOPIC_NAME in self._altered.over(group, shown, self.now_ms()):
            self._queues = await self.queues_work()
        return self._take(group, shown)

    def _take(self, group: str, shown: dict[str, str]) -> GroupSection:
        """Decides the group's settings now, where a broker shows `shown`."""
        counts = self._altered.over(group, shown, self.now_ms())
        section = overridden(self.config.group(group), counts, queues=self._queues)
        self._in_kafka[group] = shown
        before = self.of(group)
        self._known[group] = section
        if section != before:
            log.info("group_config_changed", group=group, **_differences(before, section))
            for callback in self._on_change:
                callback(group, section)
        return section

    async def refresh_forever(
        self, groups: Callable[[], Iterable[str]], exists: Callable[[str], bool]
    ) -> None:
        """Asks about every group in turn. A group that was forgotten meanwhile stays forgotten."""
        while True:
            await asyncio.sleep(GROUP_CONFIG_MS / 1000)
            for group in list(groups()):
                try:
                    if exists(group):
                        await self.learn(group)
                except Refused:
                    continue  # of this group
                except UpstreamError:
                    break  # logged where it was met; known settings stay good
                if not exists(group):
                    self.forget(group)

    async def altered(self, changes: Mapping[str, Values]) -> None:
        """Kafka has just accepted these configs for these groups."""
        await self.heard(changes)
        if self.tell is not None:
            with suppress(TableUnavailable):  # the others ask Kafka before long
                await self.tell(changes)

    async def heard(self, changes: Mapping[str, Values]) -> None:
        """A group that is not known yet gets them when it is asked for."""
        for group, values in changes.items():
            self._altered.note(group, values, self.now_ms())
        if any(values.get(TOPIC_NAME) for values in changes.values()):
            with suppress(UpstreamError):  # the next regular look asks again
                self._queues = await self.queues_work()
        for group in changes:
            if group in self._known:
                self._take(group, self._in_kafka[group])

    def reload(self, config: Config) -> None:
        """Another keyway.yaml counts from now on, under the settings in Kafka as last shown."""
        self.config = config
        for group in list(self._known):
            self._take(group, self._in_kafka[group])

    def forget(self, group: str) -> None:
        self._known.pop(group, None)
        self._in_kafka.pop(group, None)
        self._refused.discard(group)


def _differences(before: GroupSection, after: GroupSection) -> dict[str, Any]:
    return {
        name: getattr(after, name)
        for name in (*TEXTS.values(), *NUMBERS.values(), *FLAGS.values(), *QUEUE_DECIDES)
        if getattr(after, name) != getattr(before, name)
    }
