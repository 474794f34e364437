"""Sessions of one checkout start one after the other."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from spark import session
from spark.session import ivy_alone


def test_two_starts_do_not_share_ivy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "IVY", tmp_path / "ivy")
    asks, starts = threading.Event(), threading.Event()

    def second() -> None:
        asks.set()
        with ivy_alone():
            starts.set()

    thread = threading.Thread(target=second)
    with ivy_alone():
        thread.start()
        assert asks.wait(10)
        assert not starts.wait(0.2)
    assert starts.wait(10)
    thread.join(10)
