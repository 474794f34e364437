"""Records that consumers hold, as they may believe: found by offset, key and member."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from dispatcher.core.model import (
    Acknowledge,
    AckType,
    Event,
    Gone,
    Key,
    MembersChanged,
    NotSent,
    SessionClosed,
)


@dataclass(slots=True)
class Hold:
    offset: int
    key: Key
    member: str
    session: str
    until_ms: int
    life: int  # of the core that handed it out
    lost_at_ms: float = math.inf  # its session
    expired: bool = False  # nobody may rely on it; an acknowledgement of it may still be taken
    leased: bool = True  # in the store, for certain: neither lock nor session has ended
    done: bool = False  # its holder has said so, and the window broke before that was persisted

    @property
    def place(self) -> tuple[str, str]:
        return (self.member, self.session)

    def ends_by_itself(self, now_ms: int) -> bool:
        """Its lock is over, whether or not a tick has told; or its session's grace runs."""
        return self.expired or self.until_ms <= now_ms or self.lost_at_ms <= now_ms

    def lose(self, now_ms: int) -> None:
        self.lost_at_ms = min(self.lost_at_ms, now_ms)
        self.leased = False  # until its grace is over, and that may be set anew meanwhile

    def runs_out(self, now_ms: int, grace_ms: int) -> bool:
        """Whether its time is over and somebody relied on it until now."""
        over = self.until_ms <= now_ms or self.lost_at_ms <= now_ms - grace_ms
        self.leased = self.leased and not over
        return over and not self.expired


class Holds:
    """Three views of the same holds. Any number of them per key and member, one per offset."""

    def __init__(self) -> None:
        self._by_offset: dict[int, Hold] = {}
        self._by_key: dict[bytes, dict[int, Hold]] = {}
        self._by_member: dict[str, dict[int, Hold]] = {}
        self.left_ms: dict[str, int] = {}  # when members left, whose grace may not be over
        self.lost_until_ms = 0  # locks of deliveries of lost records

    def __contains__(self, offset: int) -> bool:
        return offset in self._by_offset

    def __iter__(self) -> Iterator[Hold]:
        return iter(self._by_offset.values())

    def get(self, offset: int) -> Hold | None:
        return self._by_offset.get(offset)

    def of_key(self, key: bytes) -> dict[int, Hold]:
        return self._by_key.get(key, {})

    def of_member(self, member: str) -> list[Hold]:
        return list(self._by_member.get(member, {}).values())

    def fewer_than(self, most: int, member: str) -> bool:
        """Certainly: who leaves and joins again still has what it did not close."""
        return member not in self.left_ms and len(self.of_member(member)) < most

    def run_out(self, now_ms: int, grace_ms: int) -> list[Hold]:
        """Those past their lock, or their session's grace."""
        left = self.left_ms.items()
        self.left_ms = {name: left_ms for name, left_ms in left if now_ms < left_ms + grace_ms}
        return [hold for hold in self if hold.runs_out(now_ms, grace_ms)]

    def live_of(self, member: str) -> int:
        return sum(not hold.expired for hold in self._by_member.get(member, {}).values())

    def wrongly_returned(self, event: NotSent, returned: set[int]) -> list[int]:
        """Its offsets that were returned and that its session does not hold, and those that were
        not, and that it has leased for certain.
        """
        wrong = []
        for offset in event.offsets:
            hold = self._by_offset.get(offset)
            if hold is None or hold.place != (event.member_id, event.session_id):
                right = offset not in returned
            else:
                right = offset in returned or not hold.leased
            if not right:
                wrong.append(offset)
        return wrong

    def put(self, hold: Hold) -> None:
        self.pop(hold.offset)
        self._by_offset[hold.offset] = hold
        if hold.key is not None:
            self._by_key.setdefault(hold.key, {})[hold.offset] = hold
        self._by_member.setdefault(hold.member, {})[hold.offset] = hold

    def pop(self, offset: int) -> Hold | None:
        hold = self._by_offset.pop(offset, None)
        if hold is not None:
            if hold.key is not None:
                del self._by_key[hold.key][offset]
            del self._by_member[hold.member][offset]
        return hold

    def end(self, offset: int, *, lost: bool) -> None:
        """It is settled; `lost`: for no other cause than that the log has lost it. Then nobody may
        work on it.
        """
        hold = self.pop(offset)
        worked_on = hold is not None and hold.leased and not hold.expired
        assert not (lost and worked_on), f"the log lost {offset}, still with {hold}"

    def refused(self, event: Event) -> None:
        """The window broke, and nothing is kept of it: work that it ended is done all the same."""
        for hold in self:
            hold.done |= _ends(event, hold)

    def nobody_works_on(self, first: int, now_ms: int) -> None:
        """The window has forgotten its records from `first` on, which the log has lost. Whoever
        works on one still would be at work beside whoever gets the next record of that key.
        """
        held = [hold for hold in self if hold.offset >= first and hold.leased and not hold.done]
        worked_on = [hold for hold in held if not hold.ends_by_itself(now_ms)]
        assert not worked_on, f"{worked_on} are forgotten"

    def forget_from(self, first: int) -> None:
        """The log has lost these records. The window may still know of their deliveries."""
        for hold in [hold for hold in self if hold.offset >= first]:
            self.pop(hold.offset)
            self.lost_until_ms = max(self.lost_until_ms, hold.until_ms)

    def clear(self) -> None:
        self._by_offset.clear()
        self._by_key.clear()
        self._by_member.clear()


def _ends(event: Event, hold: Hold) -> bool:
    match event:
        case Acknowledge():
            kinds = [
                types[(hold.offset - first) % len(types)]
                for first, last, types in event.batches
                if first <= hold.offset <= last
            ]
            return hold.member == event.member_id and kinds not in ([], [AckType.RENEW])
        case NotSent() | Gone():
            return hold.member == event.member_id and hold.offset in event.offsets
        case SessionClosed():
            return hold.place == (event.member_id, event.session_id)
        case MembersChanged():
            return hold.member not in [member.member_id for member in event.members]
        case _:
            return False
