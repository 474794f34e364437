"""Leader epochs of a window, and where its log leaves the leader's."""

from __future__ import annotations

import pytest

from dispatcher.core.epochs import NOT_KNOWN, Epochs, epoch_at, last_epoch, noted, parted
from dispatcher.core.limits import EPOCHS_MAX

CURSOR = 4
READ: Epochs = ((0, 0), (1, 5), (3, 9))  # up to 12
COMMITTED: Epochs = ((1, NOT_KNOWN),)


@pytest.mark.parametrize(
    ("epochs", "end", "epoch", "left"),
    [
        (READ, 10, 3, (10, READ)),
        (READ, 9, 1, (9, READ[:2])),
        (READ, 7, 1, (7, READ[:2])),
        # The leader has more of epoch 0 than the window: the log parted twice.
        (READ, 10, 0, (5, READ[:1])),
        (READ, 11, 2, (9, READ[:2])),
        (READ[1:], 10, 0, (5, ((0, NOT_KNOWN),))),
        (READ, 3, 0, (3, READ[:1])),
        # Where epoch 1 began is not known.
        (COMMITTED, 10, 1, (10, COMMITTED)),
        (COMMITTED, 10, 0, (CURSOR, ((0, NOT_KNOWN),))),
        (COMMITTED, 2, 0, (2, ((0, NOT_KNOWN),))),
        ((), 10, 0, (10, ((0, NOT_KNOWN),))),
        # The leader has not got to any of them.
        (READ, 10, -1, (10, ())),
    ],
)
def test_the_log_is_left_where_the_window_s_own_later_epochs_began(
    epochs: Epochs, end: int, epoch: int, left: tuple[int, Epochs]
) -> None:
    assert parted(epochs, end, epoch, CURSOR) == left


def test_a_read_notes_where_its_epoch_begins() -> None:
    assert noted((), 0, 3) == ((0, 3),)
    assert noted(READ, 3, 12) is READ
    assert noted(READ, 4, 12) == (*READ, (4, 12))
    assert noted(COMMITTED, 4, 12) == (*COMMITTED, (4, 12))
    assert noted(READ, 4, 7) == (*READ[:2], (4, 7)), "what was read of 3 is forgotten"
    assert noted(READ, 1, 7) == READ[:2]
    assert noted(COMMITTED, 0, 12) == COMMITTED, "it is not worth less"


def test_the_first_and_the_latest_are_kept() -> None:
    epochs: Epochs = ()
    for epoch in range(2 * EPOCHS_MAX):
        epochs = noted(epochs, epoch, 10 * epoch)
    assert len(epochs) == EPOCHS_MAX
    assert epochs[0] == (0, 0)
    assert last_epoch(epochs) == 2 * EPOCHS_MAX - 1
    for epoch in range(2 * EPOCHS_MAX - 1):
        end, _ = parted(epochs, 1_000, epoch, cursor=900)
        assert end <= 10 * (epoch + 1), "a record of another leader"


def test_the_epoch_of_an_offset() -> None:
    assert [epoch_at(READ, offset) for offset in (0, 4, 5, 9, 20)] == [0, 0, 1, 3, 3]
    assert epoch_at(READ[1:], 0) == 1, "no later one"
    assert epoch_at((), 0) == NOT_KNOWN
