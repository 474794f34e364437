"""Subjects of each naming strategy, with contexts, under each policy."""

from __future__ import annotations

import pytest

from keyway.clusters.core.names import Misfit, Unfit, compile_pattern
from keyway.clusters.core.subjects import (
    RecordNames,
    Subject,
    SubjectTranslation,
    pair_subjects,
    split_subject,
)

SOURCE = compile_pattern("{tenant}-{topic}", {"tenant": "acme"})
TARGET = compile_pattern("{topic}.{site}", {"site": "b"})


def translation(policy: RecordNames = RecordNames.REFUSE) -> SubjectTranslation:
    return pair_subjects(SOURCE, TARGET, policy)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("orders-value", ("", "orders", "-value")),
        ("orders-key", ("", "orders", "-key")),
        ("orders-value-key", ("", "orders-value", "-key")),
        ("com.acme.Order", ("", "com.acme.Order", "")),
        ("-value", ("", "-value", "")),
        (":.eu:orders-value", (":.eu:", "orders", "-value")),
        (":.:orders-value", (":.:", "orders", "-value")),
        (":.eu:", (":.eu:", "", "")),
        (":.eu", ("", ":.eu", "")),
        ("", ("", "", "")),
    ],
)
def test_a_subject_in_its_parts(text: str, parts: tuple[str, str, str]) -> None:
    assert split_subject(text) == Subject(*parts)


@pytest.mark.parametrize("suffix", ["-key", "-value"])
@pytest.mark.parametrize("context", ["", ":.eu:"])
def test_topic_names_are_translated_and_suffix_and_context_stay(suffix: str, context: str) -> None:
    there = translation().there(f"{context}acme-my-orders{suffix}")
    assert there == f"{context}my-orders.b{suffix}"
    assert translation().back(there) == f"{context}acme-my-orders{suffix}"


def test_a_foreign_tenant_and_a_foreign_shape_do_not_resolve() -> None:
    assert translation().there("evil-orders-value") == Unfit(
        "evil-orders-value", Misfit.FOREIGN, "tenant is 'acme' here"
    )
    found = translation().back("orders-value")
    assert isinstance(found, Unfit)
    assert found.why is Misfit.SHAPE


def test_internal_subjects_are_untouched() -> None:
    for subject in ("_internal-value", ":.eu:_internal-key", "_x"):
        assert translation().there(subject) == subject
        assert translation().back(subject) == subject


@pytest.mark.parametrize(
    ("policy", "subject", "expected"),
    [
        (RecordNames.REFUSE, "com.acme.Order", None),
        (RecordNames.REFUSE, "acme-orders-com.acme.Order", None),
        (RecordNames.KEEP, "com.acme.Order", "com.acme.Order"),
        (RecordNames.KEEP, "acme-orders-com.acme.Order", "acme-orders-com.acme.Order"),
        (RecordNames.TRANSLATE, "com.acme.Order", "com.acme.Order"),
        (RecordNames.TRANSLATE, "acme-orders-com.acme.Order", "orders.b-com.acme.Order"),
        (RecordNames.TRANSLATE, ":.eu:acme-orders-Order", ":.eu:orders.b-Order"),
        (RecordNames.TRANSLATE, "evil-orders-com.acme.Order", None),
    ],
)
def test_record_names_by_policy(policy: RecordNames, subject: str, expected: str | None) -> None:
    made = translation(policy).there(subject)
    if expected is None:
        assert isinstance(made, Unfit)
    else:
        assert made == expected
        assert translation(policy).back(made) == subject


def test_refused_record_names_say_so() -> None:
    assert str(translation().there("com.acme.Order")) == (
        "'com.acme.Order' is named after a record, not after a topic"
    )
