"""Patterns: their grammar, which names fit, and which pairs are refused."""

from __future__ import annotations

import time

import pytest

from keyway.clusters.core.names import (
    NAME_CHARS_MAX,
    CollisionError,
    Misfit,
    PatternError,
    Unfit,
    compile_pattern,
    pair,
)

OURS = {"tenant": "acme", "instance": "dta", "environment": "prod"}
FULL = "{tenant}-{instance}-{environment}-{topic}"


@pytest.mark.parametrize(
    ("text", "constants", "name", "values"),
    [
        ("{topic}", {}, "orders", {"topic": "orders"}),
        ("{topic}", {}, "orders-of-today.v2", {"topic": "orders-of-today.v2"}),
        (FULL, OURS, "acme-dta-prod-my-orders", {**OURS, "topic": "my-orders"}),
        (FULL, {}, "acme-dta-prod-my-orders", {**OURS, "topic": "my-orders"}),
        ("{topic}-{tenant}", {}, "my-orders-acme", {"topic": "my-orders", "tenant": "acme"}),
        ("{tenant}$#{topic}", {}, "acme$#orders", {"tenant": "acme", "topic": "orders"}),
        ("eu.{topic}.v1", {}, "eu.a.b.v1", {"topic": "a.b"}),
        ("{tenant}.{topic}", {"tenant": "a.b"}, "a.b.c.d", {"tenant": "a.b", "topic": "c.d"}),
    ],
)
def test_a_name_is_parsed_and_rendered(
    text: str, constants: dict[str, str], name: str, values: dict[str, str]
) -> None:
    pattern = compile_pattern(text, constants)
    assert pattern.parse(name) == values
    assert pattern.render(values) == name


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "1 to 16 fields"),
        ("orders", "1 to 16 fields"),
        ("{tenant}", "{topic} must stand in it once"),
        ("{topic}-{topic}", "{topic} must stand in it once"),
        ("{a}-{a}-{topic}", "{a} stands in it twice"),
        ("{tenant}{topic}", "nothing stands before {topic}"),
        ("{tenant-{topic}", "unexpected '{tenant-{topic}' at position 0"),
        ("{topic}|", "unexpected '|'"),
        ("[tenant]-{topic}", "unexpected '[tenant]-{topic}'"),
        ("{}-{topic}", "unexpected '{}-{topic}'"),
        ("{topic}}", "unexpected '}'"),
        ("_{topic}", "begin with '_'"),
        ("{tenant}.{topic}", "must stand behind it"),
        ("{tenant}x-{topic}", "must stand behind it"),
        ("{topic}.{tenant}", "must stand before it"),
        ("{topic}-x{tenant}", "must stand before it"),
        ("-".join(f"{{f{number}}}" for number in range(16)) + "-{topic}", "1 to 16 fields"),
    ],
)
def test_a_bad_pattern_is_refused(text: str, says: str) -> None:
    with pytest.raises(PatternError) as refused:
        compile_pattern(text)
    assert says in str(refused.value)
    assert repr(text) in str(refused.value)


@pytest.mark.parametrize("value", ["", "my-tenant", "a b", "{x}", "ä"])
def test_a_constant_holds_no_dash(value: str) -> None:
    with pytest.raises(PatternError, match="tenant = "):
        compile_pattern("{tenant}-{topic}", {"tenant": value})


def test_the_main_field_has_no_constant_and_constants_may_begin_no_internal_name() -> None:
    with pytest.raises(PatternError, match="cannot have a fixed value"):
        compile_pattern("{topic}", {"topic": "orders"})
    with pytest.raises(PatternError, match="begin with '_'"):
        compile_pattern("{tenant}-{topic}", {"tenant": "_acme"})


def test_other_main_fields() -> None:
    groups = compile_pattern("{tenant}-{group.id}", {"tenant": "acme"}, main="group.id")
    assert groups.parse("acme-billing") == {"tenant": "acme", "group.id": "billing"}
    with pytest.raises(PatternError, match="is not"):
        pair(groups, compile_pattern("{topic}"))


def test_a_foreign_tenant_does_not_fit_and_the_field_is_named() -> None:
    found = compile_pattern(FULL, OURS).parse("evil-dta-prod-orders")
    assert found == Unfit("evil-dta-prod-orders", Misfit.FOREIGN, "tenant is 'acme' here")
    assert (
        str(found) == "'evil-dta-prod-orders' has another value of a field (tenant is 'acme' here)"
    )


