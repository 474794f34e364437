from __future__ import annotations

from gateway.routing.moves import PendingMoves


def test_the_longest_pending_move_counts_from_when_it_was_seen() -> None:
    now_s = 10.0
    moves = PendingMoves(lambda: now_s)
    assert moves.longest_s() == 0
    moves.look({1: "a"})
    now_s = 15.0
    moves.look({1: "a", 2: "a"})
    assert moves.longest_s() == 5
    moves.look({1: "b", 2: "a"})  # another target is another move
    now_s = 18.0
    assert moves.longest_s() == 3
    moves.look({})
    assert moves.longest_s() == 0
