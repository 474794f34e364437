"""The one header of a copied record: its way here, and a seal that binds the header to this very
record.

    keyway-copy: 2-00000005-b1946ac92492d234-q7GdPzq4RbC5nTZ0m9Zx1w-0-4711-ams1/orders
                 │ flags    seal             │                      │ │    origin: cluster/topic
                 version                     topic id       partition  offset

Plain ASCII, so that every console tool shows it, and with fixed widths up to the topic id. The
topic is the logical one (without the clusters' name patterns) that the record was produced to,
whatever a transform makes of it later. The topic id is the one that topic had then: a topic that is
deleted and created again counts its offsets anew. A cluster without topic ids has the id of zeros.
Headers of version 1, which had no topic id, are read, too.

Applications that copy the headers of their input to their output (Kafka Streams, Connect) would
hand the flags on to records that are new, which then would never be distributed. So a header is
believed only where its seal fits (seals.py): it covers the header's other fields
and the record (logical topic, timestamp, key, value) as written at this cluster. A header that is
not believed counts as absent. Not told apart: a record written again with the same topic,
timestamp, key and value.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from keyway.clusters.core.limits import COPY_HEADER_BYTES_MAX, COPY_HEADERS_MAX
from keyway.clusters.core.seals import Seal, fits, made
from keyway.clusters.core.seals import Stood as Stood
from keyway.clusters.core.tree import ClusterName, Flags
from keyway.clusters.core.trust import CHECKSUM, Seals

COPY_HEADER = "keyway-copy"
VERSION = "2"
NO_TOPIC_ID = "A" * 22  # Kafka's zero id: not known

Headers = Iterable[tuple[str, bytes | None]]

# Also Spark's `rlike` reads it. Cluster names are those that keyway/clusters/config.py takes,
# topics Kafka's. No partition or offset has a zero in front: a header has one form.
PATTERN = (
    r"^(1-[0-9a-f]{8}-[0-9a-f]{16}|2-[0-9a-f]{8}-[0-9a-f]{16}-[A-Za-z0-9_-]{22})"
    r"-(0|[1-9][0-9]{0,9})-(0|[1-9][0-9]{0,18})"
    r"-([A-Za-z0-9._-]{1,64})/([A-Za-z0-9._-]{1,249})$"
)
_PATTERN = re.compile(PATTERN.removesuffix("$") + r"\Z")
# Where the fields of a header are: up to here the two versions are alike.
FLAGS_AT, SEAL_AT, ORIGIN_AT = 2, 11, 28


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a record was produced: cluster, logical topic, partition and offset there.

    `topic_id`: Kafka's, 22 characters; empty if it is not known.
    """

    cluster: ClusterName
    topic: str
    partition: int
    offset: int
    topic_id: str = ""

    @property
    def place(self) -> tuple[ClusterName, str, int, int]:
        """Without the topic id, which headers of version 1 lack."""
        return self.cluster, self.topic, self.partition, self.offset

    def __str__(self) -> str:
        return f"{self.partition}-{self.offset}-{self.cluster}/{self.topic}"


@dataclass(frozen=True, slots=True)
class Copy:
    """The contents of a header whose seal fits."""

    flags: Flags
    origin: Origin


class Doubt(StrEnum):
    """Why a header named keyway-copy was not believed, or not needed."""

    OVERSIZED = "oversized"
    MALFORMED = "malformed"  # also: no value, another version
    SEAL = "seal"  # inherited from another record, of another topic, or forged
    REPEATED = "repeated"  # behind one whose seal fits
    TOO_MANY = "too_many"  # behind the first COPY_HEADERS_MAX: not looked at


