"""A view that follows change by change shows what one shows that reads everything anew."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from keyway.clusters.core.names import compile_pattern
from keyway.clusters.core.subjects import pair_subjects
from schema_dist.core.contents import Contents
from schema_dist.core.model import Reference, Schema, SchemaId, SchemaVersion, Version
from schema_dist.core.records import (
    CompatibilitySet,
    Event,
    ModeSet,
    SchemaRemoved,
    SchemaWritten,
    SubjectCleared,
    SubjectDeleted,
)
from schema_dist.core.shown import Listing, Shown, under_logical_names

NAMES = pair_subjects(compile_pattern("{t}-{topic}", {"t": "acme"}), compile_pattern("{topic}"))
subjects = st.sampled_from(["acme-a-value", "acme-b-value", ":.eu:acme-a-value", "other-a-value"])
versions = st.integers(1, 4).map(Version)
references = st.lists(
    st.builds(Reference, st.sampled_from("xy"), subjects, versions), max_size=2
).map(tuple)
schemas = st.builds(Schema, st.just("AVRO"), st.sampled_from(['"int"', '"long"', "{"]), references)
events: st.SearchStrategy[Event] = st.one_of(
    st.builds(
        SchemaWritten,
        st.builds(
            SchemaVersion,
            subject=subjects,
            version=versions,
            id=st.integers(1, 5).map(SchemaId),
            schema=schemas,
            deleted=st.booleans(),
        ),
    ),
    st.builds(SchemaRemoved, subjects, versions),
    st.builds(SubjectDeleted, subjects, versions),
    st.builds(SubjectCleared, subjects),
    st.builds(CompatibilitySet, subjects | st.just(""), st.sampled_from(["FULL", None])),
    st.builds(ModeSet, subjects | st.just(""), st.sampled_from(["READONLY", None])),
)


def seen(shown: Shown) -> object:
    everything = Listing(deleted=True)
    listed = shown.list_schemas(everything)
    return (
        shown.list_subjects(everything),
        shown.list_subjects(Listing(prefix="a")),
        listed,
        {key: sorted(of, key=str) for key, of in shown.ids.items()},
        [shown.referenced_by(version.subject, str(version.version)) for version in listed],
        shown.compatibility,
        shown.modes,
        shown.contexts(),
        shown.count,
    )


@given(st.lists(st.lists(events, max_size=6), max_size=12))
def test_following_ends_where_reading_anew_begins(batches: list[list[Event]]) -> None:
    contents, shown, known = Contents(), Shown(NAMES), 0
    for batch in batches:
        for event in batch:
            contents.apply(event, 0)
        changed = contents.changed_since(known)
        assert changed is not None
        known = contents.changes
        shown.update(contents, changed)
        assert seen(shown) == seen(under_logical_names(contents, NAMES))
