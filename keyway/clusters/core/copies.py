"""The one header of a copied record: its way here, and a seal that binds the header to this very
record.

    keyway-copy: 2-00000005-b1946ac92492d234-q7GdPzq4RbC5nTZ0m9Zx1w-0-4711-ams1/orders
                 │ flags    seal             │                      │ │    origin: cluster/topic
                 version                     topic id       partition  offset

Plain ASCII, so that every console tool shows it, and with fixed widths up to the topic id, so that
Spark's own columns can cut it. The topic is the logical one (without the clusters' name patterns)
that the record was produced to, whatever a transform makes of it later. The topic id is the one
that topic had then: a topic that is deleted and created again counts its offsets anew. A cluster
without topic ids has the id of zeros. Headers of version 1, which had no topic id, are read, too.

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


@dataclass(frozen=True, slots=True)
class Claim:
    """One well-formed header, whose seal is not checked yet. `claimed`: what the seal covers."""

    version: int
    copy: Copy
    claimed: str
    seal: Seal


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
    copy: Copy | None = None
    doubts: list[Doubt] = []
    mine = (value for name, value in headers if name == COPY_HEADER)
    for at, value in enumerate(mine):
        if at >= COPY_HEADERS_MAX:
            doubts.append(Doubt.TOO_MANY)
            continue
        claim = parse(value)
        if isinstance(claim, Doubt):
            doubts.append(claim)
        elif not fits(claim.version, claim.claimed, record, claim.seal, seals):
            doubts.append(Doubt.SEAL)
        elif copy is not None:
            doubts.append(Doubt.REPEATED)
        else:
            copy = claim.copy
    return Judged(copy, tuple(doubts))


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
    found = _PATTERN.match(text)
    if found is None:
        return Doubt.MALFORMED
    start, partition, offset, cluster, topic = found.groups()
    origin = Origin(ClusterName(cluster), topic, int(partition), int(offset), _known(start))
    flags = text[FLAGS_AT : SEAL_AT - 1]
    seal = Seal(int(text[SEAL_AT : ORIGIN_AT - 1], 16))
    copy = Copy(Flags(int(flags, 16)), origin)
    return Claim(int(text[0]), copy, f"{flags}-{text[ORIGIN_AT:]}", seal)


def _known(start: str) -> str:
    """The topic id at the end of a header's fixed part; empty if there is none."""
    topic_id = start[ORIGIN_AT:]
    return "" if topic_id == NO_TOPIC_ID else topic_id


def encode(copy: Copy, record: Stood, *, seals: Seals = CHECKSUM) -> bytes:
    """The header's value for `record`, the copy as it is about to be written."""
    origin = f"{copy.origin.topic_id or NO_TOPIC_ID}-{copy.origin}"
    flags = f"{copy.flags:08x}"
    seal = made(f"{flags}-{origin}", record, seals)
    text = f"{VERSION}-{flags}-{seal:016x}-{origin}"
    assert _PATTERN.match(text), text
    return text.encode("ascii")
