"""Commits of a node's windows to Kafka: cursor as offset, settled records as metadata, per group.

Kafka knows no owner of a group's offsets while the group has no members. So a window looks first if
somebody else may have committed (dispatcher/core/life/life.py). It yields to a position that was
set meanwhile, as after a fail-over to another cluster and back: it is loaded again from there.

A window that was just loaded is committed at once: there may be no commit of its start yet. One in
which nothing happens is committed again before Kafka forgets its offset, as it does some time after
the last commit (offsets.retention.minutes). So an offset that somebody has deleted comes back, too
(kafka-consumer-groups --delete-offsets). The windows take turns.

Groups of one coordinator are committed one after the other, coordinators side by side. One that is
away holds up its own groups alone, and is waited for once in a round. A group for which Kafka names
no coordinator is not waited for at all: the next round looks for it again.
"""

from __future__ import annotations

import asyncio
from itertools import compress

import structlog

from dispatcher.core.epochs import last_epoch
from dispatcher.core.life.commands import CommitState
from dispatcher.core.stored.reconcile import overtakes
from dispatcher.store.base import WindowKey
from gateway.core.wire.errors import ErrorCode, error_name
from gateway.upstream.commits import ATTEMPTS_MAX, Commit, Committed
from gateway.upstream.errors import Refused, UpstreamError
from gateway.upstream.requests import NO_COORDINATOR
from gateway.windows.limits import (
    ASKED_AT_REST,
    CAPTURED_AT_ONCE,
    LOADED_GATHERED_MS,
    LONG_RANGES,
)
from gateway.windows.persisting import Persister
from gateway.windows.table import WindowTable
from gateway.windows.window import Window
from keyway.commit_metadata.core.metadata import encode as encode_commit
from keyway.commit_metadata.core.metadata import read_times

log = structlog.get_logger("keyway.windows")

States = list[tuple[Window, CommitState]]


