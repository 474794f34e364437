"""What stays on the board, and what is news."""

from __future__ import annotations

from offsets.core.board import Board
from offsets.core.entries import (
    APPLIED,
    BOTH,
    ENTRY,
    ROW,
    VERSION,
    Applied,
    Entry,
    encode_applied,
    encode_entry,
    key_of,
)
from offsets.core.switches import SWITCH, SwitchReport, encode_report

PLACE, OTHER = ("billing", "orders", 0), ("billing", "orders", 1)
SHOWN = b'{"version":%d}' % VERSION


def tell(board: Board, *entries: Entry) -> None:
    for entry in entries:
        board.read(key_of(ENTRY, entry.place, entry.source), encode_entry(entry))


def test_an_entry_is_news_once() -> None:
    board = Board()
    first, second = Entry(*PLACE, "A", 5, offset=1), Entry(*PLACE, "A", 6, offset=2)
    tell(board, first, second, Entry(*OTHER, "A", 6, deleted=True))
    assert board.news() == [second, Entry(*OTHER, "A", 6, deleted=True)]
    tell(board, second)
    assert board.news() == []
    assert list(board.places) == [PLACE, OTHER]
    assert board.newest(PLACE, besides="B") == second
    assert board.newest(PLACE, besides="A") is None
    assert board.newest(OTHER, besides="B") is None, "it is deleted"


def test_what_is_told_of_a_deleted_commit_ends_after_a_while() -> None:
    """And what stands beside it: the decision, and the commit that was made from it."""
    board = Board()
    tell(board, Entry(*PLACE, "A", 1_000, deleted=True), Entry(*OTHER, "A", 1_000, deleted=True))
    tell(board, Entry(*OTHER, "C", 500))
    for place in (PLACE, OTHER):
        board.read(key_of(ROW, place, "A"), SHOWN)
        board.read(key_of(APPLIED, place), encode_applied(Applied(7, "", "A", 5)))
    gone_from_both = key_of(BOTH, ("gone", "", 0))
    for key in (key_of(BOTH, (OTHER[0], "", 0)), gone_from_both):
        board.read(key, SHOWN)
    assert board.expired(1_000) == [gone_from_both]
    keys = board.expired(1_001)
    assert set(keys) == {
        key_of(ENTRY, PLACE, "A"),
        key_of(ENTRY, OTHER, "A"),
        key_of(ROW, PLACE, "A"),
        key_of(ROW, OTHER, "A"),
        key_of(APPLIED, PLACE),
        gone_from_both,
    }
    for key in keys:
        board.read(key, None)
    assert list(board.places) == [OTHER]
    assert list(board.applied) == [OTHER]
    assert board.rows == {}
    assert board.both == {OTHER[0]}
    assert board.expired(10**15) == []


def test_all_of_a_board_can_be_written_again() -> None:
    """Its topic may be deleted while the service runs."""
    board, again = Board(), Board()
    tell(board, Entry(*PLACE, "A", 1_000, offset=3), Entry(*OTHER, "C", 500, deleted=True))
    board.read(key_of(ROW, PLACE, "A"), b'{"version":%d,"new":7}' % VERSION)
    board.read(key_of(APPLIED, PLACE), encode_applied(Applied(7, "", "A", 5)))
    board.read(key_of(BOTH, (PLACE[0], "", 0)), SHOWN)
    switch = SwitchReport("B", 2, "B", generation=1, target="A", rewind=False, done=True)
    board.read(key_of(SWITCH, switch.place, switch.source), encode_report(switch))
    for key, value in board.records():
        again.read(key, value)
    assert again == board
    assert again.malformed == 0
