"""What the columns of a copy header look up: keys of seals, and names of topics.

Both stand in a table of one row, which expressions reach as a scalar subquery. Spark shows no
contents of tables in its plans, web pages and event logs, and a literal it shows. A thousand topics
are one value there; as literals each would be a call into the JVM, in every batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow
import xxhash
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from keyway.clusters.core.copies import NO_TOPIC_ID
from keyway.clusters.core.seals import HASH_SEED, pads
from keyway.clusters.core.trust import Seals

_MAPS = (
    64  # Spark searches a map from its first entry on; so many maps keep a thousand topics quick
)
_ID_CHARS = len(NO_TOPIC_ID)

_SCHEMA = pyarrow.schema(
    [
        ("inner", pyarrow.list_(pyarrow.binary())),
        ("outer", pyarrow.list_(pyarrow.binary())),
        ("text", pyarrow.list_(pyarrow.string())),
        ("topics", pyarrow.list_(pyarrow.map_(pyarrow.string(), pyarrow.string()))),
    ]
)


@dataclass(frozen=True, slots=True)
class Named:
    """A topic of a cluster: its logical name, and its id there, empty where it is not known."""

    logical: str
    topic_id: str


@dataclass(frozen=True, slots=True)
class Lookup:
    """Made once for the batches of a query. Topics that are not listed have no names."""

    seals: Seals
    table: DataFrame

    def logical(self, topic: Column) -> Column:
        return F.substring(self._named(topic), _ID_CHARS + 1, 1_000)

    def topic_id(self, topic: Column) -> Column:
        return F.substring(self._named(topic), 1, _ID_CHARS)

    def keys(self) -> Column:
        """A struct of lists with an entry for each secret. No subquery may stand in a function of
        arrays, so there this must be a column of the rows.
        """
        return self.table.select(F.struct("inner", "outer", "text")).scalar()

    def _named(self, topic: Column) -> Column:
        maps = self.table.select("topics").scalar()
        at = F.pmod(F.xxhash64(topic), F.lit(_MAPS)).cast("int")
        return F.get(maps, at)[topic]


def lookup(session: SparkSession, topics: Mapping[str, Named], seals: Seals) -> Lookup:
    """`topics`: by their names on the cluster."""
    padded = [pads(secret) for secret in seals.secrets]
    row = {
        "inner": [inner for inner, _ in padded],
        "outer": [outer for _, outer in padded],
        "text": list(seals.secrets),
        "topics": _maps(topics),
    }
    return Lookup(seals, session.createDataFrame(pyarrow.Table.from_pylist([row], _SCHEMA)))


def _maps(topics: Mapping[str, Named]) -> list[list[tuple[str, str]]]:
    maps: list[list[tuple[str, str]]] = [[] for _ in range(_MAPS)]
    for name, topic in topics.items():
        unsigned = xxhash.xxh64_intdigest(name.encode(), seed=HASH_SEED)
        signed = unsigned - (1 << 64) if unsigned >= 1 << 63 else unsigned
        maps[signed % _MAPS].append(
            (name, (topic_id_of(topic.topic_id) or NO_TOPIC_ID) + topic.logical)
        )
    return maps


def topic_id_of(text: str) -> str:
    """The topic id as Kafka's own tools write it; librdkafka uses the other alphabet of Base64."""
    return text.replace("+", "-").replace("/", "_")
