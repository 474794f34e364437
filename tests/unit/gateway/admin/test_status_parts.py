"""Parts of a status, in the shapes that the commands print: spark/links/show.py, offsets/cli.py,
schema_dist/commands.py.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.exceptions import HTTPException
from starlette.requests import Request

from gateway.admin.status_parts import part_asked
from offsets.core.plan import Mode, Refusal, Row
from schema_dist.commands import Answer
from spark.links.status import PartitionStatus, TopicStatus

Json = dict[str, Any]


def asked(path: str, query: str, status: object) -> tuple[Any, str | None]:
    """The part of a status that a request asks for, and `after` of its next page."""
    scope = {"type": "http", "path": path, "query_string": query.encode(), "headers": []}
    part_of = part_asked(Request(scope | {"server": ("h", 1), "scheme": "http"}))
    assert part_of is not None
    part = part_of(json.dumps(status).encode() + b"\n")
    return json.loads(part.status), part.following


# -------------------------------------------------------------------------------------------- links


def link(name: str, *topics: str) -> Json:
    state = {"state": "running", "target": "fra", "generation": 1, "error": "", "updated_ms": 5}
    shown = {
        topic: TopicStatus(partitions={0: PartitionStatus(copied=3)}).as_json() for topic in topics
    }
    return {"link": name, "source": name[:3], "level": 1, **state, "topics": shown}


AWAY = {"state": "unknown", "error": "no answer in 10 s", "topics": {}}
LINKS = [
    link("ams-level-1", "orders", "a\u20ac"),
    link("fra-level-1", "orders"),
    {"link": "nyc-level-2", "source": "nyc", "level": 2, **AWAY},
]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("link=ams-level-1", [LINKS[0]]),
        ("link=ams", []),
        ("topic=orders", [link("ams-level-1", "orders"), *LINKS[1:]]),
        ("topic=a%E2%82%AC", [link("ams-level-1", "a\u20ac"), link("fra-level-1"), LINKS[2]]),
        ("link=fra-level-1&topic=none", [link("fra-level-1")]),
        ("link=nyc-level-2", [LINKS[2]]),
    ],
)
def test_links(query: str, expected: list[Json]) -> None:
    """A link stays although it does not have the topic: it may be one whose source is away."""
    read_back = json.loads(json.dumps(expected))
    assert asked("/v1/links", query, LINKS) == (read_back, None)


# ------------------------------------------------------------------------------------------ schemas


def test_schemas_of_one_target() -> None:
    refused = [{"subject": "s", "version": 1, "id": 2, "reason": "id-taken", "detail": "}, {"}]
    fra = {"target": "fra", "in_sync": 5, "behind": 0, "refused": {}, "refusals": refused}
    nyc = {"target": "nyc", "problem": "no answer"}
    status = Answer(False, {"targets": [fra, nyc]}).raw
    assert asked("/v1/schemas", "target=fra", status) == ({"ok": False, "targets": [fra]}, None)
    assert asked("/v1/schemas", "target=x", status) == ({"ok": False, "targets": []}, None)


# ------------------------------------------------------------------------------------------ offsets


def row(group: str, topic: str, partition: int, cluster: str) -> Json:
    refusals = (Refusal.UNSAFE_LAG,) if partition else ()
    decided = Row(group, topic, partition, "ams", 7, 9, Mode.EXACT, None, 4, "", 0, 3, refusals)
    return {"cluster": cluster, "version": 1, **decided.shown()}


def offsets(rows: list[Json]) -> Json:
    """As the command sorts them."""
    order = sorted(
        rows,
        key=lambda known: (known["group"], known["topic"], known["partition"], known["cluster"]),
    )
    return {"rows": order, "away": ["nyc: no answer"]}


def pages(query: str, states: Callable[[int], Json], most: int = 10_000) -> list[Json]:
    """All rows; `states`: the status at the time of each page."""
    found: list[Json] = []
    after: str | None = ""
    number = 0
    while after is not None:
        more = f"{query}&after={after}" if after else query
        answer, after = asked("/v1/offsets", more, states(number))
        assert len(answer["rows"]) <= most
        assert answer["away"] == ["nyc: no answer"]
        found += answer["rows"]
        number += 1
    return found


ROWS = [
    row(group, topic, partition, cluster)
    for group in ("g", "h")
    for topic in ("a", "b")
    for partition in (0, 1, 10)
    for cluster in ("fra", "nyc")
]


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ("group=g", {"group": "g"}),
        ("topic=b&cluster=fra", {"topic": "b", "cluster": "fra"}),
        ("group=h&topic=a&cluster=nyc", {"group": "h", "topic": "a", "cluster": "nyc"}),
        ("group=none", {"group": "none"}),
        ("group=", {"group": ""}),
        ("limit=1000", {}),
    ],
)
def test_offsets_with_filters(query: str, wanted: dict[str, str]) -> None:
    expected = [known for known in ROWS if wanted.items() <= known.items()]
    assert asked("/v1/offsets", query, offsets(ROWS))[0]["rows"] == expected
    for limit in (1, 2, 5):
        paged = query if "limit" in query else f"{query}&limit={limit}"
        assert pages(paged, lambda _: offsets(ROWS)) == expected


NAMES = st.text(max_size=3)
PLACES = st.tuples(NAMES, NAMES, st.integers(0, 2**31 - 1), NAMES)


@given(st.sets(PLACES, max_size=20), st.integers(1, 25))
def test_pages_of_any_size_have_each_row_once(
    places: set[tuple[str, str, int, str]], limit: int
) -> None:
    status = offsets([row(*place) for place in places])
    assert pages(f"limit={limit}", lambda _: status, limit) == status["rows"]


@given(
    st.sets(PLACES, min_size=1, max_size=10),
    st.lists(st.sets(PLACES, max_size=10), min_size=1),
    st.integers(1, 4),
)
def test_rows_that_come_and_go_hide_no_other(
    stay: set[tuple[str, str, int, str]],
    passing: list[set[tuple[str, str, int, str]]],
    limit: int,
) -> None:
    states = [offsets([row(*place) for place in stay | more]) for more in passing]
    found = pages(f"limit={limit}", lambda page: states[page % len(states)], limit)
    shown = [
        (known["group"], known["topic"], known["partition"], known["cluster"]) for known in found
    ]
    assert len(shown) == len(set(shown))
    assert stay <= set(shown)
    assert shown == sorted(shown)


def encoded(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


@pytest.mark.parametrize(
    "query",
    [
        *("limit=0", "limit=1001", "after=x", "after=!", "after=%C3%A4", "after=bnVsbA"),
        *(
            f"after={encoded(place)}"
            for place in (1, [], ["g", "t", 0], ["g", "t", "0", "c"], ["g", "t", True, "c"], "gtpc")
        ),
    ],
)
def test_a_page_that_is_none(query: str) -> None:
    with pytest.raises(HTTPException) as refused:
        asked("/v1/offsets", query, offsets(ROWS))
    assert refused.value.status_code == 400


@pytest.mark.parametrize(
    ("path", "query", "status"),
    [
        ("/v1/links", "link=a", {}),
        ("/v1/links", "link=a", [1]),
        ("/v1/links", "topic=a", [{"topics": []}]),
        ("/v1/offsets", "group=a", []),
        ("/v1/offsets", "group=a", {"rows": [1]}),
        ("/v1/offsets", "group=a", {"rows": [{}]}),
        ("/v1/offsets", "group=a", {"rows": [{"group": "a", "topic": "b", "partition": "0"}]}),
        ("/v1/offsets", "limit=1", {"rows": [{"group": 1, "topic": "b", "partition": 0}]}),
        ("/v1/schemas", "target=a", {"targets": [None]}),
    ],
)
def test_an_answer_of_another_shape(path: str, query: str, status: object) -> None:
    with pytest.raises(ValueError, match=r"."):
        asked(path, query, status)
