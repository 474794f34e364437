"""The simulated node: its windows, the group's members and sessions, the store, and its crashes.

SavedMembers outlive a crash of the node (they are kept in the store), sessions do not.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

from dispatcher.core.life.idle_windows import IdleWindows
from dispatcher.core.life.missed_sessions import missed_ends, open_sessions
from dispatcher.core.model import (
    Event,
    LogTruncated,
    Member,
    MemberId,
    MembersChanged,
    OperatorVerb,
    Reason,
    SessionClosed,
    SessionId,
    SessionLost,
    SessionOpened,
)
from dispatcher.core.steps import Snapshot
from dispatcher.store.memory import MemoryStore
from tests.sim.window import Window

if TYPE_CHECKING:
    from tests.sim.world import World

TICK_MS = 500
BROKER = 1


class Gateway:
    def __init__(self, world: World) -> None:
        self.world = world
        self.store = MemoryStore()
        self.file = self.store.dump()  # the state that the store may be set back to
        self.windows: list[Window] = []
        self.members: dict[MemberId, Member] = {}
        # Those that left not long ago; their own draw, which changes no other one.
        self.departed: dict[MemberId, Member] = {}
        self.waits_ms = Random(world.seed).choice((0, 0, 3_000, 60_000))
        self.sessions: dict[SessionId, MemberId] = {}  # open ones
        self.ended: set[SessionId] = set()  # of those that this node opened
        self.closed: set[SessionId] = set()  # of those, the ones that were not lost
        self.topics = 0
        self.idle = self._idle_windows()
        self.kafka_away = False

    def _idle_windows(self) -> IdleWindows[Window]:
        return IdleWindows(lambda _: bool(self.members), self.world.options.idle_ms_max)

    # -------------------------------------------------------------------------------------- windows

    def create_topic(self, partitions: int) -> None:
        """A new topic id, so new windows: nothing of the one before is of use."""
        for window in self.windows:
            window.close()
            self.idle.forget(window)
            self.store.windows.pop(window.key, None)
            self.store.fences.pop(window.key, None)
        self.windows = []
        self.topics += 1
        for _ in range(partitions):
            self.add_partition()

    def add_partition(self) -> Window:
        window = Window(self.world, f"topic-{self.topics}", len(self.windows))
        claimed = self.store.claim_now(window.key, "node")
        self.store.create_now(window.key, claimed.fence, Snapshot(cursor=0))
        self.windows.append(window)
        self.idle.look_at([window])
        window.start()
        return window

    def post(self, event: Event) -> None:
        """To all windows; one that is not up learns of it when it is loaded."""
        for window in self.windows:
            window.handle(event)

    def set_members(self, members: dict[MemberId, Member], reason: Reason) -> None:
        gone = {name: one for name, one in self.members.items() if name not in members}
        self.members = members
        if self.waits_ms:
            self.departed |= gone
            self.world.after(self.waits_ms, lambda: self._forget(gone))
        if members:
            self._wake()
        else:
            self.idle.look_at(self.windows)
        self.post(MembersChanged(self.told_members(), self.world.now_ms, reason))

    def told_members(self) -> tuple[Member, ...]:
        """With those that are awaited."""
        there = tuple(self.members.values())
        if not there or not self.world.policy.reliable:
            return there
        return there + tuple(replace(one, awaited=True) for one in self.departed.values())

    def _forget(self, gone: dict[MemberId, Member]) -> None:
        for name, member in gone.items():
            if self.departed.get(name) is member:
                del self.departed[name]
        members = self.told_members()
        self.post(MembersChanged(members, self.world.now_ms, Reason.MEMBER_LEFT))

    def _wake(self) -> None:
        for window in self.windows:
            if window.left:
                window.come_back()
                self.idle.look_at([window])
            elif self.idle.woken(window):
                window.look_again("members are back")

    def write_file(self) -> None:
        self.file = self.store.dump()
        for window in self.windows:
            if not window.set_back:  # else the store still is as in the file
                window.checkers.write_file()

    def set_back(self) -> None:
        """The store comes back with its file; a window sees that with its next step or commit."""
        self.store.set_back(self.file)
        for window in self.windows:
            window.set_back = True
        self.world.note("SetBack")

    # ------------------------------------------------------------------------------------- sessions

    def open_session(self, member_id: MemberId, session_id: SessionId) -> None:
        self.sessions[session_id] = member_id
        self.post(SessionOpened(member_id, session_id, self.world.now_ms))

    def lose_session(self, member_id: MemberId, session_id: SessionId) -> None:
        self._end(session_id)
        self.post(SessionLost(member_id, session_id, self.world.now_ms))

    def close_session(self, member_id: MemberId, session_id: SessionId) -> None:
        self._end(session_id)
        self.closed.add(session_id)
        self.post(SessionClosed(member_id, session_id, self.world.now_ms))

    def missed(self, snapshot: Snapshot) -> list[Event]:
        """For a window that was just loaded. There is one broker, which leads all partitions."""
        now_ms = self.world.now_ms
        sessions = [(member, session, BROKER) for session, member in self.sessions.items()]
        was_closed = self.closed.__contains__
        left = self.closed.__contains__  # who leaves closes its session first
        ended = missed_ends(snapshot.leases, self.ended.__contains__, was_closed, left, now_ms)
        return ended + open_sessions(sessions, BROKER, now_ms)

    def _end(self, session_id: SessionId) -> None:
        del self.sessions[session_id]
        self.ended.add(session_id)

    # ---------------------------------------------------------------------------------- every while

    def tick(self) -> None:
        for window in self.windows:
            window.tick()
        for window in self.idle.tick(self.world.now_ms):
            if self.idle.still_idle(window) and window.may_leave:
                window.leave()
                self.idle.forget(window)
                self.world.note("LeftMemory")

    def look_at_log_starts(self) -> None:
        """As gateway/windows/log_starts.py."""
        for window in self.windows:
            core, start = window.core, window.log.start
            if core is not None and core.cursor < min(start, core.known_end):
                window.handle(LogTruncated(start, self.world.now_ms))

    def commit_now(self) -> None:
        for window in self.windows:
            window.commit_now()

    def operator(self, verb: OperatorVerb) -> None:
        for window in self.windows:
            window.operator(verb)

    def retune(self) -> None:
        for window in self.windows:
            window.life.retune(self.world.policy)

    def crash(self, when: str) -> None:
        """The process is gone, and every connection with it."""
        self.world.reshape()
        self.sessions.clear()
        self.ended.clear()
        self.closed.clear()
        self.idle = self._idle_windows()
        for window in self.windows:
            window.crash(when, opens=bool(self.members))
        self.idle.look_at(owned for owned in self.windows if not owned.left)
        self.world.disconnect_all()
