"""Adoption and partition counts over histories, in any order of what nodes see and clients ask."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.core.routing.adoption import Adoption, of_cluster
from gateway.core.routing.ownership import Routing, moved
from gateway.core.routing.topics import TopicRouting, changed, reflects

counts = st.dictionaries(st.sampled_from("tuv"), st.integers(1, 6), max_size=3)
events = st.lists(
    st.tuples(st.sampled_from("ab"), st.integers(1, 4), st.one_of(st.none(), st.integers(0, 9))),
    max_size=30,
)


@given(events)
def test_adoption_is_what_every_open_connection_of_every_node_was_served(
    history: list[tuple[str, int, int | None]],
) -> None:
    """`None`: the connection is closed. Judged by a list of all that was sent."""
    nodes = {name: Adoption() for name in "ab"}
    sent: dict[tuple[str, int], int] = {}
    for name, connection, generation in history:
        if generation is None:
            nodes[name].closed(connection)
            sent.pop((name, connection), None)
        else:
            nodes[name].served(connection, generation)
            sent[name, connection] = max(generation, sent.get((name, connection), 0))
        cluster = of_cluster({broker: node.lowest() for broker, node in nodes.items()})
        if {owner for owner, _ in sent} == {"a", "b"}:
            assert cluster == min(sent.values())
        else:
            assert cluster is None


@given(st.lists(counts, max_size=12))
def test_versions_grow_with_partitions_and_come_to_rest(views: list[dict[str, int]]) -> None:
    known: dict[str, TopicRouting] = {}
    for seen in views:
        change = changed(known, seen)
        for topic, after in change.items():
            before = known.get(topic)
            assert before is None or after.partitions > before.partitions
            assert after.version == (1 if before is None else before.version + 1)
        known = {**known, **change}
        assert changed(known, seen) == {}
        assert reflects(known, {topic: facts.partitions for topic, facts in known.items()})
    for topic, content in known.items():
        assert content.partitions == max(view.get(topic, 0) for view in views)


owned = st.dictionaries(st.integers(1, 4), st.sampled_from("ab"))


@given(owned, owned, owned, st.integers(0, 5), st.integers(0, 5))
def test_only_what_has_another_owner_or_moves_is_pushed(
    before: dict[int, str], after: dict[int, str], nexts: dict[int, str], g1: int, g2: int
) -> None:
    old = Routing(generation=g1, owners=before, next_owners=nexts)
    assert moved(old, Routing(generation=g2, owners=before, next_owners=nexts)) == frozenset()
    told = moved(old, Routing(generation=g2, owners=after, next_owners=nexts))
    assert told == {broker for broker in range(1, 5) if before.get(broker) != after.get(broker)}
