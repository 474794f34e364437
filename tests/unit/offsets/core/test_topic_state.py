"""What stays on the state topic, and what is news."""

from __future__ import annotations

from offsets.core.entries import (
    APPLIED,
    BOTH,
    CUT,
    ENTRY,
    ROW,
    VERSION,
    Applied,
    Entry,
    encode_applied,
    encode_cut,
    encode_entry,
    key_of,
)
from offsets.core.model import Cut
from offsets.core.switches import SWITCH, SwitchReport, encode_report
from offsets.core.topic_state import TopicState

PLACE, OTHER = ("billing", "orders", 0), ("billing", "orders", 1)
SHOWN = b'{"version":%d}' % VERSION


def tell(state_topic: TopicState, *entries: Entry) -> None:
    for entry in entries:
        state_topic.read(key_of(ENTRY, entry.place, entry.source), encode_entry(entry))


def test_an_entry_is_news_once() -> None:
    state_topic = TopicState()
    first, second = Entry(*PLACE, "A", 5, offset=1), Entry(*PLACE, "A", 6, offset=2)
    tell(state_topic, first, second, Entry(*OTHER, "A", 6, deleted=True))
    assert state_topic.news() == [second, Entry(*OTHER, "A", 6, deleted=True)]
    tell(state_topic, second)
    assert state_topic.news() == []
    assert list(state_topic.places) == [PLACE, OTHER]
    assert state_topic.newest(PLACE, besides="B") == second
    assert state_topic.newest(PLACE, besides="A") is None
    assert state_topic.newest(OTHER, besides="B") is None, "it is deleted"


def test_what_is_told_of_a_deleted_commit_ends_after_a_while() -> None:
    """And what stands beside it: the decision, and the commit that was made from it."""
    state_topic = TopicState()
    tell(
        state_topic,
        Entry(*PLACE, "A", 1_000, deleted=True),
        Entry(*OTHER, "A", 1_000, deleted=True),
    )
    tell(state_topic, Entry(*OTHER, "C", 500))
    for place in (PLACE, OTHER):
        state_topic.read(key_of(ROW, place, "A"), SHOWN)
        state_topic.read(key_of(APPLIED, place), encode_applied(Applied(7, "", "A", 5)))
    gone_from_both = key_of(BOTH, ("gone", "", 0))
    for key in (key_of(BOTH, (OTHER[0], "", 0)), gone_from_both):
        state_topic.read(key, SHOWN)
    assert state_topic.expired(1_000) == [gone_from_both]
    keys = state_topic.expired(1_001)
    assert set(keys) == {
        key_of(ENTRY, PLACE, "A"),
        key_of(ENTRY, OTHER, "A"),
        key_of(ROW, PLACE, "A"),
        key_of(ROW, OTHER, "A"),
        key_of(APPLIED, PLACE),
        gone_from_both,
    }
    for key in keys:
        state_topic.read(key, None)
    assert list(state_topic.places) == [OTHER]
    assert list(state_topic.applied) == [OTHER]
    assert state_topic.rows == {}
    assert state_topic.both == {OTHER[0]}
    assert state_topic.expired(10**15) == []


def test_all_of_a_state_topic_can_be_written_again() -> None:
    """Its topic may be deleted while the service runs."""
    state_topic, again = TopicState(), TopicState()
    tell(state_topic, Entry(*PLACE, "A", 1_000, offset=3), Entry(*OTHER, "C", 500, deleted=True))
    state_topic.read(key_of(ROW, PLACE, "A"), b'{"version":%d,"new":7}' % VERSION)
    state_topic.read(key_of(APPLIED, PLACE), encode_applied(Applied(7, "", "A", 5)))
    state_topic.read(key_of(BOTH, (PLACE[0], "", 0)), SHOWN)
    cut = Cut("life", end=7, epoch=3)
    state_topic.read(key_of(CUT, ("", *PLACE[1:])), encode_cut(cut))
    assert state_topic.cuts == {PLACE[1:]: cut}
    switch = SwitchReport("B", 2, "B", generation=1, target="A", rewind=False, done=True)
    state_topic.read(key_of(SWITCH, switch.place, switch.source), encode_report(switch))
    for key, value in state_topic.records():
        again.read(key, value)
    assert again == state_topic
    assert again.malformed == 0
