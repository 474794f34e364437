"""`keyway top`: a table in a pipe, a live screen on a terminal."""

from __future__ import annotations

import io
import os
import pty
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.screen import Screen

from gateway.admin.dashboard.rows import Overview
from gateway.cli.top import frame, rates
from tests.rig.keyway_process import started, until
from tests.rig.rest_stand_in import rows as table_rows
from tests.rig.rest_stand_in import stand_in


def overview(at_ms: int, accepted: int, *, lag: int = 5, name: str = "busy") -> dict[str, Any]:
    line = {
        "group": name,
        "state": "Stable",
        "members": 2,
        "topics": ["a"],
        "windows": 4,
        "waiting": 0,
        "lag": lag,
        "lag_seconds": 1.5,
        "in_flight": 1,
        "backing_off": 0,
        "dead_lettering": 0,
        "parked": 1,
        "draining_keys": 0,
        "stuck": 0,
        "outcomes": {"accepted": accepted},
    }
    return {
        "at_ms": at_ms,
        "health": {"status": "up", "reasons": []},
        "traffic": {"connections": 3, "requests": {"share_fetch": accepted}},
        "groups": [line, line | {"group": "late", "lag": 99, "outcomes": {}}],
        "groups_hidden": 2,
    }


def test_top_without_a_terminal_is_one_table() -> None:
    with stand_in({"/v1/overview": overview(1_000, 0)}) as rest:
        done = started(
            "top", "--admin", rest.address, stdout=subprocess.PIPE, stdin=subprocess.PIPE
        )
        out, _ = done.communicate(timeout=300)
    assert done.returncode == 0
    shown = table_rows(out.decode())
    assert shown[3][:7] == ["late", "Stable", "2", "4", "99", "1.5", "-"], "the largest lag first"
    assert shown[4][:7] == ["busy", "Stable", "2", "4", "5", "1.5", "-"]
    assert shown[5] == ["2", "more", "groups"]


def test_top_with_a_token_for_some_groups_shows_no_traffic() -> None:
    """It is that of all clients."""
    before, now = (
        Overview.model_validate(overview(at_ms, accepted) | {"traffic": None})
        for at_ms, accepted in ((1_000, 0), (3_000, 500))
    )
    text = io.StringIO()
    Console(file=text, width=200).print(frame(now, rates(before, now), "lag", None))
    assert "250.0" in text.getvalue()
    assert "connection" not in text.getvalue()


def test_top_shows_rates_sorts_and_ends_with_q() -> None:
    looks = [overview(1_000, 0), overview(3_000, 500), overview(3_000, 500)]
    with (
        stand_in({"/v1/overview": looks}) as rest,
        top_on_a_screen(rest.address) as (command, screen),
    ):
        until(screen, "250.0")  # 500 records in 2 s
        os.write(screen, b"s")
        os.write(screen, b"q")
        until(screen, "\x1b[?1049l")  # the terminal is as before
        assert command.wait(120) == 0


@contextmanager
def top_on_a_screen(address: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """The command and its screen; its errors go there, too."""
    screen, terminal = pty.openpty()
    streams = dict.fromkeys(("stdin", "stdout", "stderr"), terminal)
    env = os.environ | {"TERM": "xterm", "COLUMNS": "160", "LINES": "40"}
    command = started("top", "--every", "0.1", "--admin", address, **streams, env=env)
    try:
        yield command, screen
    finally:
        command.kill()
        command.wait()
        os.close(screen)
        os.close(terminal)


def shown_on(width: int, now: Overview) -> list[list[str]]:
    console = Console(width=width, file=io.StringIO())
    with console.capture() as shown:
        console.print(Screen(frame(now, None, "lag_seconds", None, width)), height=8)
    return [line.split() for line in shown.get().splitlines()]


def test_a_narrow_screen_keeps_what_needs_an_operator() -> None:
    """At 80 columns, with a long name: whole columns, and the others are missing."""
    now = Overview.model_validate(overview(1_000, 0, name="a-name-" * 9))
    _, _, head, long, late, *_ = shown_on(80, now)
    assert head[:2] == ["GROUP", "STATE"]
    assert {"LAG", "LAG-SECONDS", "IN-FLIGHT", "PARKED", "STUCK"} <= set(head)
    assert not {"WINDOWS", "DRAINING-KEYS"} & set(head)
    name, *figures = long
    assert len(name) >= 20
    assert name.endswith("…")
    assert len(figures) == len(head) - 1
    assert late[0] == "late"
    head = next(line for line in shown_on(45, now) if line[:1] == ["GROUP"])
    assert head == ["GROUP", "LAG", "PARKED", "STUCK"]
    _, _, head, *_ = shown_on(250, now)
    assert head[-1] == "STUCK"
    assert len(head) == 15


def test_a_group_that_stopped_and_one_that_catches_up() -> None:
    given = overview(1_000, 0)
    busy, late = given["groups"]
    given["groups"] = [
        busy | {"catches_up_s": 150.0, "flow": {"produced": 1234.5}},
        late | {"stopped": True, "growing": True, "parked": None},
    ]
    given["health"]["warnings"] = ["group late has no member"]
    top, _, head, first, second, *_ = shown_on(250, Overview.model_validate(given))
    assert top[-5:] == ["group", "late", "has", "no", "member"]
    assert first[:2] == ["busy", "Stable"]
    assert {"2", "min", "1,234.5"} <= set(first)
    assert second[:2] == ["late", "Stopped"]
    assert second[head.index("CATCHES-UP")] == "grows"
    assert second[head.index("PARKED")] == "-", "not known"


def test_waits_of_requests_are_not_their_times() -> None:
    """Between two looks: a long poll is no latency."""
    bounds = [1.0, 10.0, 500.0]
    before, now = overview(1_000, 0), overview(3_000, 0)
    before["traffic"] |= {"bounds_ms": bounds, "answered": {"share_fetch": [5, 0, 0, 9]}}
    now["traffic"] |= {
        "bounds_ms": bounds,
        "answered": {"share_fetch": [5, 100, 0, 9], "produce": [0, 0, 0, 1]},
        "waited": {"share_fetch": [10, 0, 90, 0]},
    }
    speed = rates(Overview.model_validate(before), Overview.model_validate(now))
    assert speed is not None
    said = "work p99: produce > 500 ms, share_fetch < 10 ms  wait p50: share_fetch < 500 ms"
    assert speed.times == said
    assert rates(None, Overview.model_validate(now)) is None


def test_top_that_loses_its_node_says_so_behind_the_live_screen() -> None:
    looks = [overview(1_000, 0), (500, {"title": "the node stops"})]
    with (
        stand_in({"/v1/overview": looks}) as rest,
        top_on_a_screen(rest.address) as (command, screen),
    ):
        seen = until(screen, "keyway: the node stops")
        assert "\x1b[?1049l" in seen, "the terminal is as before"
        assert command.wait(120) == 1


def test_ctrl_c_is_a_good_end_of_top() -> None:
    with (
        stand_in({"/v1/overview": overview(1_000, 0)}) as rest,
        top_on_a_screen(rest.address) as (command, screen),
    ):
        until(screen, "busy")
        command.send_signal(signal.SIGINT)
        until(screen, "\x1b[?1049l")
        assert command.wait(120) == 0
