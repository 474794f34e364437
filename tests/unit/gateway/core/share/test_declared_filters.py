"""Key filters in a client.id: read, or refused."""

from __future__ import annotations

import pytest

from gateway.core.limits import FILTER_GLOB_BYTES_MAX, FILTER_GLOBS_MAX
from gateway.core.share.declared_filters import (
    InvalidKeyFilters,
    check_cost,
    client_name,
    cost,
    inline_filters,
)
from gateway.core.wire.errors import ErrorCode


@pytest.mark.parametrize(
    ("client_id", "name", "globs"),
    [
        ("orders-1", "orders-1", ()),
        ("", "", ()),
        ("orders;1", "orders;1", ()),
        ("orders-1;keys=eu-*", "orders-1", (b"eu-*",)),
        ("orders-1;keys=eu-*|us-?", "orders-1", (b"eu-*", b"us-?")),
        (";keys=*", "", (b"*",)),
        ("a;keys=x%7Cy|%25|%00%ff*", "a", (b"x|y", b"%", b"\x00\xff*")),
        ("a;keys=x;keys=y", "a", (b"x;keys=y",)),
        ("a;keys=grün*", "a", ("grün*".encode(),)),
    ],
)
def test_form(client_id: str, name: str, globs: tuple[bytes, ...]) -> None:
    assert client_name(client_id) == name
    assert inline_filters(client_id) == globs


@pytest.mark.parametrize(
    "declared",
    [
        "",
        "eu-*|",
        "|eu-*",
        "100%",
        "%zz*|a",
        "a%2",
        "|".join(["a"] * (FILTER_GLOBS_MAX + 1)),
        "a" * (FILTER_GLOB_BYTES_MAX + 1),
    ],
)
def test_what_is_refused(declared: str) -> None:
    with pytest.raises(InvalidKeyFilters) as refused:
        inline_filters(f"orders-1;keys={declared}")
    assert refused.value.code is ErrorCode.INVALID_REQUEST


def test_the_bounds_are_inclusive() -> None:
    assert len(inline_filters("a;keys=" + "|".join(["a"] * FILTER_GLOBS_MAX))) == FILTER_GLOBS_MAX
    longest = "ü" * (FILTER_GLOB_BYTES_MAX // 2)
    assert inline_filters(f"a;keys={longest}") == (longest.encode(),)


def test_all_filters_of_a_group_together_have_a_bound() -> None:
    prefixes = [(b"tenant-%04d-*" % at,) for at in range(1_000)]
    check_cost(prefixes + prefixes)  # equal ones count once
    hostile = [(b"*" + b"a?" * 120 + b"%02d*" % at,) for at in range(4)]
    check_cost(hostile)
    with pytest.raises(InvalidKeyFilters, match="of at most 65536"):
        check_cost([*hostile, (b"*" + b"a?" * 120 + b"xy*",)])


@pytest.mark.parametrize(
    ("glob", "counts"),
    [
        (b"eu", 34),
        (b"eu-*", 36),
        (b"*-eu", 36),
        (b"eu-*-1", 38),
        (b"*eu*", 36 + 512 + 2 * 64),
        (b"a*b*c**d*", 41 + 512 + 3 * 64),
        (b"**", 34),
    ],
)
def test_the_cost_of_a_glob(glob: bytes, counts: int) -> None:
    assert cost((glob,)) == counts
    assert cost((glob, glob)) == 2 * counts