class Committer:
    def __init__(self, table: WindowTable, persister: Persister, interval_ms: int) -> None:
        # Held by a commit: a position set by hand must not be overtaken by the old one.
        self.committing = asyncio.Lock()
        self._table = table
        self._persister = persister
        self._commits = table.dependencies.commits
        self._now_ms = table.dependencies.now_ms
        self._interval_ms = interval_ms
        self._uncommitted: dict[Window, None] = {}  # ticked since the last commit
        self._loaded: dict[Window, None] = {}  # whose first commit is due
        self._any_loaded = asyncio.Event()
        self._failing: dict[str, int] = {}  # Kafka's error, by group whose last commit failed
        self._encoding = asyncio.Lock()

    async def commit_forever(self) -> None:
        while True:
            await asyncio.sleep(self._interval_ms / 1000)
            await self.commit()

    async def commit_loaded_forever(self) -> None:
        while True:
            await self._any_loaded.wait()
            await asyncio.sleep(LOADED_GATHERED_MS / 1000)
            self._any_loaded.clear()
            async with self.committing:
                loaded, self._loaded = self._loaded, {}
                await self._commit(sorted(loaded, key=_key_of))

    def loaded(self, window: Window) -> None:
        self._loaded[window] = None
        self._any_loaded.set()

    def look_at(self, window: Window) -> None:
        """Something may have happened in it since the last commit."""
        self._uncommitted[window] = None

    def forget(self, window: Window) -> None:
        self._uncommitted.pop(window, None)
        self._loaded.pop(window, None)

    def failing(self) -> list[str]:
        """Groups whose last commit Kafka did not take, and that still have something to commit."""
        for group in self._failing.keys() - self._table.names():
            del self._failing[group]
        return sorted(self._failing)

    async def commit(self) -> None:
        """Commits the records settled since the last time."""
        async with self.committing:
            await self._commit(self._to_commit())

    async def _commit(self, asked: list[Window]) -> None:
        if not self._table.dependencies.owners.certain():
            # What another node may have taken over, and no store would refuse.
            asked = [window for window in asked if window.section.reliable]
        await self._capture(asked)
        again_before_ms = self._now_ms() - self._commits.repeat_ms // 2
        by_group: dict[str, States] = {}
        for window in asked:
            state = window.life.take_committable(again_before_ms)
            if state is not None:
                by_group.setdefault(window.key.group, []).append((window, state))
        by_coordinator: dict[int, list[str]] = {}
        for group, broker in (await self._commits.coordinators([*by_group])).items():
            if broker is None:
                self._not_asked(group, by_group[group], ErrorCode.COORDINATOR_NOT_AVAILABLE)
            else:
                by_coordinator.setdefault(broker, []).append(group)
        async with asyncio.TaskGroup() as tasks:
            for groups in by_coordinator.values():
                tasks.create_task(self._commit_in_turn(groups, by_group))

    async def _commit_in_turn(self, groups: list[str], by_group: dict[str, States]) -> None:
        """Groups of one coordinator; those that fail come last."""
        error, attempts_max = 0, ATTEMPTS_MAX
        for group in sorted(groups, key=self._failing.__contains__):
            if error == ErrorCode.NETWORK_EXCEPTION:  # the broker is gone
                self._not_asked(group, by_group[group], error)
                continue
            error = await self._commit_group(group, by_group[group], attempts_max)
            self._note(group, error)
            if error in NO_COORDINATOR:
                attempts_max = 1

    def _not_asked(self, group: str, states: States, error: int) -> None:
        for window, _ in states:
            self._failed(window)
        self._note(group, error)

    async def _capture(self, asked: list[Window]) -> None:
        """The state of a full window takes some of a millisecond: a few at a time. All at once when
        the store is away, as each write waits for it.
        """
        at, count = 0, CAPTURED_AT_ONCE
        while at < len(asked):
            up = [window for window in asked[at : at + count] if window.life.core is not None]
            for window in up:
                window.perform(window.life.want_commit())
            await self._persister.persist()
            await asyncio.sleep(0)
            at += count
            if any(window.life.core is None for window in up):
                count = len(asked)

    def _to_commit(self) -> list[Window]:
        """The windows in which something has happened that Kafka may not know of, and a few others
        in turn: so a store that has lost its state is noticed also while nothing happens. Then all
        windows ask it. Each has its turn within half of the time after which it is committed again.
        """
        lost, self._persister.lost = self._persister.lost, False
        if lost:
            return self._table.all()
        stirred = {**self._uncommitted, **self._table.ticks.stirred}
        self._uncommitted = {window: None for window in stirred if window.life.commit_due}
        asked = dict(self._uncommitted)
        turns = 2 * self._table.count * self._interval_ms // self._commits.repeat_ms + 1
        asked.update(dict.fromkeys(self._table.in_turn(max(ASKED_AT_REST, turns))))
        return sorted(asked, key=_key_of)

    async def _commit_group(self, group: str, states: States, attempts_max: int) -> int:
        """Returns the first error; 0 = Kafka has all of them."""
        try:
            states, refused = await self._not_overtaken(group, states, attempts_max)
        except UpstreamError as error:
            for window, _ in states:
                self._failed(window)
            code = error.error_code if isinstance(error, Refused) else None
            return code or ErrorCode.NETWORK_EXCEPTION
        async with self._encoding:
            commits = await self._encoded(states)
        # Another node may have committed those that were handed over meanwhile.
        there = [self._table.find(window.key) is window for window, _ in states]
        states = list(compress(states, there))
        if not states:
            return refused
        left = list(compress(commits, there))
        errors = await self._commits.commit(group, left, attempts_max=attempts_max)
        for (window, state), error_code in zip(states, errors, strict=True):
            if error_code == 0:
                window.life.commit_taken(state, self._now_ms())
            else:
                self._failed(window)
        return next((error_code for error_code in errors if error_code != 0), refused)

    def _failed(self, window: Window) -> None:
        window.life.commit_failed()
        self.look_at(window)  # also if nothing happens in it

    async def _not_overtaken(
        self, group: str, states: States, attempts_max: int
    ) -> tuple[States, int]:
        """The windows without those whose position was set elsewhere, which are loaded again, and
        without those that Kafka says nothing of, with the first error of these. Raises
        UpstreamError.
        """
        doubtful = [window.partition for window, _ in states if window.life.looks_first()]
        if not doubtful:
            return states, 0
        found = await self._commits.fetch_some(group, doubtful, attempts_max=attempts_max)
        own: States = []
        refused = 0
        for window, state in states:
            committed = found.get(window.partition)
            if isinstance(committed, Refused):
                refused = refused or committed.error_code
                self._failed(window)
            elif committed is not None and overtakes(_origin_of(committed), state.origin):
                log.warning(
                    "position_set_elsewhere",
                    window=repr(window),
                    cursor=state.cursor,
                    committed=committed.offset,
                )
                window.look_again()
            else:
                own.append((window, state))
        return own, refused

    async def _encoded(self, states: States) -> list[Commit]:
        """The metadata of a full window takes a millisecond or two: others have their turn between
        any two.
        """
        chars_max = self._commits.metadata_chars_max
        commits: list[Commit] = []
        for window, state in states:
            metadata = encode_commit(
                state.cursor,
                state.settled,
                origin=state.origin,
                settled_ms=state.settled_ms,
                epochs=state.epochs,
                chars_max=chars_max,
            )
            commits.append(
                Commit(window.partition, state.cursor, metadata, last_epoch(state.epochs))
            )
            if len(state.settled) > LONG_RANGES:
                await asyncio.sleep(0)
        return commits

    def _note(self, group: str, error: int) -> None:
        """Logs one line when a group's commits start to fail, and one when they work again."""
        if error == self._failing.get(group, 0):
            return
        if error:
            self._failing[group] = error
            log.warning("commit_failed", group=group, error=error_name(error))
        else:
            del self._failing[group]
            log.info("commit_works_again", group=group)


def _key_of(window: Window) -> WindowKey:
    return window.key


def _origin_of(committed: Committed) -> int:
    """0: the commit is not one of a Key-Shared group."""
    return read_times(committed.offset, committed.metadata).origin
