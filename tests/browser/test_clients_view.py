"""The dashboard of clients: who is limited by which rule, who waits now, a rule that changes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
import yaml
from confluent_kafka import Producer
from playwright.sync_api import Browser, Locator, expect

from gateway.core.wire.apis import ApiKey
from gateway.core.wire.frames import request_frame
from gateway.embedded.kafka import KafkaCluster
from tests.rig.browser import DESKTOP, PHONE, Tab, tab
from tests.rig.clients.wire_client import WireClient
from tests.rig.gateway_process import GatewayProcess
from tests.rig.kafka import create_topic
from tests.rig.patience import patient_s

pytestmark = [pytest.mark.deep, pytest.mark.integration]

LIMITS = [
    {"name": "slow", "client_id": "slow-*", "per": "client_id", "bytes_in_per_s": 1_000},
    {"name": "few", "client_id": "wire-client", "connections": 2},
]
ASKED = request_frame(ApiKey.LIST_GROUPS, 4, 1, "wire-client", b"\1\0")


def row(opened: Tab, rule: str) -> Locator:
    head = opened.page.get_by_role("rowheader", name=rule)
    return opened.page.get_by_role("row").filter(has=head)


def connected(node: GatewayProcess) -> WireClient:
    client = WireClient(node.bootstrap)
    client.send_bytes(ASKED)
    client.receive_frame()
    return client


def test_who_is_limited_and_who_waits(
    browser: Browser, kafka: KafkaCluster, tmp_path: Path, fresh_name: Callable[[str], str]
) -> None:
    topic = fresh_name("limited")
    create_topic(kafka.bootstrap_servers, topic, partitions=1)
    with (
        GatewayProcess(tmp_path, kafka.bootstrap_servers, limits=LIMITS) as node,
        tab(browser, f"http://{node.admin}") as opened,
    ):
        opened.open("clients")
        page = opened.page
        expect(page.locator("main")).to_contain_text("No rule of limits")
        expect(row(opened, "clients")).to_contain_text(f"{node.bootstrap}")
        expect(row(opened, "clients")).to_contain_text("Kafka")
        producer = Producer({"bootstrap.servers": node.bootstrap, "client.id": "slow-1"})
        producer.produce(topic, bytes(500_000))  # some eight minutes' worth
        assert producer.flush(patient_s(60)) == 0, "it passes whole"
        with connected(node), connected(node):
            expect(row(opened, "slow")).to_contain_text("slow-1")
            expect(row(opened, "slow")).to_contain_text("waits")
            expect(row(opened, "slow")).to_contain_text("of 1.00 kB")
            expect(row(opened, "few")).to_contain_text("all its clients")
            expect(row(opened, "few")).to_contain_text("2 of 2")
            expect(row(opened, "few")).to_contain_text("full")
            for size in (PHONE, DESKTOP):
                page.set_viewport_size({"width": size[0], "height": size[1]})
                assert opened.sideways_px() <= 0
            assert not opened.inaccessible()
            settings = yaml.safe_load(node.config.read_text())
            settings["limits"][1]["connections"] = 3
            node.config.write_text(yaml.safe_dump(settings))
            answer = httpx.post(f"http://{node.admin}/v1/config/reload").json()
            assert answer["reloaded"] == ["limits.1.connections"]
            expect(row(opened, "few")).to_contain_text("2 of 3")
            expect(row(opened, "few")).to_contain_text("free")
            page.get_by_label("only those that have reached a limit").check()
            expect(row(opened, "few")).to_have_count(0)
            expect(row(opened, "slow")).to_contain_text("waits")
        assert not opened.violations
