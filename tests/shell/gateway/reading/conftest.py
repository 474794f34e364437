"""A Kafka that does not take the dead letters of one topic."""

from __future__ import annotations

import pytest

from gateway.core.wire.errors import ErrorCode
from gateway.reading import letter_producer
from tests.rig.letters_broker import SHORT, LettersBroker


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> LettersBroker:
    """One topic has too few replicas in sync."""
    monkeypatch.setattr(letter_producer, "DEAD_LETTER_WRITE_MS_MAX", 500)
    monkeypatch.setattr(letter_producer, "PRODUCER_STOP_S_MAX", 0.2)
    return LettersBroker(errors={SHORT: ErrorCode.NOT_ENOUGH_REPLICAS})
