"""Answers about topics: some are errors, some never come."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AclOperation, AdminClient

from keyway.kafka.topics import answered, described

GONE = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
DENIED = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)


class WatchedFuture(Future[Any]):
    """A future that notes how long it is waited for."""

    def __init__(self) -> None:
        super().__init__()
        self.waited_s: list[float | None] = []

    def result(self, timeout: float | None = None) -> Any:
        self.waited_s.append(timeout)
        return super().result(timeout)


class Admin:
    """Answers with what each topic is, its error, or not at all (None)."""

    def __init__(self, **topics: SimpleNamespace | KafkaError | None) -> None:
        self.futures = {name: WatchedFuture() for name in topics}
        for name, topic in topics.items():
            if isinstance(topic, KafkaError):
                self.futures[name].set_exception(KafkaException(topic))
            elif topic is not None:
                self.futures[name].set_result(topic)

    def describe_topics(self, _: TopicCollection, **__: float) -> dict[str, WatchedFuture]:
        return self.futures


def ask(
    admin: Admin, answer_s: float = 30.0, needed: AclOperation | None = None
) -> dict[str, tuple[str, int] | KafkaError]:
    return described(cast("AdminClient", admin), list(admin.futures), answer_s, needed)


def topic(topic_id: str, partitions: int, *allowed: AclOperation) -> SimpleNamespace:
    return SimpleNamespace(
        topic_id=topic_id, partitions=list(range(partitions)), authorized_operations=list(allowed)
    )


def test_no_answer_is_an_error_of_kafka() -> None:
    """A TimeoutError ended the link, where a cluster that is away is waited for."""
    with pytest.raises(KafkaException) as raised:
        answered(Future[None](), 0.01)
    assert raised.value.args[0].code() == KafkaError._TIMED_OUT
    come = Future[int]()
    come.set_result(4)
    assert answered(come, 0.01) == 4


def test_one_topic_s_error_leaves_the_others_their_answers() -> None:
    found = ask(Admin(orders=topic("a/+b", 3), gone=GONE, secret=DENIED, late=topic("c", 1)))
    assert found["orders"] == ("a/+b", 3)
    assert found["late"] == ("c", 1)
    codes = {
        name: answer.code() for name, answer in found.items() if isinstance(answer, KafkaError)
    }
    assert codes == {"gone": GONE.code(), "secret": DENIED.code()}


def test_a_topic_without_the_needed_right_is_denied() -> None:
    """One that may be described and not read failed the query of all topics."""
    admin = Admin(
        shown=topic("a", 1, AclOperation.DESCRIBE),
        open=topic("b", 2, AclOperation.DESCRIBE, AclOperation.READ),
        old=topic("c", 3),
    )
    found = ask(admin, needed=AclOperation.READ)
    assert isinstance(shown := found.pop("shown"), KafkaError)
    assert shown.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert shown.str() == "READ is not allowed"
    assert found == {"open": ("b", 2), "old": ("c", 3)}, "an old broker tells no rights"
    assert ask(admin)["shown"] == ("a", 1), "nothing is needed"


def test_topics_without_an_answer_are_waited_for_together() -> None:
    """A broker that hangs with a thousand topics would be waited for a thousand times."""
    admin = Admin(one=None, two=None, three=topic("c", 1))
    found = ask(admin, 0.02)
    for name in ("one", "two"):
        answer = found[name]
        assert isinstance(answer, KafkaError)
        assert answer.code() == KafkaError._TIMED_OUT
    assert found["three"] == ("c", 1)
    (waited_s,) = admin.futures["two"].waited_s
    assert waited_s is not None
    assert waited_s < 0.01


def test_no_topics_are_no_question() -> None:
    assert described(cast("AdminClient", None), (), 1.0) == {}


class Moved(Admin):
    """Its controller has died; it learns of another one with a list of all topics."""

    def __init__(self, *, answers: bool) -> None:
        super().__init__(orders=KafkaError(KafkaError._TIMED_OUT, "waiting for controller"))
        self.answers = answers

    def list_topics(self, *, timeout: float) -> None:
        if not self.answers:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))
        assert 0 < timeout < 30
        self.futures = Admin(orders=topic("a", 3)).futures


def test_a_controller_that_has_died_is_asked_once() -> None:
    """All questions of a client failed for five minutes, and with them the work of its cluster."""
    assert ask(Moved(answers=True)) == {"orders": ("a", 3)}
    answer = ask(Moved(answers=False))["orders"]
    assert isinstance(answer, KafkaError)
    assert answer.code() == KafkaError._TIMED_OUT
