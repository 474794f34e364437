"""The steps of a repartition. Each may be made again from its beginning after a crash at any point:
what it did before its record was written, it finds done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import structlog

from gateway.core.cluster.topology import TopicPartition
from gateway.core.repartition.progress import Left
from gateway.core.repartition.record import Move, Repartition
from gateway.core.wire.apis import ApiKey
from gateway.core.wire.errors import ErrorCode
from gateway.members.redis_table import TableUnavailable
from gateway.operations.errors import InvalidOperation, StateUnavailable
from gateway.operations.group_offsets import GroupOffsets
from gateway.repartition.limits import CREATE_MS_MAX, GROUP_LOOKS_MAX, REBALANCING_MS_MAX
from gateway.repartition.new_topic import create_like
from gateway.repartition.plain_groups import PlainGroups
from gateway.repartition.running import RunningTopic
from gateway.repartition.survey import GroupsOf, Leaders, Survey, leaders_of
from gateway.upstream.cluster import Upstream
from gateway.upstream.commits import Commit, Commits
from gateway.windows.window_keys import topic_id_text

log = structlog.get_logger("keyway.repartition")


class TopicGone(Exception):
    """The topic was deleted, or created anew under its name; or a broker does not know it yet."""

    def __init__(self, topic: str) -> None:
        super().__init__(f"upstream has no topic {topic!r}, or another one of this name")


@dataclass(frozen=True, slots=True)
class Steps:
    """Each returns the record of the next phase. Raises TopicGone, OperationError,
    UpstreamError.
    """

    upstream: Upstream
    commits: Commits
    offsets: GroupOffsets
    survey: Survey
    commit_for_members: Callable[[str, list[Commit]], Any]  # awaited

    async def make(self, move: Move, run: RunningTopic, now_ms: int) -> Repartition:
        record = run.record
        match move:
            case Move.CREATE if record.into:
                await self.there(record)
                return record.moved(move, into_id=(await create_like(self.upstream, record)).hex())
            case Move.CREATE:
                await self._create(record)
                return record.moved(move)
            case Move.PREPARE:
                groups = await self._before_shown(record, now_ms)
                return record.moved(
                    move,
                    groups=_with_order(groups.ordered, record),
                    consumers=_with_order(groups.others, record),
                    prepared=True,
                )
            case Move.SHOW:
                return record.moved(move, shown_ms=now_ms)
            case Move.OPEN:
                ends = await self._old_ends(run)
                return record.moved(move, boundaries=ends, opened_ms=now_ms)
            case Move.RAISE:
                ends = await self._old_ends(run)
                return record.moved(move, boundaries=ends, raised_ms=now_ms)
            case Move.FINISH:
                return record.moved(move, finished_ms=now_ms, given_up=run.given_up)
            case Move.ABORT:
                raise AssertionError("an operator's")

    def plain_groups(self, record: Repartition) -> PlainGroups:
        return PlainGroups(record, self.commits, self.survey)

    async def there(self, record: Repartition) -> Leaders:
        found = await leaders_of(self.upstream, record.topic)
        if found is None or found.topic_id.hex() != record.topic_id:
            raise TopicGone(record.topic)
        if record.into_id:
            new = await leaders_of(self.upstream, record.into)
            if new is None or new.topic_id.hex() != record.into_id:
                raise TopicGone(record.into)
            led = {at + record.first: leader for at, leader in new.leaders.items()}
            old = {at: leader for at, leader in found.leaders.items() if at < record.before}
            return Leaders(found.topic_id, old | led)
        return found

    async def given_hidden(self, record: Repartition) -> list[str]:
        """Groups whose members Kafka gives partitions that stay hidden after an abort now. Raises
        UpstreamError.
        """
        if record.into:
            return []
        try:
            there = await self.there(record)
        except TopicGone:
            return []
        if len(there.leaders) <= record.before:
            return []
        return await self.survey.assigned_by_kafka(record.topic, record.before)

    async def _create(self, record: Repartition) -> None:
        count = len((await self.there(record)).leaders)
        if count > record.after:
            raise InvalidOperation(
                f"topic {record.topic!r} has {count} partitions: somebody else has added some"
            )
        if count == record.after:
            return
        body = {
            "Topics": [{"Name": record.topic, "Count": record.after, "Assignments": None}],
            "TimeoutMs": CREATE_MS_MAX,
            "ValidateOnly": False,
        }
        answer = await self.upstream.call(ApiKey.CREATE_PARTITIONS, body, timeout_ms=CREATE_MS_MAX)
        (row,) = answer["Results"]
        if row["ErrorCode"] != 0:
            code = ErrorCode(row["ErrorCode"]).name
            raise StateUnavailable(f"CreatePartitions: {code} {row['ErrorMessage'] or ''}".rstrip())

    async def _before_shown(self, record: Repartition, now_ms: int) -> GroupsOf:
        """Groups start at the new partitions' first record, whatever their reset policy says.

        A group that rebalances may be subscribed, and is waited for; but one may do that for ever,
        of any topic in the cluster.
        """
        leaders = (await self.there(record)).leaders
        missing = [partition for partition in range(record.after) if leaders.get(partition, -1) < 0]
        if missing:
            raise StateUnavailable(f"partitions without a leader: {missing[:10]}")
        begun: set[str] = set()
        for _ in range(GROUP_LOOKS_MAX):  # until none has come meanwhile
            groups = await self.survey.groups(record.topic, record.before)
            self._wait_for_rebalancing(groups, record, now_ms)
            names = (*groups.ordered, *groups.unreliable, *groups.others, *groups.starting)
            new = [group for group in names if group not in begun]
            if not new:
                break
            for group in new:
                if group in groups.ordered:
                    await self._note_before(group, record)
                await self._start_at_first(group, record)
            begun.update(new)
        return groups

    def _wait_for_rebalancing(self, groups: GroupsOf, record: Repartition, now_ms: int) -> None:
        """Raises StateUnavailable."""
        some = list(groups.rebalancing[:10])
        if some and now_ms - record.began_ms < REBALANCING_MS_MAX:
            raise StateUnavailable(f"groups that rebalance: {some}")
        if some:
            log.warning("groups_that_rebalance_not_waited_for", topic=record.topic, groups=some)

    async def _note_before(self, group: str, record: Repartition) -> None:
        """The group's offset 0 may be forgotten before it has members again: its windows know from
        here that the partitions are new to it.
        """
        topic_id = topic_id_text(bytes.fromhex(record.new_topic_id))
        before = 0 if record.into else record.before
        try:
            await self.offsets.begun_topics.partitions_of(group, topic_id, before)
        except TableUnavailable as error:
            raise StateUnavailable(f"Redis: {error}") from error

    async def keep_starts(self, record: Repartition) -> None:
        """Commits offset 0 again for groups that have not begun with the new topic. Kafka forgets
        the offset of a topic that a group's members do not subscribe to: offsets.retention.minutes
        after the last commit. So those that do begin by themselves: a commit here could be later
        than their first one, and set them back. Raises UpstreamError, StateUnavailable.
        """
        groups = await self.survey.groups(record.topic, record.before)
        plain = (*groups.others, *groups.starting, *groups.rebalancing)
        for group in (*groups.ordered, *groups.unreliable, *plain):
            committed = await self.commits.fetch_all(group)
            new = {place: at for place, at in committed.items() if place[0] == record.new_topic}
            if not new or any(at.offset or at.metadata for at in new.values()):
                continue
            if not await self.survey.begins(group, record.new_topic):
                await self._commit_first(group, record, list(new))

    async def _start_at_first(self, group: str, record: Repartition) -> None:
        committed = await self.commits.fetch_all(group)
        places = [record.place_of(number) for number in range(record.before, record.after)]
        missing = [place for place in places if place not in committed]
        if missing:
            await self._commit_first(group, record, missing)
            log.info(
                "starts_at_first_record",
                group=group,
                topic=record.new_topic,
                partitions=len(missing),
            )

    async def _commit_first(
        self, group: str, record: Repartition, places: Iterable[tuple[str, int]]
    ) -> None:
        topic_id = bytes.fromhex(record.new_topic_id)
        commits = [
            Commit(TopicPartition(topic, topic_id, partition), 0, "") for topic, partition in places
        ]
        codes = set(await self.commits.commit(group, commits))
        if codes == {int(ErrorCode.UNKNOWN_MEMBER_ID)}:
            await self.commit_for_members(group, commits)
        elif codes != {0}:
            names = ", ".join(sorted(ErrorCode(code).name for code in codes))
            raise StateUnavailable(f"commit of offset 0 for group {group!r}: {names}")

    async def _old_ends(self, run: RunningTopic) -> tuple[int, ...]:
        await run.look()
        old = range(run.record.before)
        missing = [partition for partition in old if partition not in run.ends]
        if missing:
            raise StateUnavailable(f"the log ends of partitions {missing[:10]} are not known")
        return tuple(run.ends[partition] for partition in old)

    async def left(self, run: RunningTopic) -> list[Left]:
        """What the groups have to settle before all can end. Raises StateUnavailable."""
        found: list[Left] = []
        for group in run.record.groups:
            found += await self._left_of(run, group)
        return found + ([] if run.plain is None else run.plain.left(run.record))

    async def _left_of(self, run: RunningTopic, group: str) -> Iterable[Left]:
        record = run.record
        known: list[Left] = []
        unknown: list[int] = []
        for partition in range(record.before):
            window = run.window(group, partition)
            report = run.reports.get((group, partition))
            if window is None:
                unknown.append(partition)
            elif report is None:
                known.append(Left(group, partition, 1))  # it is being loaded, or has broken
            else:
                offsets = max(0, record.boundaries[partition] - report.cursor)
                known.append(Left(group, partition, offsets, report.unfinished))
        if not unknown:
            return known
        positions = await self.offsets.positions(group)
        for partition in unknown:
            position = positions.get((record.topic, partition))
            if position is not None:  # else the group was deleted meanwhile
                offsets = max(0, record.boundaries[partition] - position.offset)
                known.append(Left(group, partition, offsets))
        return known


def _with_order(groups: Iterable[str], record: Repartition) -> tuple[str, ...]:
    return tuple(group for group in groups if group not in record.unordered)


def aborted_before(record: Repartition | None) -> int | None:
    """How many partitions clients see of a topic whose repartition was aborted."""
    if record is None or record.shows_new or record.into:
        return None
    return record.before


def begun(record: Repartition, known: Repartition | None, now_ms: int) -> Repartition:
    """The new record, which takes the place of `known`, and is the later one by any clock."""
    if known is None:
        return replace(record, version=1, began_ms=now_ms)
    return replace(record, version=known.version + 1, began_ms=max(now_ms, known.began_ms + 1))
