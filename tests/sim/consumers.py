"""Simulated share consumers: they fetch, work, acknowledge; they stall, die, leave and come back.

A consumer that got nothing from any partition waits until it is told that there is something: a
lost wake-up stops it for good, which the progress checker sees, and `World` at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dispatcher.core.model import (
    Acknowledge,
    AckType,
    Acquire,
    Gone,
    Member,
    MemberId,
    NotSent,
    Reason,
    SessionId,
)
from dispatcher.core.steps import Delivered, Effect
from tests.sim.window import Window

if TYPE_CHECKING:
    from tests.sim.world import World

SESSION_TIMEOUT_MS = 2_000
RECONNECT_MS_MAX = 300
RETRY_MS = 100


class Consumer:
    def __init__(self, world: World, name: str, filters: tuple[bytes, ...]) -> None:
        self.world = world
        self.member = Member(MemberId(name), filters)
        self.member_id = self.member.member_id
        self.sessions = 0
        self.session: SessionId | None = None  # None: not connected
        self.joined = False
        self.fetching = False  # or working on its records
        self.parked = False  # got nothing and waits to be woken
        self.woken = False  # meanwhile
        self.wakes = 0  # on their way
        self.hung = 0  # hangs under way
        # (window, offset), of earlier sessions and topics too: a zombie's memory.
        self.held: list[tuple[Window, int]] = []

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
        self.world.gateway.open_session(self.member_id, self.session)
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
        if self.session is not None:
            self.world.gateway.lose_session(self.member_id, self.session)
            self.disconnected()

    def close_session(self) -> None:
        if self.session is not None:
            self.world.gateway.close_session(self.member_id, self.session)
            self.disconnected()

    def leave(self) -> None:
        self.close_session()
        self._gone()
        self._remove(Reason.MEMBER_LEFT)

    def die(self) -> None:
        """kill -9: the node sees the connection break, or not even that before the eviction."""
        session = self.session
        if session is not None and self.world.rng.random() < 0.5:
            self.world.gateway.lose_session(self.member_id, session)
            session = None
        self._gone()
        self.world.after(SESSION_TIMEOUT_MS, lambda: self._evict(session))

    def hang(self, ms: int) -> None:
        """The application stops, its client does not."""
        self.hung += 1
        self.fetching = False
        self.parked = False
        self.world.after(ms, self._goes_on)

    def _goes_on(self) -> None:
        self.hung -= 1
        self.fetch()

    def _gone(self) -> None:
        self.joined = False
        self.session = None
        self.fetching = False
        self.parked = False
        # Perhaps another comes back under the same name, before or after the eviction.
        self.world.after(self.world.rng.randint(200, 4_000), self.join)

    def _evict(self, session: SessionId | None) -> None:
        gateway = self.world.gateway
        if session is not None and session in gateway.sessions:
            gateway.lose_session(self.member_id, session)
        if not self.joined:
            self._remove(Reason.MEMBER_EVICTED)

    def _remove(self, reason: Reason) -> None:
        members = dict(self.world.gateway.members)
        if members.pop(self.member_id, None) is not None:
            self.world.gateway.set_members(members, reason)

    def refilter(self, filters: tuple[bytes, ...]) -> None:
        """The rules that give it its filters have changed: its place among the members stays."""
        gateway = self.world.gateway
        self.member = Member(self.member_id, filters)
        if self.member_id in gateway.members:
            members = {**gateway.members, self.member_id: self.member}
            gateway.set_members(members, Reason.MEMBER_LEFT)

    # -------------------------------------------------------------------------------------- fetches

    def ready(self) -> None:
        self.wakes -= 1
        if self.parked:
            self.fetch()
        else:
            self.woken = True

    def fetch(self) -> None:
        session = self.session
        if session is None or self.fetching or self.hung:
            return
        self.fetching = True
        self.parked = False
        self.woken = False
        rng = self.world.rng
        windows = [*self.world.gateway.windows]
        first = rng.randrange(len(windows)) if len(windows) > 1 else 0
        records_max = min(rng.choice((1, 2, 5, 50)), self.world.options.fetch_max)
        if self.world.unkind.works_ms(self) is not None:
            records_max = 1
        self._ask(session, windows[first:] + windows[:first], records_max, failed=False)

    def _ask(
        self, session: SessionId, windows: list[Window], records_max: int, *, failed: bool
    ) -> None:
        """One partition after the other, until one has something."""
        if not windows:
            self._got_nothing(session, failed=failed)
            return
        window, *others = windows
        event = Acquire(self.member_id, session, records_max, self.world.now_ms)

        def answer(effects: list[Effect]) -> None:
            offsets = [o for e in effects if isinstance(e, Delivered) for o in e.offsets]
            if offsets:
                self._received(window, session, offsets)
            elif session == self.session:
                self._ask(session, others, records_max, failed=failed or not effects)

        if not window.handle(event, answer):
            self._ask(session, others, records_max, failed=True)  # a retriable error

    def _got_nothing(self, session: SessionId, *, failed: bool) -> None:
        if failed:
            self.world.after(RETRY_MS, lambda: self._fetch_again(session))
        elif self.woken:
            self.world.after(0, lambda: self._fetch_again(session))
        else:
            self.fetching = False
            self.parked = not self.hung

    def _received(self, window: Window, session: SessionId, offsets: list[int]) -> None:
        if session != self.session:
            return  # Delivered into a broken connection.
        rng = self.world.rng
        if lost := [offset for offset in offsets if offset in window.log.gone]:
            window.handle(Gone(self.member_id, session, lost, self.world.now_ms))
            offsets = [offset for offset in offsets if offset not in lost]
            if not offsets:
                self.world.after(0, lambda: self._fetch_again(session))
                return
        if rng.random() < self.world.faults.not_sent:
            failed = offsets[rng.randrange(len(offsets)) :]
            window.handle(NotSent(self.member_id, session, failed, self.world.now_ms))
            offsets = offsets[: len(offsets) - len(failed)]
        self.held += [(window, offset) for offset in offsets]
        if rng.random() < self.world.faults.foreign_ack:
            self._acknowledge_foreign(session)
        delay_ms = self.world.unkind.works_ms(self)
        if rng.random() < self.world.faults.stall:
            delay_ms = rng.randint(500, 40_000)
        if delay_ms is not None:
            self.world.after(delay_ms, lambda: self._work(window, session, offsets))
            self.world.after(delay_ms, lambda: self._fetch_again(session))
            return
        self.world.after(rng.randint(1, 30), lambda: self._work(window, session, offsets))
        self.world.after(rng.randint(1, 40), lambda: self._fetch_again(session))

    def _fetch_again(self, session: SessionId) -> None:
        if session == self.session:
            self.fetching = False
            self.fetch()

    # --------------------------------------------------------------------------------- acknowledges

    def _work(self, window: Window, session: SessionId, offsets: list[int]) -> None:
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
        rng = self.world.rng
        batches = [_shorter(batch) for batch in batches]
        rng.shuffle(batches)
        half = rng.randint(0, len(batches))
        self._send(window, session, sorted(batches[:half]))
        later = sorted(batches[half:])
        if later:
            self.world.after(rng.randint(0, 20), lambda: self._send(window, session, later))
        if again:
            self.world.after(rng.randint(50, 1_000), lambda: self._work(window, session, again))

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

    def _send(
        self, window: Window, session: SessionId, batches: list[tuple[int, int, bytes]]
    ) -> None:
        if batches and not self.hung:
            window.handle(Acknowledge(self.member_id, session, batches, self.world.now_ms))

    def _acknowledge_foreign(self, session: SessionId) -> None:
        """Acknowledges records that were its own once, another's, or nobody's."""
        rng = self.world.rng
        if self.held and rng.random() < 0.5:
            window, offset = rng.choice(self.held)
        else:
            window, offset = rng.choice(self.world.gateway.windows), rng.randint(0, 200)
        last = offset + rng.choice((0, 0, 3))
        self._send(window, session, [(offset, last, bytes([rng.randint(0, 3)]))])


def _shorter(batch: tuple[int, int, bytes]) -> tuple[int, int, bytes]:
    """One type for the whole batch where that says the same, as clients do."""
    first, last, types = batch
    return (first, last, types[:1]) if types.count(types[0]) == len(types) else batch
