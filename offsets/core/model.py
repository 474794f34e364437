"""Records of one partition by their origin, and how far a group has processed them.

A record is where it was produced (its stream: cluster, topic, partition) and its offset there, on
whatever cluster a copy of it stands. A link copies the records of a stream in their order, so
within one stream "processed up to here" is one number: a group's progress is a vector of them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

Range = tuple[int, int]  # inclusive
Answer = TypeVar("Answer")


class Stream(NamedTuple):
    """Where records are produced. `topic` is the name on that cluster, `life` its topic id: a topic
    that is deleted and created again gives its offsets a second time, to other records. "" stands
    in headers of version 1, which do not tell.
    """

    cluster: str
    topic: str
    partition: int
    life: str = ""

    def may_be(self, other: Stream) -> bool:
        """Whether the two streams are the same, or one of them does not tell its life."""
        return self[:3] == other[:3] and (self.life == other.life or not (self.life and other.life))


@dataclass(frozen=True, slots=True)
class Rows:
    """Records of one partition as columns of one length, by ascending offset. `origins` are their
    offsets in their `streams`.
    """

    offsets: Sequence[int]
    timestamps: Sequence[int]
    streams: Sequence[Stream]
    origins: Sequence[int]

    def __len__(self) -> int:
        return len(self.offsets)


@dataclass(frozen=True, slots=True)
class Cut:
    """The log of the topic with the id `life` has lost its end: it went up to `end`, and its last
    record had the leader epoch `epoch`. Records of later epochs stand there now.
    """

    life: str
    end: int
    epoch: int

    def besides(self, other: Cut | None) -> Cut:
        """Both, as if it were one: what either of them doubts is doubted."""
        if other is None or other.life != self.life:
            return self
        return Cut(self.life, max(self.end, other.end), min(self.epoch, other.epoch))


@dataclass(frozen=True, slots=True)
class ReadRange:
    """A wish to read the records of [first, last] again. The answer lacks those that are gone by
    now.
    """

    first: int
    last: int


# A search in an index: yields the ranges to read, is sent their rows, returns its answer.
Search = Generator[ReadRange, Rows, Answer]


@dataclass(frozen=True, slots=True)
class Progress:
    """The records that a group has processed: of each stream the records before `vector[stream]`
    (none if the stream is missing), and the origins in `settled[stream]` (ascending, disjoint).

    Records from `new[stream]` on have certainly not been processed. Of the records between the two
    nobody knows, because the log lost records before or after the group came by. They are
    delivered, and may be repeats.
    """

    vector: Mapping[Stream, int]
    new: Mapping[Stream, int]
    settled: Mapping[Stream, Sequence[Range]] = field(default_factory=dict)

    def told_of(self, streams: Iterable[Stream]) -> Progress:
        """The same progress by the names of `streams`. Where a life is not told, the least progress
        of the streams that it may be counts as processed.
        """
        vector, new, settled = dict(self.vector), dict(self.new), dict(self.settled)
        for stream in streams:
            if stream in self.vector:
                continue
            known = [candidate for candidate in self.vector if candidate.may_be(stream)]
            if known:
                vector[stream] = min(self.vector[candidate] for candidate in known)
                new[stream] = max(self.new.get(candidate, 0) for candidate in known)
                if len(known) == 1:
                    settled[stream] = self.settled.get(known[0], ())
        return Progress(vector, new, settled)

    def has(self, stream: Stream, origin: int) -> bool:
        if origin < self.vector.get(stream, 0):
            return True
        ranges = self.settled.get(stream)
        if not ranges:
            return False
        at = bisect_right(ranges, origin, key=lambda span: span[0]) - 1
        return at >= 0 and origin <= ranges[at][1]

    def may_have(self, stream: Stream, origin: int) -> bool:
        return origin < self.new.get(stream, 0) or self.has(stream, origin)


def joined(numbers: Sequence[int]) -> list[Range]:
    """Ascending numbers as ranges."""
    ranges: list[Range] = []
    for number in numbers:
        if ranges and number <= ranges[-1][1] + 1:
            ranges[-1] = (ranges[-1][0], max(number, ranges[-1][1]))
        else:
            ranges.append((number, number))
    return ranges
