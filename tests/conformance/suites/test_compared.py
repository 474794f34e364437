from __future__ import annotations

from tests.conformance.suites.compared import Difference, Explained, compared, joined

WHY = Explained("kafka-python", "test_share*", "the gateway keeps the order of keys")


def test_only_kinds_of_verdicts_are_compared_and_an_explanation_is_found_by_its_globs() -> None:
    direct = {"a": "passed", "b": "failed: port 9092", "c": "skipped", "test_share_1": "passed"}
    through = {"a": "passed", "b": "failed: port 9192", "c": "skipped", "test_share_1": "failed: x"}
    found = compared("kafka-python", direct, through, [WHY])
    assert (found.passed, found.passed_direct, found.run) == (1, 2, 3)
    assert found.failing_direct_too == 1
    assert found.unexplained == ()
    assert found.explained == (Difference("test_share_1", "passed", "failed: x", WHY.reason),)
    assert compared("another", direct, through, [WHY]).explained == ()


def test_a_test_that_one_way_has_not_run_differs() -> None:
    found = compared("s", {"a": "passed", "b": "passed"}, {"a": "passed", "c": "skipped"}, [])
    assert found.unexplained == (
        Difference("b", "passed", "not run", None),
        Difference("c", "not run", "skipped", None),
    )


def test_a_suite_that_fails_both_ways_proves_nothing() -> None:
    broken = {"a": "failed: no such folder", "b": "failed: no such folder", "c": "skipped"}
    assert compared("s", broken, broken, []).proves_nothing
    assert compared("s", {}, {}, []).proves_nothing
    good = {**broken, "d": "passed", "e": "passed", "f": "passed"}
    assert not compared("s", good, good, []).proves_nothing


def test_a_better_verdict_through_the_gateway_is_a_difference_too() -> None:
    found = compared("s", {"a": "failed: x"}, {"a": "passed"}, [])
    assert [difference.test for difference in found.unexplained] == ["a"]


def test_a_test_that_passes_when_it_runs_again_can_pass() -> None:
    first = {"a": "failed: late", "b": "passed", "c": "failed: x"}
    assert joined(first, [{"a": "passed", "c": "failed: y"}]) == {
        "a": "passed",
        "b": "passed",
        "c": "failed: y",
    }
