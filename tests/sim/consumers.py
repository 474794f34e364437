"""Simulated share consumers: they fetch, work, acknowledge; they stall, die, leave and come back.

A consumer that got nothing waits until it is told that there is something: a lost wake-up stops it
for good, which the progress checker sees.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dispatcher.core.model import (
    Acknowledge,
    AckType,
    Acquire,
    Delivered,
    Effect,
    Member,
    MemberId,
    NotSent,
    Reason,
    SessionClosed,
    SessionId,
    SessionLost,
    SessionOpened,
)

if TYPE_CHECKING:
    from tests.sim.world import World

SESSION_TIMEOUT_MS = 2_000
RECONNECT_MS_MAX = 300


class Consumer:
    def __init__(self, world: World, name: str, filters: tuple[bytes, ...]) -> None:
        self.world = world
        self.member = Member(MemberId(name), filters)
        self.member_id = self.member.member_id
        self.sessions = 0
        self.session: SessionId | None = None  # None: not connected
        self.joined = False
        self.parked = False
        self.fetching = False
        self.held: list[int] = []  # offsets of earlier sessions too: a zombie's memory

    def __repr__(self) -> str:
        return f"<{self.member_id} {self.session}>"

    # ------------------------------------------------------------------------------- comes and goes

    def join(self) -> None:
        gateway = self.world.gateway
        self.joined = True
        if self.member_id not in gateway.members:
            members = {**gateway.members, self.member_id: self.member}
            gateway.set_members(members, Reason.MEMBER_LEFT)
        self.connect()

    def connect(self) -> None:
        if not self.joined or self.session is not None:
            return
        self.sessions += 1
        self.session = SessionId(f"{self.member_id}/{self.sessions}")
        if not self.world.gateway.handle(
            SessionOpened(self.member_id, self.session, self.world.now_ms)
        ):
            self.disconnected()
            return
        self.fetching = False
        self.parked = False
        self.fetch()

    def disconnected(self) -> None:
        """The connection broke; a live consumer opens another."""
        self.session = None
        self.fetching = False
        self.parked = False
        if self.joined:
            self.world.after(self.world.rng.randint(1, RECONNECT_MS_MAX), self.connect)

    def disconnect(self) -> None:
        session = self.session
        if session is not None:
            self.world.gateway.handle(SessionLost(self.member_id, session, self.world.now_ms))
            self.disconnected()

    def close_session(self) -> None:
        session = self.session
        if session is not None:
            self.world.gateway.handle(SessionClosed(self.member_id, session, self.world.now_ms))
            self.disconnected()

    def leave(self) -> None:
        self.close_session()
        self._gone()
        self._remove(Reason.MEMBER_LEFT)

    def die(self) -> None:
        """kill -9: the node sees the connection break, or not even that."""
        session = self.session
        if session is not None and self.world.rng.random() < 0.5:
            self.world.gateway.handle(SessionLost(self.member_id, session, self.world.now_ms))
        self._gone()
        self.world.after(SESSION_TIMEOUT_MS, self._evict)

    def _gone(self) -> None:
        self.joined = False
        self.session = None
        self.fetching = False
        self.parked = False
        # Perhaps another comes back under the same name, before or after the eviction.
        self.world.after(self.world.rng.randint(200, 4_000), self.join)

    def _evict(self) -> None:
        if not self.joined:
            self._remove(Reason.MEMBER_EVICTED)

    def _remove(self, reason: Reason) -> None:
        members = dict(self.world.gateway.members)
        if members.pop(self.member_id, None) is not None:
            self.world.gateway.set_members(members, reason)

    # -------------------------------------------------------------------------------------- fetches

    def ready(self) -> None:
        if self.parked or not self.fetching:
            self.parked = False
            self.fetch()

    def fetch(self) -> None:
        session = self.session
        if session is None or self.fetching:
            return
        self.fetching = True
        records_max = self.world.rng.choice((1, 2, 5, 50))
        event = Acquire(self.member_id, session, records_max, self.world.now_ms)

        def answer(effects: list[Effect]) -> None:
            for effect in effects:
                if isinstance(effect, Delivered):
                    self._received(session, effect.offsets)
            if not effects and session == self.session:
                self.fetching = False
                self.world.after(100, self.fetch)

        if not self.world.gateway.handle(event, answer):
            self.fetching = False
            self.world.after(100, self.fetch)  # a retriable error

    def _received(self, session: SessionId, offsets: list[int]) -> None:
        if session != self.session:
            return  # Delivered into a broken connection.
        if not offsets:
            self.fetching = False
            self.parked = True
            return
        rng = self.world.rng
        if rng.random() < self.world.faults.not_sent:
            failed = offsets[rng.randrange(len(offsets)) :]
            self.world.gateway.handle(NotSent(self.member_id, session, failed, self.world.now_ms))
            offsets = offsets[: len(offsets) - len(failed)]
        self.held += offsets
        if rng.random() < self.world.faults.foreign_ack:
            self._acknowledge_foreign(session)
        if rng.random() < self.world.faults.stall:
            delay_ms = rng.randint(500, 40_000)
            self.world.after(delay_ms, lambda: self._work(session, offsets))
            self.world.after(delay_ms, lambda: self._fetch_again(session))
            return
        self.world.after(rng.randint(1, 30), lambda: self._work(session, offsets))
        self.world.after(rng.randint(1, 40), lambda: self._fetch_again(session))

    def _fetch_again(self, session: SessionId) -> None:
        if session == self.session:
            self.fetching = False
            self.parked = False
            self.fetch()

    # --------------------------------------------------------------------------------- acknowledges

    def _work(self, session: SessionId, offsets: list[int]) -> None:
        """One verdict per record, then acknowledged, in one or several requests.

        A zombie whose session is gone does the same: it does not know.
        """
        batches: list[tuple[int, int, bytes]] = []
        again: list[int] = []
        for offset in offsets:
            kind = self._verdict()
            if kind is None:
                continue
            if kind is AckType.RENEW:
                again.append(offset)
            last = batches[-1] if batches else None
            if last is not None and last[1] == offset - 1 and len(last[2]) == last[1] - last[0] + 1:
                batches[-1] = (last[0], offset, last[2] + bytes([kind]))
            else:
                batches.append((offset, offset, bytes([kind])))
        self.world.rng.shuffle(batches)
        half = self.world.rng.randint(0, len(batches))
        self._send(session, [*batches[:half]])
        later = batches[half:]
        if later:
            self.world.after(self.world.rng.randint(0, 20), lambda: self._send(session, later))
        if again:
            self.world.after(self.world.rng.randint(50, 1_000), lambda: self._work(session, again))

    def _verdict(self) -> AckType | None:
        faults, draw = self.world.faults, self.world.rng.random()
        for kind, chance in (
            (AckType.RELEASE, faults.release),
            (AckType.REJECT, faults.reject),
            (AckType.GAP, faults.gap),
            (AckType.RENEW, faults.renew),
            (None, faults.forget),
        ):
            if draw < chance:
                return kind
            draw -= chance
        return AckType.ACCEPT

    def _send(self, session: SessionId, batches: list[tuple[int, int, bytes]]) -> None:
        if batches:
            event = Acknowledge(self.member_id, session, batches, self.world.now_ms)
            self.world.gateway.handle(event)

    def _acknowledge_foreign(self, session: SessionId) -> None:
        """What it held long ago, what others hold, what nobody has: with this session's name."""
        rng = self.world.rng
        remembered = self.held and rng.random() < 0.5
        offset = rng.choice(self.held) if remembered else rng.randint(0, 200)
        last = offset + rng.choice((0, 0, 3))
        self._send(session, [(offset, last, bytes([rng.randint(0, 3)]))])
