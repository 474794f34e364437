"""Other records wait for another window than before (hold.py)."""

from __future__ import annotations

from dispatcher.core.hold import HoldMoved
from dispatcher.core.records.state import WindowState


def hold_moved(state: WindowState, event: HoldMoved) -> None:
    """O(span + keys aside), if it is another hold."""
    if event.hold != state.hold:
        state.hold = event.hold
        state.relist()
