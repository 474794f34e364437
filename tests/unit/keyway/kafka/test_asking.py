"""Questions to several clusters: one that hangs is named, and its answer comes later."""

from __future__ import annotations

import threading

import pytest

from keyway.kafka import asking as asking_module
from keyway.kafka.asking import Asking, Away
from tests.rig.patience import wait_until


def test_all_are_asked_at_the_same_time() -> None:
    both = threading.Barrier(2, timeout=30)  # nobody passes it alone
    asking = Asking({"ams": both.wait, "fra": both.wait})
    assert sorted(map(str, asking.look().values())) == ["0", "1"]
    assert list(asking.look()) == ["ams", "fra"]


def test_one_that_hangs_is_named_and_asked_once() -> None:
    over, asked = threading.Event(), []

    def hang() -> str:
        asked.append("nyc")
        over.wait()
        return "late"

    asking = Asking[str]({"nyc": hang, "ams": lambda: "here"})
    found = {"nyc": Away("no answer yet, after 0.1 s"), "ams": "here"}
    for _ in range(2):  # a busy machine may be late for a look, not for every one
        wait_until(
            lambda: asking.look(within_s=0.1) == found, what="the answer of one", deadline_s=30
        )
    over.set()
    wait_until(lambda: asking.look(within_s=0)["nyc"] == "late", what="its answer", deadline_s=30)
    assert len(asked) == 1, "an open question is not asked again"


def test_the_first_look_does_not_wait_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking_module, "FIRST_LOOK_S_MAX", 0.1)
    over = threading.Event()
    asking = Asking({"nyc": over.wait})
    assert asking.look(within_s=300.0) == {"nyc": Away("no answer yet, after 0.1 s")}
    over.set()
    assert asking.look(within_s=300.0) == {"nyc": True}, "a later one waits as told"


def test_an_error_is_that_of_the_question() -> None:
    def fail() -> str:
        raise LookupError("no such cluster")

    asking = Asking({"ams": fail})
    for _ in range(2):
        with pytest.raises(LookupError, match="no such cluster"):
            asking.look()