@pytest.mark.parametrize("name", ["orders", "acme-dta-orders", "acme-dta-prod-", "a cme-x-y-z", ""])
def test_a_name_of_another_shape_does_not_fit(name: str) -> None:
    assert compile_pattern(FULL, OURS).parse(name) == Unfit(name, Misfit.SHAPE, FULL)


def test_a_hostile_name_costs_little_time() -> None:
    # Constants with '.' between them could be split anywhere if they were sought as any value.
    fields = [f"f{number}" for number in range(12)]
    text = ".".join(f"{{{field}}}" for field in fields) + ".{topic}"
    pattern = compile_pattern(text, dict.fromkeys(fields, "a"))
    open_pattern = compile_pattern("{a}-{topic}-{b}-{c}-{d}-x")
    begun = time.process_time()
    for name in ("a." * (NAME_CHARS_MAX // 2 - 1) + "!", "a-" * (NAME_CHARS_MAX // 2 - 1) + "!"):
        for form in (pattern, open_pattern):
            assert isinstance(form.parse(name), Unfit)
    assert time.process_time() - begun < 5.0  # splitting it everywhere would take years
    too_long = pattern.parse("a" * (NAME_CHARS_MAX + 1))
    assert isinstance(too_long, Unfit)
    assert too_long.why is Misfit.TOO_LONG


def test_a_pair_translates_both_ways() -> None:
    logical = compile_pattern("{topic}")
    ours = compile_pattern(FULL, OURS)
    both = pair(logical, ours)
    assert both.there("orders") == "acme-dta-prod-orders"
    assert both.back("acme-dta-prod-orders") == "orders"
    assert isinstance(both.back("evil-dta-prod-orders"), Unfit)


def test_each_cluster_has_its_own_constants_and_order() -> None:
    source = compile_pattern("{tenant}-{instance}-{topic}", {"tenant": "acme", "instance": "dta"})
    target = compile_pattern("{topic}-{instance}", {"instance": "dtb"})
    both = pair(source, target)
    assert both.there("acme-dta-orders") == "orders-dtb"
    assert both.back("orders-dtb") == "acme-dta-orders"
    assert isinstance(both.back("orders-dta"), Unfit)


def test_a_variable_is_carried_over() -> None:
    both = pair(compile_pattern("{team}-{topic}"), compile_pattern("{topic}-of-{team}"))
    assert both.there("billing-open-orders") == "open-orders-of-billing"
    assert both.back("open-orders-of-billing") == "billing-open-orders"


def test_a_variable_of_one_side_and_a_constant_of_the_other_must_be_equal() -> None:
    both = pair(
        compile_pattern("{instance}-{topic}"),
        compile_pattern("x-{instance}-{topic}", {"instance": "dta"}),
    )
    assert both.there("dta-orders") == "x-dta-orders"
    assert both.there("dtb-orders") == Unfit(
        "dtb-orders", Misfit.FOREIGN, "instance is 'dta' on the other side"
    )
    assert both.back("x-dta-orders") == "dta-orders"


def test_a_pair_that_makes_one_name_of_two_is_refused_with_the_two() -> None:
    source = compile_pattern("{tenant}-{instance}-{topic}", {"tenant": "acme"})
    target = compile_pattern("{tenant}-{topic}", {"tenant": "acme"})
    for first, second in ((source, target), (target, source)):
        with pytest.raises(CollisionError) as refused:
            pair(first, second)
        assert refused.value.names == ("acme-instance1-orders", "acme-other-orders")
        assert refused.value.made == "acme-orders"
        for name in refused.value.names:
            assert isinstance(source.parse(name), dict)
            assert name in str(refused.value)


def test_internal_names_stay() -> None:
    both = pair(compile_pattern("{topic}"), compile_pattern(FULL, OURS))
    for name in ("_schemas", "__consumer_offsets", "_", "_acme-dta-prod-orders"):
        assert both.there(name) == name
        assert both.back(name) == name


def test_no_name_becomes_internal() -> None:
    both = pair(compile_pattern("acme-{topic}"), compile_pattern("{topic}"))
    assert both.there("acme-_schemas") == Unfit("acme-_schemas", Misfit.INTERNAL, "_schemas")


def test_a_name_that_would_be_too_long_for_kafka() -> None:
    both = pair(compile_pattern("{topic}"), compile_pattern("acme-{topic}"))
    assert both.there("a" * 244) == "acme-" + "a" * 244
    assert both.there("a" * 245) == Unfit("a" * 245, Misfit.TOO_LONG, "250 characters of 249")
