"""The topic on each target with the ledger (Keyway's own writes there), the status, and the signs
of life of the service. Compacted, one partition.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from keyway.kafka.compacted import CompactedTopic, Record
from keyway.kafka.transactions import opened
from schema_dist.core.ledger import Entry, Ledger, decode, encode
from schema_dist.errors import AwayError
from schema_dist.limits import ANSWER_S_MAX

_STATUS_KEY = b'{"kind":"status"}'
_BEAT_KEY = b'{"kind":"beat","subject":""}'
# No entry: written where a holder has nothing to note, to learn whether it still may.
_HOLDER: Record = (b'{"kind":"holder","subject":""}', b"{}")
_SHUT_OUT = frozenset(
    {KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED}
)


class StateTopic:
    """Reads are whole; writes are durable when they return. All methods raise AwayError."""

    def __init__(
        self,
        client_settings: Mapping[str, str],
        topic: str,
        still_ours: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`still_ours`: that of the lease of a process that distributes. With it, the ledger is
        written in transactions: Kafka refuses those of a process that loaded the ledger earlier.
        """
        self._settings = dict(client_settings)
        self._topic = topic
        self._still_ours = still_ours
        self._records = CompactedTopic(client_settings, topic)
        self._holder: Producer | None = None
        self._one = threading.Lock()  # the records have one user at a time, and beats come between

    async def load(self) -> Ledger:
        """Loads the ledger; creates the topic if it is missing. From now on a former holder of the
        lease cannot note anything unless it loads the ledger again, and for that it looks at the
        lease.
        """
        if self._still_ours is not None:
            await self._still_ours()
            await asyncio.to_thread(self._shut_out_others)
            await self._still_ours()  # a process frozen between the two has shut out its successor
        await asyncio.to_thread(self.ensure)
        return (await asyncio.to_thread(self._load))[0]

    def status(self) -> dict[str, Any] | None:
        """The last status that was reported, with the time and the problem of the last sign of life
        since; None if there is neither. Creates nothing, and blocks.
        """
        with self._faults():
            there = self._records.exists()
        return self._load()[1] if there else None

    async def note(self, entries: Iterable[Entry]) -> None:
        """Writes entries of the ledger. Raises AwayError, also without entries, if another process
        has loaded the ledger since. Then only the lease can say which of the two goes on: the other
        one may be a former holder that was frozen, and looked at its lease before.
        """
        await asyncio.to_thread(self._note, tuple(entries))

    def _note(self, entries: Sequence[Entry]) -> None:
        records = [encode(entry) for entry in entries]
        if self._still_ours is not None:
            self._commit(records or [_HOLDER])
        elif records:
            self._write(records)

    async def report(self, status: Mapping[str, Any]) -> None:
        """Writes the status."""
        body = json.dumps(status, separators=(",", ":")).encode()
        await asyncio.to_thread(self._write, [(_STATUS_KEY, body)])

    async def beat(self, told: Mapping[str, Any]) -> None:
        """Writes a sign of life: the status stays the same, at another time or with a problem."""
        body = json.dumps(told, separators=(",", ":")).encode()
        await asyncio.to_thread(self._write, [(_BEAT_KEY, body)])

    def _fault(self, error: object) -> AwayError:
        return AwayError(f"{self._topic} at {self._settings['bootstrap.servers']}: {error}")

    def ensure(self) -> None:
        """Creates the topic unless it exists. It blocks, as all methods that are not async."""
        with self._faults():
            self._records.ensure()

    def _load(self) -> tuple[Ledger, dict[str, Any] | None]:
        ledger, status = Ledger(), dict[str, Any]()

        def take(key: bytes | None, value: bytes | None) -> None:
            nonlocal status
            if key in (_STATUS_KEY, _BEAT_KEY):
                with suppress(ValueError, RecursionError):  # shown to people, and no more
                    parsed = json.loads(value) if value else None
                    if isinstance(parsed, dict):
                        status = parsed if key == _STATUS_KEY else status | parsed
                return
            try:
                entry = decode(key or b"", value)
            except ValueError as error:
                raise self._fault(f"the record of {key!r}: {error}") from error
            if entry is not None:
                ledger.apply([entry])

        with self._faults():
            self._records.read(take)
            self._records.forget()
        return ledger, status or None

    def _shut_out_others(self) -> None:
        try:
            settings = {
                **self._settings,
                "transactional.id": f"keyway-schemas-{self._topic}",
                "log_level": 2,
            }
            self._holder = opened(settings, self._topic, ANSWER_S_MAX)
        except KafkaException as error:
            self._holder = None
            raise self._fault(error) from error

    def _commit(self, records: Sequence[Record]) -> None:
        holder, self._holder = self._holder, None  # after a fault, the ledger is loaded anew
        if holder is None:
            raise self._fault("its ledger has to be loaded anew")
        try:
            holder.begin_transaction()
            for key, value in records:
                holder.produce(self._topic, key=key, value=value)
            holder.commit_transaction(ANSWER_S_MAX)
        except (BufferError, KafkaException) as error:
            if isinstance(error, KafkaException) and error.args[0].code() in _SHUT_OUT:
                raise self._fault("another process has loaded its ledger since") from error
            raise self._fault(error) from error
        self._holder = holder

    def _write(self, records: Sequence[Record]) -> None:
        with self._faults():
            self._records.write(records)

    @contextmanager
    def _faults(self) -> Iterator[None]:
        with self._one:
            try:
                yield
            except KafkaException as error:
                raise self._fault(error.args[0].str()) from error
