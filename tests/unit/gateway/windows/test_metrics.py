"""The metrics of windows: the fate of records, and where windows stand."""

from __future__ import annotations

import pytest
import structlog
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.registry import Collector

from dispatcher.core.model import Acknowledge, AckType, Acquire, MemberId, PoisonPolicy, SessionId
from dispatcher.core.steps import Notice, Noticed
from gateway.config.groups import GroupSection
from gateway.core.cluster.topology import TopicPartition
from gateway.group_log import GroupLog
from gateway.windows.limits import GROUPS_NAMED
from gateway.windows.metrics import FlowCollector, OutcomeCollector, WindowCollector
from gateway.windows.record_flow import RecordFlow
from gateway.windows.record_outcomes import SKIPPED_TOLD_MS, RecordOutcomes
from tests.rig.node_parts import GROUP, TOPIC, Node
from tests.rig.virtual_time import now_ms, run, settle

PLACE = TopicPartition("orders", b"t" * 16, 3)


def exported(*collectors: Collector) -> str:
    registry = CollectorRegistry()
    for collector in collectors:
        registry.register(collector)
    return generate_latest(registry).decode()


def test_outcomes_are_counted_by_group() -> None:
    metrics = RecordOutcomes(GroupLog(lambda: 0))
    metrics.noticed("g", PLACE, Noticed(Notice.ACCEPTED, 5))
    metrics.noticed("g", PLACE, Noticed(Notice.ACCEPTED, 2))
    metrics.noticed('odd "name"\n', PLACE, Noticed(Notice.DROPPED, 1))
    text = exported(OutcomeCollector(metrics, frozenset))
    assert 'keyway_group_records_total{group="g",outcome="accepted"} 7.0' in text
    assert 'group="odd \\"name\\"\\n",outcome="dropped"} 1.0' in text


def test_groups_that_are_left_out_have_no_rows() -> None:
    outcomes, flow = RecordOutcomes(GroupLog(lambda: 0)), RecordFlow()
    for group in ("at work", "left out"):
        outcomes.noticed(group, PLACE, Noticed(Notice.ACCEPTED, 5))
        flow.noticed(group, PLACE, Noticed(Notice.ACCEPTED, 5))
        flow.sent(group, "orders", 7)
    left_out = frozenset({"left out"})
    text = exported(
        OutcomeCollector(outcomes, lambda: left_out), FlowCollector(flow, lambda: left_out)
    )
    assert "left out" not in text
    assert 'keyway_group_records_total{group="at work",outcome="accepted"} 5.0' in text
    assert 'keyway_group_delivered_records_total{group="at work",topic="orders"} 7.0' in text


@pytest.mark.parametrize("notice", Notice)
def test_only_what_an_operator_must_hear_of_is_logged(notice: Notice) -> None:
    with structlog.testing.capture_logs() as logs:
        outcomes = RecordOutcomes(GroupLog(lambda: 0))
        outcomes.noticed("g", PLACE, Noticed(notice, 3, "detail", 17))
    loud = {"parked", "dead_lettered", "dropped", "gap_ack", "span_full", "timed_out", "saturated"}
    loud |= {"truncated"}  # lost, if nobody has them elsewhere
    loud |= {"silent", "heard_again"}
    assert [line["event"] for line in logs] == ([notice.value] if notice.value in loud else [])
    for line in logs:
        assert (line["group"], line["topic"], line["partition"]) == ("g", "orders", 3)
        assert (line["count"], line["detail"], line["offset"]) == (3, "detail", 17)


def test_a_group_that_rejects_much_writes_one_line_in_ten_seconds() -> None:
    """3,876 requests of a run, in 60 s: the lines have all counts, the metrics too."""
    now = [0]
    group_log = GroupLog(lambda: now[0])
    outcomes = RecordOutcomes(group_log)
    with structlog.testing.capture_logs() as logs:
        for at in range(3_876):
            now[0] = at * 60_000 // 3_876
            group_log.write_due()
            outcomes.noticed("g", PLACE, Noticed(Notice.DROPPED, 2, "rejected", at))
        group_log.write_rest()
    assert len(logs) == 7
    assert sum(line["count"] for line in logs) == 2 * 3_876
    assert [line["offset"] for line in logs][:2] == [0, 1], "the first of each interval"
    assert {line["detail"] for line in logs} == {"rejected"}
    assert 'outcome="dropped"} 7752.0' in exported(OutcomeCollector(outcomes, frozenset))


