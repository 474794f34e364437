"""The same question to several clusters at a time. A cluster that hangs is named, and delays no
answer of another cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass
from threading import Thread
from typing import Generic, TypeVar

Answer = TypeVar("Answer")

# Of one look among many: the address of a cluster that is away takes some seconds, and others are
# waited for no longer. A single look waits for all; clients of Kafka have limits of their own.
LOOK_S_MAX = 10.0
FIRST_LOOK_S_MAX = 3.0  # somebody waits for it before an empty page


@dataclass(frozen=True, slots=True)
class Away:
    """Stands in place of an answer, with the reason."""

    reason: str


class Asking(Generic[Answer]):
    """The same question to each cluster, as often as one likes. A question that is still open is
    not asked again: its answer comes with a later look. The threads end with the process.
    """

    def __init__(self, questions: Mapping[str, Callable[[], Answer]]) -> None:
        """`questions`: by cluster; each runs in a thread of its own, one at a time."""
        self._questions = questions
        self._open: dict[str, Future[Answer]] = {}
        self._looked = False

    def look(self, *, within_s: float | None = None) -> dict[str, Answer | Away]:
        """The answers by cluster, in the order of the questions. With `within_s` None it waits for
        every answer; the first of several looks takes FIRST_LOOK_S_MAX at most. Raises what the
        questions raise.
        """
        if within_s is not None and not self._looked:
            within_s = min(within_s, FIRST_LOOK_S_MAX)
        self._looked = True
        for name, question in self._questions.items():
            if name not in self._open:
                self._open[name] = _asked(question)
        wait(self._open.values(), within_s)
        return {name: self._answer(name, within_s) for name in self._questions}

    def _answer(self, name: str, within_s: float | None) -> Answer | Away:
        if not self._open[name].done():
            return Away(f"no answer yet, after {within_s:g} s")
        return self._open.pop(name).result()


def _asked(question: Callable[[], Answer]) -> Future[Answer]:
    answer: Future[Answer] = Future()

    def ask() -> None:
        try:
            answer.set_result(question())
        except BaseException as error:  # noqa: BLE001 - told to the callers that look
            answer.set_exception(error)

    Thread(target=ask, daemon=True).start()
    return answer