class Claim(NamedTuple):
    """One well-formed header, whose seal is not checked yet. A link has one for each record that
    was copied before, so what few ask for is made when they do.
    """

    text: str

    @property
    def version(self) -> int:
        return int(self.text[0])

    @property
    def flags(self) -> Flags:
        return Flags(int(self.text[FLAGS_AT : SEAL_AT - 1], 16))

    @property
    def seal(self) -> Seal:
        return Seal(int(self.text[SEAL_AT : ORIGIN_AT - 1], 16))

    @property
    def claimed(self) -> str:
        """What the seal covers."""
        return f"{self.text[FLAGS_AT : SEAL_AT - 1]}-{self.text[ORIGIN_AT:]}"

    @property
    def origin(self) -> str:
        """As `header` takes it."""
        origin = self.text[ORIGIN_AT:]
        return f"{NO_TOPIC_ID}-{origin}" if self.version == 1 else origin

    @property
    def copy(self) -> Copy:
        found = _PATTERN.match(self.text)
        assert found is not None, self.text
        start, partition, offset, cluster, topic = found.groups()
        origin = Origin(ClusterName(cluster), topic, int(partition), int(offset), _known(start))
        return Copy(self.flags, origin)


@dataclass(frozen=True, slots=True)
class Judged:
    """`copy`: of the first header whose seal fits; None: a fresh record. `doubts`: one for every
    other header of that name.
    """

    copy: Copy | None
    doubts: tuple[Doubt, ...]


def as_in_headers(topic_id: str) -> str:
    """A topic id as Kafka and origins write it; librdkafka has `+` and `/` in it. Empty for a
    cluster without topic ids.
    """
    text = topic_id.replace("+", "-").replace("/", "_")
    return "" if text == NO_TOPIC_ID else text


def judge(headers: Headers, record: Stood, *, seals: Seals = CHECKSUM) -> Judged:
    """Of all headers of a record, in order; those of other names are not looked at."""
    claim, doubts = believed(
        (value for name, value in headers if name == COPY_HEADER), record, seals
    )
    return Judged(None if claim is None else claim.copy, tuple(doubts))


def believed(
    values: Iterable[bytes | None], record: Stood, seals: Seals
) -> tuple[Claim | None, list[Doubt]]:
    """The first of a record's copy headers whose seal fits, and a doubt for every other one."""
    found: Claim | None = None
    doubts: list[Doubt] = []
    for at, value in enumerate(values):
        if at >= COPY_HEADERS_MAX:
            doubts.append(Doubt.TOO_MANY)
            continue
        claim = parse(value)
        if isinstance(claim, Doubt):
            doubts.append(claim)
        elif not fits(claim.version, claim.claimed, record, claim.seal, seals):
            doubts.append(Doubt.SEAL)
        elif found is not None:
            doubts.append(Doubt.REPEATED)
        else:
            found = claim
    return found, doubts


def parse(value: bytes | None) -> Claim | Doubt:
    """The claims of one header, and its seal, which is not checked here."""
    if value is None:
        return Doubt.MALFORMED
    if len(value) > COPY_HEADER_BYTES_MAX:
        return Doubt.OVERSIZED
    try:
        text = value.decode("ascii")
    except UnicodeDecodeError:
        return Doubt.MALFORMED
    return Claim(text) if _PATTERN.match(text) else Doubt.MALFORMED


def _known(start: str) -> str:
    """The topic id at the end of a header's fixed part; empty if there is none."""
    topic_id = start[ORIGIN_AT:]
    return "" if topic_id == NO_TOPIC_ID else topic_id


def encode(copy: Copy, record: Stood, *, seals: Seals = CHECKSUM) -> bytes:
    """The header's value for `record`, the copy as it is about to be written."""
    origin = f"{copy.origin.topic_id or NO_TOPIC_ID}-{copy.origin}"
    flags = f"{copy.flags:08x}"
    text = header(flags, origin, made(seals)(f"{flags}-{origin}", *record))
    assert _PATTERN.match(text.decode()), text
    return text


def header(flags: str, origin: str, seal: str) -> bytes:
    """The header of its parts, as texts. The seal covers `{flags}-{origin}`."""
    return f"{VERSION}-{flags}-{seal}-{origin}".encode()


def cluster_of(origin: str) -> str:
    """The cluster of an origin as `header` takes it."""
    _partition, _offset, place = origin[len(NO_TOPIC_ID) + 1 :].split("-", 2)
    return place.partition("/")[0]
