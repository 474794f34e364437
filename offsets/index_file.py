"""The indexes of one cluster's partitions in a file, so that a service that starts again goes on
where it was instead of reading all retained logs. It is a cache: without it, or with one that
cannot be used, the logs are read.

SQLite: a checkpoint writes the few partitions that changed, and is whole or not there after a
crash. Indexes made with other secrets are dropped: other copies would have been believed.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import structlog

from keyway.clusters.core.trust import Seals
from offsets.client import Partition
from offsets.core.index import PartitionIndex
from offsets.core.stored import VERSION, Unusable, packed, unpacked

log = structlog.get_logger("keyway.offsets")

_TABLES: Final = """
CREATE TABLE IF NOT EXISTS made_by (what TEXT PRIMARY KEY, value TEXT);
CREATE TABLE IF NOT EXISTS indexes (
    topic TEXT, partition INTEGER, data BLOB, PRIMARY KEY (topic, partition)
) WITHOUT ROWID;
"""


class IndexFile:
    """`close` it. No method raises because of the file: trouble is logged once, and then the
    service works without the file.
    """

    def __init__(self, path: Path, seals: Seals) -> None:
        self._path = path
        self._made_by = {"version": str(VERSION), "seals": _fingerprint(path.name, seals)}
        self._database: sqlite3.Connection | None = None
        try:
            self._open()
        except sqlite3.OperationalError as error:  # locked: another service of this cluster runs
            self._give_up(error)
        except sqlite3.DatabaseError:  # it is no database, or a broken one
            self._remove()
        except OSError as error:
            self._give_up(error)

    def _open(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(self._path, os.O_CREAT | os.O_RDWR, 0o600))
        self._database = database = sqlite3.connect(self._path, timeout=1.0)
        database.executescript("PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;" + _TABLES)
        with database:
            found = dict(database.execute("SELECT what, value FROM made_by"))
            if found != self._made_by:
                database.execute("DELETE FROM indexes")
                database.execute("DELETE FROM made_by")
                database.executemany("INSERT INTO made_by VALUES (?, ?)", self._made_by.items())

    def _remove(self) -> None:
        log.warning("index_file_made_anew", path=str(self._path))
        self.close()
        try:
            for name in (self._path.name, f"{self._path.name}-wal", f"{self._path.name}-shm"):
                self._path.with_name(name).unlink(missing_ok=True)
            self._open()
        except (OSError, sqlite3.Error) as error:
            self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        log.warning("index_file_not_used", path=str(self._path), reason=str(error))
        self.close()

    def load(self, partitions: Iterable[Partition]) -> dict[Partition, PartitionIndex]:
        """The indexes of `partitions` that the file has."""
        found: dict[Partition, PartitionIndex] = {}
        if self._database is None:
            return found
        sql = "SELECT data FROM indexes WHERE topic = ? AND partition = ?"
        try:
            for partition in partitions:
                row = self._database.execute(sql, partition).fetchone()
                if row is not None:
                    found[partition] = unpacked(row[0])
        except Unusable:
            self._remove()
        except sqlite3.Error as error:
            self._give_up(error)
        return found

    def save(self, indexes: Mapping[Partition, PartitionIndex | None]) -> None:
        """None in place of an index: the partition is not followed any more."""
        if self._database is None or not indexes:
            return
        gone = [partition for partition, index in indexes.items() if index is None]
        kept = [
            (*partition, packed(index)) for partition, index in indexes.items() if index is not None
        ]
        try:
            with self._database as database:
                database.executemany("DELETE FROM indexes WHERE topic = ? AND partition = ?", gone)
                database.executemany("INSERT OR REPLACE INTO indexes VALUES (?, ?, ?)", kept)
        except sqlite3.Error as error:
            self._give_up(error)

    def close(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None


def _fingerprint(name: str, seals: Seals) -> str:
    """A fingerprint of the secrets. It is slow to make, because a short secret could be guessed
    from it.
    """
    text = repr((seals.secrets, seals.checksums)).encode()
    return hashlib.scrypt(text, salt=name.encode(), n=2**14, r=8, p=1, dklen=16).hex()
