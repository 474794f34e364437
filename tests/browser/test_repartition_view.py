"""The dashboard while a topic gets other partitions: planned, refused, begun and aborted by clicks,
and what holds it up.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, expect
from redis import Redis

from gateway.admin.tokens import sha256_of
from gateway.core.repartition.record import Pace, Repartition, to_text
from gateway.embedded.kafka import KafkaCluster
from gateway.embedded.redis import EmbeddedRedis
from gateway.repartition.table import KEY
from tests.browser.conftest import browser
from tests.rig.browser import DESKTOP, PHONE, Tab, tab
from tests.rig.clients.share_members import ShareHost
from tests.rig.gateway_process import GatewayProcess
from tests.rig.kafka import create_topic, metadata_of, produce
from tests.rig.repartitions import QUICK

__all__ = ["browser"]

pytestmark = [pytest.mark.deep, pytest.mark.integration]

STUCK = "browser-stuck"
ADMIN, VIEWER = "keyway_admin-of-topics", "keyway_viewer-of-topics"


@pytest.fixture
def node(kafka: KafkaCluster, tmp_path: Path) -> Iterator[GatewayProcess]:
    """With a repartition of STUCK: it makes no step, as somebody has added more partitions."""
    tokens = [
        {"name": "root", "role": "admin", "sha256": sha256_of(ADMIN)},
        {"name": "some", "role": "viewer", "sha256": sha256_of(VIEWER), "groups": ["bill*"]},
    ]
    create_topic(kafka.bootstrap_servers, STUCK, partitions=6)
    row = metadata_of(kafka.bootstrap_servers, STUCK)
    pace = Pace(adoption_ms=0, settle_ms=0, late_ms=0)
    record = Repartition(
        topic=STUCK,
        topic_id=row["TopicId"].hex(),
        before=2,
        after=4,
        partitioner=None,
        pace=pace,
    )
    with EmbeddedRedis(tmp_path / "redis") as redis:
        Redis.from_url(redis.url).hset(KEY, STUCK, to_text(record))
        with GatewayProcess(
            tmp_path / "node",
            kafka.bootstrap_servers,
            redis_url=redis.url,
            groups=[{"match": "*", "auto_offset_reset": "earliest"}],
            state={"commit_interval_ms": 500},
            admin={"tokens": tokens},
            repartition=QUICK,
        ) as process:
            yield process


def filled(opened: Tab, topic: str, partitions: int, into: str = "", partitioner: str = "") -> None:
    page = opened.page
    page.get_by_label("Topic", exact=True).fill(topic)
    page.get_by_label("Partitions", exact=True).fill(str(partitions))
    page.get_by_label("Into a new topic").fill(into)
    page.get_by_label("Partitioner").fill(partitioner)
    page.get_by_role("button", name="Plan …").click()


def row(opened: Tab, topic: str) -> Locator:
    table = opened.page.get_by_role("table", name="Topics that get other partitions")
    return table.get_by_role("row").filter(has=opened.page.get_by_role("rowheader", name=topic))


def test_a_topic_that_is_held_up_and_one_that_is_aborted(
    browser: Browser,
    kafka: KafkaCluster,
    node: GatewayProcess,
) -> None:
    grows, moves = "browser-grows", "browser-moves"
    for name in (grows, moves):
        create_topic(kafka.bootstrap_servers, name, partitions=2)
    produce(node.bootstrap, grows, [(b"k", b"0"), (b"k", b"1")])
    with ShareHost.librdkafka() as host:
        member = host.member(node.bootstrap, "holds-up", [grows], explicit=True)
        member.poll_count(1)
        member.close()
    url = f"http://{node.admin}"
    with tab(browser, url, token=ADMIN) as opened:
        page = opened.page
        opened.open("topics")
        filled(opened, grows, 3)
        expect(page.get_by_role("dialog")).to_contain_text("is no multiple of its 2 partitions")
        page.get_by_role("button", name="Close").click()
        filled(opened, grows, 4)
        expect(page.get_by_role("dialog")).to_contain_text("have 1 different keys, too few")
        page.get_by_role("button", name="Close").click()
        filled(opened, grows, 4, partitioner="crc32")
        expect(page.get_by_role("dialog")).to_contain_text("Order of keys kept for: holds-up")
        page.get_by_role("button", name="Start").click()
        expect(row(opened, grows)).to_contain_text("2 to 4")
        expect(row(opened, grows)).to_contain_text("draining")
        page.get_by_role("button", name=grows).click()
        held = page.get_by_role("table", name=f"Old partitions of {grows}")
        expect(held).to_contain_text("222holds-up")  # boundary, log end, left

        create_topic(kafka.bootstrap_servers, "browser-taken", partitions=1)
        filled(opened, moves, 1, "browser-taken")
        expect(page.get_by_role("dialog")).to_contain_text("topic 'browser-taken' exists")
        page.get_by_role("button", name="Close").click()
        for size in (PHONE, DESKTOP):
            page.set_viewport_size({"width": size[0], "height": size[1]})
            assert opened.sideways_px() <= 0
        assert not opened.inaccessible()

        expect(row(opened, STUCK)).to_contain_text("somebody else has added some")
        page.get_by_role("button", name=f"Abort … {STUCK}").click()
        expect(page.get_by_role("dialog")).to_contain_text("Clients go on with 2 partitions")
        page.get_by_role("button", name="Abort", exact=True).click()
        expect(row(opened, STUCK)).to_contain_text("aborted")
        assert not opened.violations
    with tab(browser, url, token=VIEWER) as opened:
        opened.open("topics")
        expect(opened.page.get_by_role("heading", name="Virtual brokers")).to_be_visible()
        expect(opened.page.get_by_text("Other partitions for a topic")).to_have_count(0)
