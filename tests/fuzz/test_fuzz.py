"""Some seconds of `make campaign NAME=fuzz`, always alike; and that its oracles can fail."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest

from gateway.core.forwarding.served_apis import REWRITTEN
from tests.fuzz import run, targets
from tests.fuzz.corpus import Exchange, read
from tests.fuzz.mutate import mutated
from tests.fuzz.run import Finding, Span, fuzz
from tests.fuzz.targets import LOCAL

INPUTS = {
    "codec": 12_000,
    "records": 8_000,
    "connection": 3_000,
    "logins": 2_000,
    "tokens": 1_000,
    "before_login": 2_000,
    "rest": 1_500,
}


@pytest.fixture(scope="module")
def corpus() -> list[Exchange]:
    return read()


@pytest.mark.parametrize("target", run.NAMES)
def test_no_finding(corpus: list[Exchange], target: str) -> None:
    outcome = fuzz(target, corpus, Span(first=0, inputs=INPUTS[target], cpu_s=None))
    assert outcome.inputs == INPUTS[target]


def test_the_corpus_has_what_the_gateway_decodes(corpus: list[Exchange]) -> None:
    recorded = {exchange.key for exchange in corpus}
    assert {int(key) for key in LOCAL} <= {recording.key for recording in corpus if recording.local}
    assert {int(key) for key in REWRITTEN} - {int(key) for key in LOCAL} <= recorded
    assert any(exchange.response is None for exchange in corpus), "acks=0"


def test_the_same_number_is_the_same_input(corpus: list[Exchange]) -> None:
    first, second = (
        [mutated(corpus[at].request, corpus[0].request, Random(f"x {at}")) for at in range(20)]
        for _ in range(2)
    )
    assert first == second


def test_a_reader_that_breaks_is_a_finding(
    corpus: list[Exchange], monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(_: Sequence[Exchange], random: Random) -> None:
        if random.random() < 0.1:
            raise IndexError("out of range")

    monkeypatch.setitem(targets.TARGETS, "codec", breaks)
    with pytest.raises(Finding, match=r"codec --seed \d+: IndexError"):
        fuzz("codec", corpus, Span(first=0, inputs=200, cpu_s=None))


def test_a_reader_that_holds_too_much_is_a_finding(
    corpus: list[Exchange], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(targets.TARGETS, "codec", lambda *_: str(bytearray(32 << 20)) and None)
    with pytest.raises(Finding, match="codec --seed 0: 3"):
        fuzz("codec", corpus, Span(first=0, inputs=1, cpu_s=None))
