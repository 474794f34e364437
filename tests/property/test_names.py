"""Translations are one to one, for any pair of patterns that is accepted, and any name."""

from __future__ import annotations

from hypothesis import assume, example, given
from hypothesis import strategies as st

from keyway.clusters.core.names import (
    CollisionError,
    Pattern,
    PatternError,
    Unfit,
    compile_pattern,
    pair,
)
from keyway.clusters.core.subjects import RecordNames, SubjectTranslation, split_subject

FIELDS = ("tenant", "site", "env")
values = st.text("aB0_.", min_size=1, max_size=4)
topics = st.text("aB0_.-", min_size=1, max_size=8)
literals = st.text("a0._$#-", min_size=1, max_size=3)
edges = st.just("") | literals


@st.composite
def patterns(draw: st.DrawFn) -> Pattern:
    fields = draw(st.permutations(FIELDS))[: draw(st.integers(0, 3))]
    order = draw(st.permutations(["topic", *fields]))
    between = [draw(literals) for _ in order[1:]]
    text = draw(edges) + f"{{{order[0]}}}"
    for literal, field in zip(between, order[1:], strict=True):
        text += f"{literal}{{{field}}}"
    constants = {field: draw(values) for field in draw(st.lists(st.sampled_from(FIELDS)))}
    try:
        return compile_pattern(text + draw(edges), constants)
    except PatternError:
        assume(False)
        raise


@given(patterns(), st.fixed_dictionaries(dict.fromkeys(FIELDS, values)), topics)
def test_a_rendered_name_is_parsed_again(
    pattern: Pattern, given_values: dict[str, str], topic: str
) -> None:
    wanted = {**given_values, **dict(pattern.constants), "topic": topic}
    name = pattern.render(wanted)
    assume(not name.startswith("_"))
    parsed = pattern.parse(name)
    assert isinstance(parsed, dict)
    assert parsed == {field: wanted[field] for field in pattern.pieces[1::2]}


@given(patterns(), st.text("aB0_.$#-{}: ", max_size=12))
def test_a_parsed_name_is_rendered_again(pattern: Pattern, name: str) -> None:
    parsed = pattern.parse(name)
    if isinstance(parsed, dict):
        assert pattern.render(parsed) == name
        assert all(parsed[field] == value for field, value in pattern.constants)


@given(patterns(), patterns(), st.lists(topics, min_size=2, max_size=6), st.data())
def test_an_accepted_pair_is_one_to_one_and_a_refused_pair_is_not(
    source: Pattern, target: Pattern, names: list[str], data: st.DataObject
) -> None:
    try:
        both = pair(source, target)
    except CollisionError as refused:
        first, second = refused.names
        side = source if isinstance(source.parse(first), dict) else target
        if not first.startswith("_") and not second.startswith("_"):
            assert first != second
            assert isinstance(side.parse(first), dict)
            assert isinstance(side.parse(second), dict)
        return
    made: dict[str, str] = {}
    for topic in names:
        wanted = {field: data.draw(values) for field in FIELDS} | dict(target.constants)
        name = source.render({**wanted, "topic": topic})
        there = both.there(name)
        if not isinstance(there, Unfit):
            assert both.back(there) == name
            assert made.setdefault(there, name) == name


@given(
    patterns(),
    patterns(),
    st.sampled_from(RecordNames),
    st.lists(
        st.tuples(
            st.sampled_from(["", ":.c:", ":.:"]),
            topics,
            st.sampled_from(["-key", "-value", "", "-a.B", "-key-value"]),
        ),
        max_size=8,
    ),
)
@example(
    compile_pattern("a-{topic}"),
    compile_pattern("{topic}"),
    RecordNames.TRANSLATE,
    [("", "a-a", ""), ("", "a", "-a"), ("", "a", "-value"), ("", "a-a", "-value")],
)
def test_subjects_are_one_to_one(
    source: Pattern, target: Pattern, policy: RecordNames, parts: list[tuple[str, str, str]]
) -> None:
    try:
        both = SubjectTranslation(pair(source, target), policy)
    except CollisionError:
        assume(False)
        raise
    made: dict[str, str] = {}
    for context, topic, suffix in parts:
        wanted = dict.fromkeys(FIELDS, "a") | dict(target.constants)
        for subject in (
            context + topic + suffix,
            context + source.render({**wanted, "topic": topic}) + suffix,
        ):
            there = both.there(subject)
            if isinstance(there, Unfit):
                continue
            assert both.back(there) == subject
            assert made.setdefault(there, subject) == subject
            assert split_subject(there).context == split_subject(subject).context
            assert split_subject(there).suffix == split_subject(subject).suffix
