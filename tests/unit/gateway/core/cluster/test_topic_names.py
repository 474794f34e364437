"""Names that a topic may have."""

from __future__ import annotations

import pytest

from gateway.core.cluster.topic_names import is_topic_name


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "_x", "...", "x" * 249])
def test_names_that_kafka_takes(name: str) -> None:
    assert is_topic_name(name)


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a\n", "a/b", "\u00e4", "x" * 250, "a\0"])
def test_names_that_no_topic_has(name: str) -> None:
    assert not is_topic_name(name)
