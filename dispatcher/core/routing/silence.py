"""Members that are there and ask for nothing: an application that hangs while the heartbeats of its
client go on.

A member is heard when it fetches, while its fetch waits, and when it acknowledges. It is silent
- if a lock of its records ran out and it was not heard for HEARD_MS: a member at work may let the
  lock of one record run out;
- if records wait for it and it was not heard for a lock's duration.
When one falls silent, so do all that were not heard for a lock's duration: its keys shall not go
from one hung member to the next.

A silent member owns no key that another member accepts: its keys move as if it had left, each when
nothing of it is in flight any more. The first tick after it was heard again gives it its keys back,
as if it had joined: that is a pass over the window, and one request may be heard by a thousand
windows. Keys that only silent members accept wait for them.

Nothing of this is stored. After a restart every member counts as just heard.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

# A client at work fetches twice a second, or its fetch waits; and the node looks twice a second.
HEARD_MS: Final = 2_000

NOT_SILENT_MS: Final = 1 << 60  # a time that does not come
NOW_MS: Final = 0  # a time that has come


class Attention:
    """What is known of one member's attention to one window."""

    def __init__(self, now_ms: int) -> None:
        self.heard_ms = now_ms
        self.lock_ran_out = False  # since it was heard
        self.silent = False
        self.heard_again = False  # since it fell silent

    def heard(self, now_ms: int) -> None:
        self.heard_ms = now_ms
        self.lock_ran_out = False
        self.heard_again = self.silent

    def comes_back(self) -> bool:
        """Ends the silence of a member that was heard again."""
        if not self.heard_again:
            return False
        self.silent = self.heard_again = False
        return True

    def silent_ms(self, lock_duration_ms: int, *, records_wait: bool) -> int:
        """When it becomes silent if it is not heard and no other member falls silent, or comes
        back.
        """
        if self.silent:
            return NOW_MS if self.heard_again else NOT_SILENT_MS
        silent_ms = NOT_SILENT_MS
        if self.lock_ran_out:
            silent_ms = self.heard_ms + HEARD_MS
        if records_wait:
            silent_ms = min(silent_ms, self.heard_ms + lock_duration_ms)
        return silent_ms


def fall_silent(
    attentions: Sequence[Attention],
    records_wait: Sequence[bool],
    lock_duration_ms: int,
    now_ms: int,
) -> list[int]:
    """The places of the members that fall silent now; `records_wait`: for each of them."""
    due = [
        not attention.silent and attention.silent_ms(lock_duration_ms, records_wait=wait) <= now_ms
        for attention, wait in zip(attentions, records_wait, strict=True)
    ]
    fallen: list[int] = []
    if True in due:
        for at, attention in enumerate(attentions):
            unheard = now_ms - attention.heard_ms >= lock_duration_ms
            if not attention.silent and (due[at] or unheard):
                attention.silent = True
                fallen.append(at)
    return fallen
