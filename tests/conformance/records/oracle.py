"""The Python end of RecordsOracle.java: one JVM, one command per line (the Java file has them)."""

from __future__ import annotations

import base64
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from gateway.core.wire.records import NO_PRODUCER, Compression, Producer, Record
from tests.rig.clients.java_programs import compile_programs

MAIN = "org.apache.kafka.clients.consumer.internals.RecordsOracle"


@dataclass(frozen=True, slots=True)
class JavaBatch:
    """A batch as kafka-clients reads it."""

    base_offset: int
    last_offset: int
    count: int
    magic: int
    codec: str
    transactional: bool
    control: bool
    producer_id: int
    producer_epoch: int
    base_sequence: int
    leader_epoch: int
    timestamp_type: str
    max_timestamp: int
    next_offset: int
    delete_horizon: int
    records: list[Record]


@dataclass(frozen=True, slots=True)
class Poll:
    """One poll of a share consumer: its records, the offsets it settled by itself, its error."""

    records: list[Record]
    settled: list[tuple[int, str]]
    error: str | None


class JavaError(Exception):
    """An exception of kafka-clients."""


class RecordsOracle:
    def __init__(self, log: Path) -> None:
        programs = compile_programs(Path(__file__).parent)
        self._log = log.open("w")
        self._process = subprocess.Popen(
            programs.command(MAIN),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            encoding="utf-8",
        )
        self._in: IO[str] = _open(self._process.stdin)
        self._out: IO[str] = _open(self._process.stdout)

    def close(self) -> None:
        self._in.close()
        self._process.wait(30)
        self._out.close()
        self._log.close()

    def read(self, data: bytes) -> list[JavaBatch]:
        """All batches, with CRCs checked. Raises JavaError."""
        batches: list[JavaBatch] = []
        for kind, *fields in self._ask("read", _text(data)):
            if kind == "B":
                batches.append(_batch(fields))
            else:
                batches[-1].records.append(_record(fields))
        return batches

    def build(
        self,
        records: Iterable[Record],
        *,
        base_offset: int,
        compression: Compression = Compression.NONE,
        producer: Producer = NO_PRODUCER,
        log_append_time: int = -1,
        leader_epoch: int = -1,
        last_offset: int = -1,
    ) -> bytes:
        command = [
            "build",
            compression.name.lower(),
            log_append_time,
            base_offset,
            producer.producer_id,
            producer.epoch,
            producer.base_sequence,
            str(producer.transactional).lower(),
            leader_epoch,
            last_offset,
        ]
        lines = [
            "\t".join(
                [str(record.offset), str(record.timestamp), _text(record.key), _text(record.value)]
                + [_text(part) for name, value in record.headers for part in (name.encode(), value)]
            )
            for record in records
        ]
        return self._bytes(*command, body=[*lines, "."])

    def marker(self, offset: int, producer: Producer, *, commit: bool) -> bytes:
        return self._bytes(
            "marker", offset, producer.producer_id, producer.epoch, str(commit).lower()
        )

    def old_message(self, magic: int) -> bytes:
        return self._bytes("magic", magic)

    def compact(self, data: bytes, keep: Sequence[int], *, delete_horizon: int = 1) -> bytes:
        """As the log cleaner rewrites `data` to keep the records at these offsets."""
        return self._bytes("compact", _text(data), ",".join(map(str, keep)), delete_horizon)

    def consume(self, data: bytes, aborted: Sequence[tuple[int, int]]) -> tuple[list[Record], int]:
        """The records of a Fetch response for a read_committed consumer, and its next position."""
        answer = self._ask("consume", _text(data), ",".join(f"{p}:{o}" for p, o in aborted))
        records = [_record(fields) for kind, *fields in answer if kind == "R"]
        return records, int(answer[-1][1])

    def share(
        self, data: bytes, acquired: Sequence[tuple[int, int]], *, records_max: int
    ) -> list[Poll]:
        """The polls of a share consumer over a ShareFetch response."""
        polls: list[Poll] = []
        error: str | None = None
        ranges = ",".join(f"{first}:{last}" for first, last in acquired)
        for kind, *fields in self._ask("share", _text(data), ranges, records_max):
            if kind == "P":
                polls.append(Poll([], [], None))
            elif kind == "R":
                polls[-1].records.append(_record(fields))
            elif kind == "A":
                polls[-1].settled.append((int(fields[0]), fields[1]))
            else:
                error = fields[0]
                polls[-1] = Poll(polls[-1].records, polls[-1].settled, error)
        return polls

    def _bytes(self, *command: object, body: Sequence[str] = ()) -> bytes:
        ((data,),) = self._ask(*command, body=body)
        return base64.b64decode(data)

    def _ask(self, *command: object, body: Sequence[str] = ()) -> list[list[str]]:
        self._in.write("\n".join(["\t".join(map(str, command)), *body]) + "\n")
        self._in.flush()
        answer: list[list[str]] = []
        while (line := self._out.readline()) != ".\n":
            assert line, f"the oracle has ended ({self._process.poll()}), see {self._log.name}"
            answer.append(line.rstrip("\n").split("\t"))
        if answer and answer[-1][0] == "E":
            raise JavaError(": ".join(answer[-1][1:]))
        return answer


def _open(stream: IO[str] | None) -> IO[str]:
    assert stream is not None
    return stream


def _text(data: bytes | None) -> str:
    return "-" if data is None else base64.b64encode(data).decode()


def _data(text: str) -> bytes | None:
    return None if text == "-" else base64.b64decode(text)


def _batch(fields: list[str]) -> JavaBatch:
    base, last, count, magic, codec, transactional, control = fields[:7]
    producer, epoch, sequence, leader, kind, newest, following, horizon = fields[7:]
    return JavaBatch(
        base_offset=int(base),
        last_offset=int(last),
        count=int(count),
        magic=int(magic),
        codec=codec,
        transactional=transactional == "true",
        control=control == "true",
        producer_id=int(producer),
        producer_epoch=int(epoch),
        base_sequence=int(sequence),
        leader_epoch=int(leader),
        timestamp_type=kind,
        max_timestamp=int(newest),
        next_offset=int(following),
        delete_horizon=int(horizon),
        records=[],
    )


def _record(fields: list[str]) -> Record:
    offset, timestamp, key, value, *headers = fields
    names = [(_data(name) or b"").decode() for name in headers[::2]]
    values = [_data(value) for value in headers[1::2]]
    return Record(
        int(offset),
        int(timestamp),
        _data(key),
        _data(value),
        list(zip(names, values, strict=True)),
    )
