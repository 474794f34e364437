"""What `keyway distribute check` finds, without Kafka."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import pytest
from confluent_kafka import KafkaError
from confluent_kafka.admin import AclOperation

from spark.links.check import _letters_findings
from spark.streaming.kafka import KafkaSide
from tests.rig.link_in_memory import CONFIG, Side

LETTERS = CONFIG.messages.dead_letter_topic


class Guarded(Side):
    """A cluster that lets nobody write."""

    def described(
        self, names: Sequence[str], needed: AclOperation | None = None
    ) -> dict[str, tuple[str, int] | KafkaError]:
        assert needed is AclOperation.WRITE
        denied = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, "WRITE is not allowed")
        return dict.fromkeys(names, denied)


@pytest.mark.parametrize(
    ("side", "found"),
    [
        (Side("c2", {LETTERS: "id"}), []),
        (Side("c2"), [(f"{LETTERS}, for dead letters, will be created on the target", False)]),
        (Guarded("c2"), [(f"{LETTERS}, for dead letters: WRITE is not allowed on c2", True)]),
    ],
)
def test_the_topic_of_dead_letters(side: Side, found: list[tuple[str, bool]]) -> None:
    """Nobody looked at it before a record was refused."""
    messages = CONFIG.messages.model_copy(update={"on_refused": "dead_letter"})
    config = CONFIG.model_copy(update={"messages": messages})
    told = _letters_findings(config, "link", cast(KafkaSide, side))
    assert [(finding.text, finding.fault) for finding in told] == found
    assert list(_letters_findings(CONFIG, "link", cast(KafkaSide, side))) == []
