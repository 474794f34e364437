"""Who is let go when clients do not read: by how much they hold, and for how long."""

from __future__ import annotations

from dataclasses import dataclass, field

from gateway.listen.bounds import Bounds
from gateway.listen.counters import Refused
from gateway.listen.limits import (
    ANSWER_IDLE_MS,
    ANSWER_RESTING_MS,
    ANSWERS_HELD_BYTES_MAX,
    FORWARDED_HELD_MS,
    HELD_BYTES_MAX,
)


@dataclass
class Client:
    unread_bytes: int
    refused: list[Refused] = field(default_factory=list)
    waits_for_request: bool = False

    def refuse(self, reason: Refused, held_bytes: int) -> None:
        assert held_bytes == self.unread_bytes
        self.refused.append(reason)


@dataclass
class Node:
    """Clients that do not read, from now on."""

    clients: list[Client]
    now_ms: int = 0

    def __post_init__(self) -> None:
        self.bounds = Bounds(lambda number: self.clients[number], lambda: self.now_ms)
        for number, client in enumerate(self.clients):
            self.bounds.hold_answer(number, client.unread_bytes)

    def after(self, ms: int) -> list[list[Refused]]:
        self.now_ms = ms
        self.bounds.look()
        return [client.refused for client in self.clients]


def test_consumers_at_work_are_not_let_go_for_what_was_read_ahead() -> None:
    """A thousand of them, each with as much as the node reads ahead."""
    many = 2 * ANSWERS_HELD_BYTES_MAX // HELD_BYTES_MAX
    node = Node([Client(HELD_BYTES_MAX) for _ in range(many)])
    assert not any(node.after(FORWARDED_HELD_MS - 1))
    assert sum(map(len, node.after(FORWARDED_HELD_MS))) == many // 2, "down to the limit"


def test_who_reads_a_little_now_and_then_is_let_go_as_who_reads_nothing() -> None:
    many = 2 * ANSWERS_HELD_BYTES_MAX // HELD_BYTES_MAX
    node = Node([Client(HELD_BYTES_MAX) for _ in range(many)])
    for second in range(1, FORWARDED_HELD_MS // 1_000):
        for client in node.clients:
            client.unread_bytes -= 1_024
        assert not any(node.after(second * 1_000))
    assert any(node.after(FORWARDED_HELD_MS))


def test_of_those_that_rest_the_answer_that_was_made_here_goes_first() -> None:
    many = ANSWERS_HELD_BYTES_MAX // HELD_BYTES_MAX
    node = Node([Client(HELD_BYTES_MAX + 1), *(Client(HELD_BYTES_MAX) for _ in range(many))])
    refused = node.after(ANSWER_RESTING_MS)
    assert refused[0] == [Refused.ANSWERS_HELD]
    assert not any(refused[1:])


def test_a_client_that_never_reads_again_is_let_go() -> None:
    node = Node([Client(1_000)])
    assert node.after(ANSWER_IDLE_MS - 1) == [[]]
    assert node.after(ANSWER_IDLE_MS) == [[Refused.ANSWER_STALLED]]
