"""The beginning of a node: its clock, its files, its signals."""

from __future__ import annotations

import resource
import signal

from gateway.node.process import ending_signals, permit_files, steady

MINUTE_NS = 60_000_000_000


def test_a_clock_that_is_set_moves_no_deadline() -> None:
    wall, monotonic = 1_700_000_000_000_000_000, 5_000_000_000
    now_ms = steady(lambda: wall, lambda: monotonic)
    assert now_ms() == 1_700_000_000_000
    monotonic += 2_000_000
    assert now_ms() == 1_700_000_000_002
    for step_ns in (-10 * MINUTE_NS, 30 * MINUTE_NS):
        wall += step_ns
        assert now_ms() == 1_700_000_000_002


def test_a_node_may_open_all_the_files_the_system_grants() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    few = min(hard, 512)
    resource.setrlimit(resource.RLIMIT_NOFILE, (few, hard))
    try:
        permit_files()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
        permit_files()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_hangup_ends_a_node_unless_it_was_started_to_ignore_it() -> None:
    assert signal.SIGHUP in ending_signals(hangup_ignored=False)
    assert ending_signals(hangup_ignored=True) == (signal.SIGTERM, signal.SIGINT)
