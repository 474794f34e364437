"""The status of a distribution over REST, by the real commands: a file with a fault, a command that
hangs, an answer that is kept. test_commands.py has an answer of running services.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest
from starlette.exceptions import HTTPException

from gateway.admin import distribution
from gateway.admin.distribution import COMMANDS, Distribution
from gateway.admin.limits import STATUS_KEPT_MS

CLOCK = [1_000_000]


def now_ms() -> int:
    return CLOCK[0]


def asked(of: Distribution, path: str) -> HTTPException:
    with pytest.raises(HTTPException) as refused:
        asyncio.run(of.status(path))
    return refused.value


def test_without_a_file() -> None:
    refused = asked(Distribution(None, now_ms), "/v1/links")
    assert refused.status_code == 404
    assert "admin.clusters_file is not set" in refused.detail


@pytest.mark.parametrize("path", COMMANDS)
def test_a_file_with_a_fault_is_named(tmp_path: Path, path: str) -> None:
    file = tmp_path / "clusters.yaml"
    file.write_text("clusters: 7\n")
    refused = asked(Distribution(file, now_ms), path)
    assert refused.status_code == 503
    assert "clusters.yaml: clusters" in refused.detail


def test_an_answer_is_kept_for_all_who_ask(tmp_path: Path) -> None:
    count = tmp_path / "count"
    program = f"open({str(count)!r}, 'a').write('x'); print('[1]')"
    of = Distribution(tmp_path, now_ms, command=(sys.executable, "-c", program))

    async def ask() -> None:
        rows = await asyncio.gather(*(of.status("/v1/links") for _ in range(5)))
        assert {tuple(row.status) for row in rows} == {(1,)}
        CLOCK[0] += STATUS_KEPT_MS
        await of.status("/v1/links")

    asyncio.run(ask())
    assert count.read_text() == "xx"


def test_a_command_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distribution, "STATUS_S_MAX", 0.5)
    of = Distribution(tmp_path, now_ms, (sys.executable, "-c", "import time; time.sleep(60)"))
    refused = asked(of, "/v1/schemas")
    assert refused.status_code == 503
    assert "no answer in 0.5 s" in refused.detail
