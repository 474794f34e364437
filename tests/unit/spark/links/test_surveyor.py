"""The topic of dead letters, which the target may refuse."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException
from structlog.testing import capture_logs

from spark.streaming.core.limits import PARTITIONS_MAX
from spark.streaming.limits import RETRY_REFUSED_S
from tests.rig.link_in_memory import CONFIG, Side, World

LETTERS = CONFIG.messages.dead_letter_topic


def world(**there: int) -> World:
    """The target refuses the topics in `there`, with Kafka's error."""
    messages = CONFIG.messages.model_copy(update={"on_refused": "dead_letter"})
    config = CONFIG.model_copy(update={"messages": messages})
    return World(there=Side("c2", {"flights": "there"}, refused=there), config=config)


def test_letters_that_are_there_are_not_created() -> None:
    """Kafka refuses that to a user without CREATE before it looks whether the topic exists: no
    topic of the link was copied.
    """
    link = world(**{LETTERS: KafkaError.TOPIC_AUTHORIZATION_FAILED})
    link.there.ids[LETTERS] = "by an administrator"
    assert link.process()._survey().topics.keys() == {"flights"}


def test_letters_that_the_target_refuses_keep_no_topic_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    link = world(**{LETTERS: KafkaError.POLICY_VIOLATION})
    clock = [1_000.0]
    monkeypatch.setattr("spark.links.surveyor.monotonic", lambda: clock[0])
    run = link.process()
    with capture_logs() as logs:
        for _ in range(3):
            assert run._survey().topics.keys() == {"flights"}
    assert [entry["event"] for entry in logs] == ["dead_letter_topic_refused"]
    link.there.refused.clear()
    clock[0] += RETRY_REFUSED_S
    run._survey()
    assert LETTERS in link.there.ids, "it is tried again"


def test_a_target_that_is_away_is_a_fault_of_the_link() -> None:
    with pytest.raises(KafkaException):
        world(**{LETTERS: KafkaError._TRANSPORT}).process()._survey()


def test_a_topic_whose_rows_would_not_fit_a_record_stops_alone() -> None:
    """Kafka refused the record, and no topic of the link was copied any more."""
    wide = PARTITIONS_MAX + 1
    plan = World(here=Side("c1", {"flights": "here"}, partitions=wide)).process()._survey()
    assert plan.topics.keys() == set()
    assert str(wide) in plan.stopped["flights"]
