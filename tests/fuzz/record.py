"""`python -m tests.fuzz.record`: records the corpus anew, from stock clients through a node.

Of each API and version the shortest exchanges are kept, and the longest within a bound.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from gateway.core.wire.errors import WireError
from gateway.core.wire.frames import parse_request_header
from gateway.embedded.kafka import KafkaCluster
from gateway.embedded.process import start_child
from tests.fuzz.clients import all_clients
from tests.fuzz.corpus import FILE, Exchange, write
from tests.fuzz.recorded_node import ANSWER, CLIENT, ENTRY, UPSTREAM
from tests.rig.gateway_process import REPOSITORY, GatewayProcess

EXCHANGE_BYTES_MAX = 12_000
KEPT = 3  # of one API and version
PRODUCE = 0


class RecordedGateway(GatewayProcess):
    def spawn(self) -> None:
        notes = str(self.config.with_name("notes.bin"))
        serve = ["serve", "--config", str(self.config)]
        command = [sys.executable, "-m", "tests.fuzz.recorded_node", notes, *serve]
        self.child = start_child(command, log=self.log, cwd=REPOSITORY, env=dict(os.environ))


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="keyway-record-") as folder:
        directory = Path(folder)
        groups = [{"match": "*", "auto_offset_reset": "earliest"}]
        with KafkaCluster(1, share_groups=False, directory=directory / "kafka") as kafka:
            node = RecordedGateway(directory / "node", kafka.bootstrap_servers, groups=groups)
            with node:
                all_clients(node.bootstrap)
                time.sleep(1.0)  # the last answers
        exchanges = chosen(paired((directory / "node" / "notes.bin").read_bytes()))
    write(exchanges)
    apis = len({exchange.key for exchange in exchanges})
    sys.stdout.write(f"{len(exchanges)} exchanges of {apis} APIs: {FILE.stat().st_size:,} bytes\n")


def paired(notes: bytes) -> Iterator[Exchange]:
    streams: dict[int, dict[bytes, bytearray]] = defaultdict(lambda: defaultdict(bytearray))
    at = 0
    while at + ENTRY.size <= len(notes):
        number, direction, size = ENTRY.unpack_from(notes, at)
        at += ENTRY.size
        streams[number][direction] += notes[at : at + size]
        at += size
    for stream in streams.values():
        answers = {
            frame[:4]: (frame, direction == ANSWER)
            for direction in (UPSTREAM, ANSWER)
            for frame in frames(bytes(stream[direction]))
        }
        for request in frames(bytes(stream[CLIENT])):
            with suppress(WireError):
                header = parse_request_header(request)
                response, local = answers.get(request[4:8], (None, False))
                if response is not None or header.api_key == PRODUCE:
                    client = header.client_id or ""
                    key, version = header.api_key, header.api_version
                    yield Exchange(client, key, version, local, request, response)


def frames(stream: bytes) -> Iterator[bytes]:
    at = 0
    while at + 4 <= len(stream):
        size = int.from_bytes(stream[at : at + 4], "big")
        if at + 4 + size > len(stream):
            return
        yield stream[at + 4 : at + 4 + size]
        at += 4 + size


def chosen(exchanges: Iterable[Exchange]) -> list[Exchange]:
    by_api: dict[tuple[int, int, bool], list[Exchange]] = defaultdict(list)
    for exchange in exchanges:
        if length(exchange) <= EXCHANGE_BYTES_MAX:
            by_api[exchange.key, exchange.version, exchange.response is None].append(exchange)
    kept: list[Exchange] = []
    for api in sorted(by_api):
        ordered = sorted(by_api[api], key=length)
        middle = ordered[len(ordered) // 2]
        kept += dict.fromkeys([ordered[0], middle, ordered[-1]][:KEPT])
    return kept


def length(exchange: Exchange) -> int:
    return len(exchange.request) + len(exchange.response or b"")


if __name__ == "__main__":
    main()