def test_records_that_no_member_takes_are_told_for_a_while() -> None:
    now = [10_000_000]
    outcomes = RecordOutcomes(GroupLog(lambda: now[0]))
    outcomes.noticed("other", PLACE, Noticed(Notice.ACCEPTED, 1))
    assert outcomes.warnings() == []
    for count in (2, 3):
        outcomes.noticed("g", PLACE, Noticed(Notice.SKIPPED, count))
    lines = ["group 'g': 5 records were skipped: no member accepts their keys"]
    now[0] += SKIPPED_TOLD_MS - 1
    assert outcomes.warnings() == lines
    now[0] += 1
    assert outcomes.warnings() == []
    outcomes.noticed("g", PLACE, Noticed(Notice.SKIPPED, 1))
    outcomes.forget("g")
    assert outcomes.warnings() == []


def test_of_many_groups_with_skipped_records_some_are_named() -> None:
    """/health and each overview have these lines."""
    outcomes = RecordOutcomes(GroupLog(lambda: 10_000_000))
    for at in range(GROUPS_NAMED + 3):
        outcomes.noticed(f"g{at:02}", PLACE, Noticed(Notice.SKIPPED, 1))
    *named, more = outcomes.warnings()
    assert [line.partition(":")[0] for line in named] == [f"group 'g{at:02}'" for at in range(10)]
    assert more == "so were records of 3 more groups"


def test_a_group_that_leaves_out_keys_on_purpose_is_not_told_of() -> None:
    outcomes = RecordOutcomes(GroupLog(lambda: 10_000_000), lambda group: group == "meant")
    for group in ("meant", "other"):
        outcomes.noticed(group, PLACE, Noticed(Notice.SKIPPED, 2))
    assert outcomes.of("meant") == {"filtered": 2}
    assert outcomes.of("other") == {"skipped": 2}
    assert [line.partition(":")[0] for line in outcomes.warnings()] == ["group 'other'"]
    assert 'group="meant",outcome="skipped"} 0.0' in exported(OutcomeCollector(outcomes, frozenset))


def test_a_group_that_is_gone_leaves_no_series() -> None:
    metrics = RecordOutcomes(GroupLog(lambda: 0))
    for notice in (Notice.ACCEPTED, Notice.RELEASED):
        metrics.noticed("g", PLACE, Noticed(notice, 1))
    metrics.noticed("other", PLACE, Noticed(Notice.ACCEPTED, 1))
    metrics.forget("g")
    metrics.forget("never known")
    text = exported(OutcomeCollector(metrics, frozenset))
    assert 'group="g"' not in text
    assert 'group="other"' in text


def test_windows_are_read_when_asked() -> None:
    async def work() -> None:
        async with Node() as node:
            metrics = WindowCollector(node.windows.table)
            node.log.produce(b"a", b"b")
            assert "keyway_window_cursor{" not in exported(metrics)
            node.beat()
            await settle()
            labels = f'{{group="{GROUP}",partition="0",topic="{TOPIC}"}}'
            assert f"keyway_window_cursor{labels} 0.0" in exported(metrics)
            assert f"keyway_window_span{labels} 2.0" in exported(metrics)
            node.window().fail(RuntimeError("away"))
            assert "keyway_window_span{" not in exported(metrics)

    run(work())


