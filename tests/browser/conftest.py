"""One node under load and one browser for all tests of the dashboard.

Members of both client libraries' group consume all the time while a producer writes; another group
has parked records; one has a name that no page must read as HTML.
"""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from confluent_kafka import Producer
from playwright.sync_api import Browser

from gateway.admin.tokens import sha256_of
from gateway.embedded.kafka import KafkaCluster
from tests.rig.browser import CHROMIUM, Tab, chromium, tab
from tests.rig.clients.share_members import ShareHost, ShareMember
from tests.rig.gateway_process import GatewayProcess, Settings
from tests.rig.kafka import create_topic, delete_topic
from tests.rig.meanwhile import meanwhile
from tests.rig.operating import rest

OPERATOR, VIEWER, AUDITOR, ALICE = (f"keyway_{number}-of-the-tests" for number in range(4))
BEARER = {"Authorization": f"Bearer {OPERATOR}"}
BILLING, LEDGER, SHIPPING, STOPPED = "billing", "ledger", "shipping", "stopped"
HOSTILE = "<script>document.title='owned'</script>\"'&amp;<img src=x onerror=alert(1)>"
ORDERS, PAYMENTS, LETTERS = "browser-orders", "browser-payments", "browser-letters"
PRODUCED_PER_S = 100
Headers = list[tuple[str, str | bytes | None]]
LOAD_S_MAX = 600.0


@dataclass(frozen=True, slots=True)
class Stage:
    kafka: KafkaCluster
    gateway: GatewayProcess
    ledger: ShareMember  # acknowledges by hand
    url: str


def _token(name: str, text: str, role: str, *groups: str) -> Settings:
    return {"name": name, "role": role, "sha256": sha256_of(text), "groups": list(groups)}


@pytest.fixture(scope="module")  # while it is open, nothing else in this process can run asyncio
def browser() -> Iterator[Browser]:
    if not CHROMIUM.exists():
        pytest.skip(f"no {CHROMIUM}: make setup installs it as root (apt-get install chromium)")
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def stage(kafka: KafkaCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    topics = {ORDERS: 4, PAYMENTS: 1, LETTERS: 1}
    for name, partitions in topics.items():
        create_topic(kafka.bootstrap_servers, name, partitions=partitions)
    blocking = {
        "match": "*",
        "auto_offset_reset": "earliest",
        "rejected": "block",
        "exhausted": "block",
        "dead_letter_topic": LETTERS,
        "backoff_base_ms": 100,
    }
    tokens = [
        _token("operator", OPERATOR, "operator", "*") | {"values": True},
        _token("viewer", VIEWER, "viewer", "bill*"),
        _token("auditor", AUDITOR, "viewer", LEDGER),
        _token("alice", ALICE, "operator", BILLING, LEDGER, SHIPPING),
    ]
    with (
        GatewayProcess(
            tmp_path_factory.mktemp("browser"),
            kafka.bootstrap_servers,
            groups=[blocking],
            state={"commit_interval_ms": 500},
            admin={"tokens": tokens, "masks": [{"fields": ["iban"]}]},
        ) as gateway,
        ShareHost.librdkafka() as host,
        producing(gateway.bootstrap),
    ):
        for at in range(2):
            member = host.member(gateway.bootstrap, BILLING, [ORDERS], name=f"billing-{at}")
            member.begin_consume(LOAD_S_MAX)
        for name in (STOPPED, HOSTILE):
            passing = host.member(gateway.bootstrap, name, [ORDERS], name="passing")
            assert passing.poll_some()
            passing.close()
        ledger = host.member(gateway.bootstrap, LEDGER, [PAYMENTS], name="ledger", explicit=True)
        stage = Stage(kafka, gateway, ledger, f"http://{gateway.admin}")
        park(stage, 3)
        yield stage
    for name in topics:  # the next module's stage begins anew
        delete_topic(kafka.bootstrap_servers, name)


def park(
    stage: Stage,
    count: int,
    headers: Headers | None = None,
    value: bytes = b"100",
    key: bytes | None = None,
) -> None:
    """So many records of the ledger, each of its own key or of `key`, are rejected and parked."""
    keys = [key or b"account-%d" % random.getrandbits(40) for _ in range(count)]
    producer = Producer({"bootstrap.servers": stage.gateway.bootstrap})
    for key in keys:
        producer.produce(PAYMENTS, key=key, value=value, headers=headers or [])
    assert producer.flush(60) == 0
    left = count
    while left > 0:
        batch = stage.ledger.poll_some()
        assert batch, f"{left} records did not come"
        stage.ledger.settle("REJECT", batch)
        left -= len(batch)


@contextmanager
def slow_group(stage: Stage) -> Iterator[None]:
    """Three members that take their time, reject a few records and give some back."""
    over = threading.Event()

    def work(member: ShareMember, chosen: random.Random) -> None:
        rejected = 0
        while not over.is_set():
            batch = member.poll(0.3)
            bad = [record for record in batch if rejected < 4 and chosen.random() < 0.01]
            rejected += len(bad)
            back = [record for record in batch if record not in bad and chosen.random() < 0.1]
            fine = [record for record in batch if record not in bad and record not in back]
            for verdict, records in (("REJECT", bad), ("RELEASE", back), ("ACCEPT", fine)):
                if records:
                    member.acknowledge(verdict, records)
            over.wait(0.4)
            member.commit()

    with ShareHost.librdkafka() as host:
        threads = []
        for at in range(3):
            member = host.member(
                stage.gateway.bootstrap, SHIPPING, [ORDERS], name="shipping", explicit=True
            )
            threads.append(
                threading.Thread(target=work, args=(member, random.Random(at)), daemon=True)
            )
            threads[-1].start()
        try:
            yield
        finally:
            over.set()
            for thread in threads:
                thread.join(30)


@contextmanager
def producing(bootstrap: str) -> Iterator[None]:
    """A steady load of records over 200 keys."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "log_level": 0})

    def work(over: threading.Event) -> None:
        chosen = random.Random(5)
        while not over.wait(0.1):
            for _ in range(PRODUCED_PER_S // 10):
                produced(producer, b"key-%d" % chosen.randrange(200))
            producer.poll(0)

    try:
        with meanwhile(work):
            yield
    finally:
        producer.purge()


def produced(producer: Any, key: bytes) -> None:
    try:
        producer.produce(ORDERS, b"x" * 100, key)
    except BufferError:  # the gateway is away for a while
        producer.poll(0.1)


@pytest.fixture(scope="session")
def screenshots() -> Path | None:
    """The folder of the pictures in the documents, when they are to be made anew."""
    if os.environ.get("KEYWAY_TESTS_SCREENSHOTS") != "1":
        return None
    return Path(__file__).parents[2] / "docs" / "images"


def listed(stage: Stage, path: str, name: str, **query: str) -> list[dict[str, Any]]:
    status, answer = rest(stage.gateway, f"{path}?{urlencode(query)}", headers=BEARER)
    assert status == 200, answer
    rows: list[dict[str, Any]] = answer[name]
    return rows


def parked_offsets(stage: Stage) -> list[int]:
    return [row["offset"] for row in listed(stage, "/v1/parked", "parked", group=LEDGER)]


@pytest.fixture
def page(browser: Browser, stage: Stage) -> Iterator[Tab]:
    """A tab of an operator. Its content policy holds throughout."""
    with tab(browser, stage.url, token=OPERATOR) as opened:
        yield opened
        assert not opened.violations
