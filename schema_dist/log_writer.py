"""Writes to a registry by records in its log, `_schemas`: the way for a registry that reads its log
and has no IMPORT mode (Karapace), and for a cluster that has no registry but a view.

Nobody checks such a record: a second schema under one id would be taken. All checks are the plan's,
and the registry must not be written by others at the same time. Each write is read back: from the
log, and from the registry if it has an address.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import assert_never

from confluent_kafka import KafkaException

from keyway.kafka.compacted import CompactedTopic, Record
from schema_dist.core.compare import difference
from schema_dist.core.contents import Contents
from schema_dist.core.model import (
    HardDelete,
    Reason,
    Refusal,
    Register,
    SchemaVersion,
    SetCompatibility,
    SetMode,
    SoftDelete,
    Version,
    Write,
)
from schema_dist.core.records import (
    compatibility_record,
    mode_record,
    schema_key,
    schema_record,
)
from schema_dist.errors import AwayError, RefusedError
from schema_dist.limits import (
    PROBE_SUBJECT,
    PROBE_VERSION,
    READ_BACK_S_MAX,
)
from schema_dist.log_reader import LogReader
from schema_dist.rest_client import RestClient
from schema_dist.tasks import together

_POLL_S = 0.05
_LOG_CONFIG = {"cleanup.policy": "compact"}


class LogTarget:
    """A registry that is written through its log. `contents` are the log's."""

    def __init__(
        self, client_settings: Mapping[str, str], topic: str, registry: RestClient | None
    ) -> None:
        self._created = False
        self._topic = topic
        self._address = client_settings["bootstrap.servers"]
        self._reader = LogReader(client_settings, topic)
        self._registry = registry
        self._records = CompactedTopic(client_settings, topic)
        self.contexts = False

    @property
    def contents(self) -> Contents:
        return self._reader.contents

    async def read(self, settings_of: Iterable[str] = ()) -> Contents:
        """The log's contents now; `settings_of` is for registries that are asked one by one."""
        del settings_of
        if self._registry is not None:
            self.contexts = await self._registry.has_contexts()
        elif not self._created:  # there is no registry that would
            await asyncio.to_thread(self._records.ensure, _LOG_CONFIG)
            self._created = True
        return await self._reader.read()

    def switched_by(self, batch: Sequence[Write]) -> list[str]:
        """No mode is switched for records of the log."""
        del batch
        return []

    async def apply(self, batch: Sequence[Write]) -> list[Refusal | None]:
        """Writes in the order of the batch, and reads each write back. Raises AwayError."""
        more = self.contents.more
        await asyncio.to_thread(self._write, [record_of(write, more) for write in batch])
        await self._reader.read()
        return await together(self._read_back(write) for write in batch)

    def _write(self, records: Sequence[Record]) -> None:
        try:
            self._records.write(records)
        except KafkaException as error:
            raise AwayError(f"{self._topic} at {self._address}: {error.args[0].str()}") from error

    # ------------------------------------------------------------------------------------ read back

    async def _read_back(self, write: Write) -> Refusal | None:
        match write:
            case Register(wanted) | SoftDelete(wanted) | HardDelete(wanted):
                found = self.contents.get(wanted.place)
                problem = _difference(write, found)
                if problem is not None:
                    return Refusal.of(wanted, Reason.READ_BACK, f"in the log, {problem}")
                if self._registry is not None:
                    problem = await self._served(self._registry, write)
                if problem is None:
                    return None
                return Refusal.of(wanted, Reason.READ_BACK, f"the registry: {problem}")
            case SetCompatibility() | SetMode():
                return None  # the log has it; some registries do not read it
            case _:
                assert_never(write)

    async def _served(
        self, registry: RestClient, write: Register | SoftDelete | HardDelete
    ) -> str | None:
        """Waits until the registry has read the record; returns the fault if it does not."""
        until = time.monotonic() + READ_BACK_S_MAX
        while True:
            try:
                hard = isinstance(write, HardDelete)
                found = await registry.version(*write.place, deleted=hard)
                if isinstance(write, SoftDelete) and found is None:
                    return None
                problem = _difference(write, found)
            except RefusedError as error:
                problem = str(error)
            if problem is None or time.monotonic() > until:
                return problem
            await asyncio.sleep(_POLL_S)

    # ---------------------------------------------------------------------------------------- probe

    async def probe(self, sample: SchemaVersion) -> str | None:
        """None if the registry serves records that are written to its log, else the reason. It is
        tried with a subject that is removed again. Raises AwayError.
        """
        if self._registry is None:
            return None
        wanted = replace(sample, subject=PROBE_SUBJECT, version=Version(PROBE_VERSION))
        (refusal,) = await self.apply([Register(wanted)])
        await self.clean_up_probe()
        return None if refusal is None else f"it does not serve its log: {refusal.detail}"

    async def clean_up_probe(self) -> None:
        """Removes the remains of a probe, also of one that was killed."""
        left = self.contents.of(PROBE_SUBJECT)
        if left:
            await self.apply([HardDelete(place) for place in left])

    def close(self) -> None:
        self._reader.close()
        self._records.close()


def record_of(write: Write, more: Mapping[str, str]) -> tuple[bytes, bytes | None]:
    """The record of `_schemas` that stands for a write. `more`: what else stands in the configs of
    the target's subjects, which a record without it would delete.
    """
    match write:
        case Register(wanted):
            return schema_record(wanted, deleted=False)
        case SoftDelete(wanted):
            return schema_record(wanted, deleted=True)
        case HardDelete(wanted):
            return schema_key(wanted), None
        case SetCompatibility(subject, level):
            return compatibility_record(subject, level, more.get(subject, ""))
        case SetMode(subject, mode):
            return mode_record(subject, mode)
        case _:
            assert_never(write)


def _difference(
    write: Register | SoftDelete | HardDelete, found: SchemaVersion | None
) -> str | None:
    wanted = write.wanted
    if isinstance(write, HardDelete):
        return None if found is None else "it is there after its deletion"
    if found is not None and found.deleted != isinstance(write, SoftDelete):
        return "it is deleted" if found.deleted else "it is not deleted"
    return difference(wanted, found)
