"""Which upstream brokers a node reaches, as it tells the other nodes.

A node that Kafka alone does not reach lives on in Redis: it would keep virtual brokers whose
clients it cannot serve. So each node says which brokers do not answer it, and which do; another
node gets a virtual broker if it reaches what the owner does not (ownership.py).

Only what lasts is said, for a broker that restarts is silent to all nodes, and each of them notices
it a moment earlier or later than the others. A node says that it reaches a broker after more time
than it takes for the others to say that they do not, or do again: nothing moves for a restart.
"""

from __future__ import annotations

from collections.abc import Mapping


class Reach:
    """Of one node, by a monotonic clock. A broker counts as silent once it has not answered for
    `silent_s`, until it has answered for as long; as reached once it has answered for `reached_s`.
    """

    def __init__(self, silent_s: float, reached_s: float) -> None:
        self._silent_s = silent_s
        self._reached_s = reached_s
        self._since_s: dict[int, tuple[bool, float]] = {}  # by broker: whether it answers
        self.silent: frozenset[int] = frozenset()
        self.reached: frozenset[int] = frozenset()

    def look(self, answering: Mapping[int, bool], now_s: float) -> None:
        """`answering`: all brokers that are known, and whether each answers now."""
        for broker, answers in answering.items():
            if self._since_s.get(broker, (not answers,))[0] is not answers:
                self._since_s[broker] = answers, now_s
        for broker in self._since_s.keys() - answering.keys():
            del self._since_s[broker]
        lasting = {
            broker: answers
            for broker, (answers, since_s) in self._since_s.items()
            if now_s - since_s >= self._silent_s
        }
        silent = {broker for broker, answers in lasting.items() if not answers}
        still = self.silent & (answering.keys() - lasting.keys())
        self.silent = frozenset(silent | still)
        self.reached = frozenset(
            broker
            for broker, (answers, since_s) in self._since_s.items()
            if answers and now_s - since_s >= self._reached_s
        )
