"""A config set through the gateway counts before a broker shows it, and not for ever."""

from __future__ import annotations

from gateway.core.share.altered_configs import AlteredConfigs

RESET, LIMIT = "share.auto.offset.reset", "share.delivery.count.limit"


def altered(groups_max: int = 10) -> AlteredConfigs:
    return AlteredConfigs(groups_max, shown_within_ms=1_000)


def test_what_was_set_counts_over_what_a_broker_still_shows() -> None:
    configs = altered()
    configs.note("g", {RESET: "earliest"}, 0)
    assert configs.over("g", {}, 1) == {RESET: "earliest"}
    assert configs.over("g", {RESET: "latest", LIMIT: "3"}, 2) == {RESET: "earliest", LIMIT: "3"}
    assert configs.over("other", {LIMIT: "3"}, 2) == {LIMIT: "3"}


def test_what_was_deleted_counts_no_more() -> None:
    configs = altered()
    configs.note("g", {RESET: None}, 0)
    assert configs.over("g", {RESET: "earliest", LIMIT: "3"}, 1) == {LIMIT: "3"}


def test_once_a_broker_shows_it_the_broker_is_believed() -> None:
    configs = altered()
    configs.note("g", {RESET: "earliest", LIMIT: None}, 0)
    assert configs.over("g", {RESET: "earliest"}, 1) == {RESET: "earliest"}
    assert configs.over("g", {RESET: "latest"}, 2) == {RESET: "latest"}, "set past the gateway"
    assert len(configs) == 0


def test_later_changes_add_to_earlier_ones() -> None:
    configs = altered()
    configs.note("g", {RESET: "earliest", LIMIT: "3"}, 0)
    configs.note("g", {LIMIT: "4"}, 900)
    assert configs.over("g", {}, 1_800) == {RESET: "earliest", LIMIT: "4"}


def test_after_a_while_the_broker_is_believed_anyway() -> None:
    """Somebody else has set it again, or Kafka spells the stored value differently."""
    configs = altered()
    configs.note("g", {RESET: "earliest"}, 0)
    assert configs.over("g", {}, 999) == {RESET: "earliest"}
    assert configs.over("g", {}, 1_000) == {}
    assert len(configs) == 0


def test_of_too_many_groups_the_oldest_is_forgotten() -> None:
    configs = altered(groups_max=2)
    for at, group in enumerate(("a", "b", "a", "c")):
        configs.note(group, {RESET: "earliest"}, at)
    assert configs.over("b", {}, 4) == {}
    assert configs.over("a", {}, 4) == configs.over("c", {}, 4) == {RESET: "earliest"}
    configs.forget("a")
    assert configs.over("a", {}, 4) == {}