def test_parked_records_are_told_of_also_when_their_window_is_not_up() -> None:
    """As they were known last: it breaks, it leaves memory, its position is set by hand."""

    async def work() -> None:
        section = GroupSection(auto_offset_reset="earliest", rejected=PoisonPolicy.BLOCK)
        async with Node(section) as node:
            metrics = WindowCollector(node.windows.table)
            node.log.produce(b"a", b"b")
            node.beat()
            await settle()
            window, member = node.window(), MemberId("m1")
            assert window.acquire(Acquire(member, SessionId("s"), 9, now_ms())) is not None
            reject = bytes([AckType.REJECT.value])
            rejection = Acknowledge(member, SessionId("s"), [(0, 1, reject)], now_ms())
            await window.ask(rejection)
            labels = f'{{group="{GROUP}",partition="0",state="parked",topic="{TOPIC}"}}'
            line = f"keyway_window_records{labels} 2.0"
            assert exported(metrics).count(line) == 1
            node.windows.table.parked.note(window)  # as each look at the lag does
            window.fail(RuntimeError("away"))
            assert exported(metrics).count(line) == 1
            await settle()
            node.windows.table.drop(window.key)
            assert exported(metrics).count(line) == 1
            node.windows.table.parked.position_set(window.key)
            assert labels not in exported(metrics)

    run(work())


def test_keys_that_change_hands() -> None:
    async def work() -> None:
        async with Node() as node:
            metrics = WindowCollector(node.windows.table)
            node.log.produce(b"a", b"b")
            node.beat()
            await settle()
            holder, session = MemberId("m1"), SessionId("s")
            assert node.window().acquire(Acquire(holder, session, 9, now_ms())) is not None
            for number in range(2, 40):
                node.beat(f"m{number}", connection=number)
            await settle()
            labels = f'{{group="{GROUP}",partition="0",topic="{TOPIC}"}}'
            assert f"keyway_window_draining_keys{labels} 2.0" in exported(metrics)
            assert f"keyway_window_drained_keys_total{labels} 0.0" in exported(metrics)
            await node.window().ask(Acknowledge(holder, session, [(0, 1, b"\1")], now_ms()))
            assert f"keyway_window_draining_keys{labels} 0.0" in exported(metrics)
            assert f"keyway_window_drained_keys_total{labels} 2.0" in exported(metrics)

    run(work())


def test_fill_and_records_by_state() -> None:
    async def work() -> None:
        section = GroupSection(
            auto_offset_reset="earliest", span_max=8, rejected=PoisonPolicy.BLOCK
        )
        async with Node(section) as node:
            metrics = WindowCollector(node.windows.table)
            assert "keyway_windows_waiting 0.0" in exported(metrics)
            node.log.produce(b"a", b"b")
            node.beat()
            assert "keyway_windows_waiting 1.0" in exported(metrics), "it is being loaded"
            await settle()
            member, session = MemberId("m1"), SessionId("s")
            assert node.window().acquire(Acquire(member, session, 9, now_ms())) is not None
            reject = bytes([AckType.REJECT.value])
            await node.window().ask(Acknowledge(member, session, [(0, 0, reject)], now_ms()))
            text = exported(metrics)
            place = f'group="{GROUP}",partition="0"'
            for line in (
                f'keyway_window_fill_ratio{{{place},topic="{TOPIC}"}} 0.25',
                f'keyway_window_records{{{place},state="in_flight",topic="{TOPIC}"}} 1.0',
                f'keyway_window_records{{{place},state="parked",topic="{TOPIC}"}} 1.0',
                f'keyway_window_records{{{place},state="backing_off",topic="{TOPIC}"}} 0.0',
                "keyway_windows_waiting 0.0",
            ):
                assert f"{line}\n" in text

    run(work())


def test_every_outcome_of_a_group_begins_at_zero() -> None:
    """Else Prometheus would see no increase when the first record of a kind comes."""
    metrics = RecordOutcomes(GroupLog(lambda: 0))
    metrics.noticed("g", PLACE, Noticed(Notice.ACCEPTED, 1))
    kinds = len(Notice) + len(["filtered"])
    assert (
        exported(OutcomeCollector(metrics, frozenset)).count("keyway_group_records_total{") == kinds
    )
    metrics.forget("g")
    metrics.noticed("g", PLACE, Noticed(Notice.ACCEPTED, 1))
    assert (
        exported(OutcomeCollector(metrics, frozenset)).count("keyway_group_records_total{") == kinds
    )
