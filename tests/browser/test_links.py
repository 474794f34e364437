"""The Links view in a real browser: three clusters on two Kafkas, with the status of a distribution
as the links, the committers and the distribution of schemas write it, read by the node's commands.
"""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from playwright.sync_api import Browser, expect

from gateway.admin.tokens import sha256_of
from gateway.embedded.kafka import KafkaCluster
from keyway.clusters.config import ClustersConfig, load
from keyway.clusters.core.tree import ClusterName, Level
from schema_dist.core.model import Reason, Refusal, SchemaId, Version
from schema_dist.state_topic import StateTopic
from schema_dist.status import status_of
from schema_dist.target_sync import Round
from spark.links.reports import LinkReport
from spark.links.status import StatusTopic
from spark.streaming.core.survey import Position, Topic
from spark.streaming.kafka import KafkaSide
from tests.rig.browser import DESKTOP, PHONE, Tab, tab
from tests.rig.gateway_process import GatewayProcess, Settings
from tests.rig.kafka import create_topic
from tests.rig.meanwhile import meanwhile
from tests.rig.offset_clusters import Services, commit, produce_at, values

pytestmark = [pytest.mark.deep, pytest.mark.integration]

VIEWER, SOME_GROUPS = (f"keyway_{who}-of-the-links" for who in ("viewer", "some"))
ORDERS, BILLING = "links-orders", "links-billing"
COPIED: dict[str, int | str] = {
    "copied": 1_200,
    "skipped": 30,
    "repeats": 2,
    "doubts": 1,
    "left_out": 3,
    "last_left_out": "offset 9: Broker: Message size too large",
}
TAKEN = "registered there as another schema"


@dataclass(frozen=True, slots=True)
class Site:
    url: str
    file: Path
    links: Links


@pytest.fixture(scope="module")
def site(kafka: KafkaCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("links")
    tokens = [
        {"name": name, "role": "viewer", "sha256": sha256_of(text), "groups": groups}
        for name, text, groups in (("viewer", VIEWER, ["*"]), ("some", SOME_GROUPS, ["bill*"]))
    ]
    file = folder / "clusters.yaml"
    with KafkaCluster(1, share_groups=False) as other:
        node = GatewayProcess(  # its ports are free with the other Kafka on its own
            folder / "node",
            kafka.bootstrap_servers,
            admin={"tokens": tokens, "clusters_file": str(file)},
        )
        node.spawn()
        try:
            pair = {"level": 1, "children": ["ams", "fra"]}
            two = written(folder / "two.yaml", pair, ams=kafka, fra=other)
            groups_that_follow(two, kafka.bootstrap_servers, other.bootstrap_servers)
            whole = {"level": 2, "children": [pair, "nyc"]}
            config = written(file, whole, ams=kafka, fra=other, nyc=kafka)
            schemas_that_are_refused(config)
            node.wait_ready()
            yield Site(f"http://{node.admin}", file, Links(config))
        finally:
            assert node.stop() == 0
        assert "Traceback" not in node.log_text()


def written(file: Path, tree: Settings, **kafkas: KafkaCluster) -> ClustersConfig:
    state = str(file.parent / "state")
    body = {
        "clusters": [
            {"name": name, "bootstrap_servers": kafka.bootstrap_servers}
            for name, kafka in kafkas.items()
        ],
        "tree": tree,
        "topics": {"include": [ORDERS]},
        "groups": {"include": [BILLING]},
        "offsets": {"interval_ms": 100, "refresh_ms": 300, "state_directory": state},
        "schemas": {"primary": "ams"},
    }
    file.write_text(yaml.safe_dump(body))
    return load(file)


class Links:
    """ams copies to fra; fra cannot reach ams; a topic of ams to nyc has stopped; the others have
    never run.
    """

    def __init__(self, config: ClustersConfig) -> None:
        self.config = config
        self.runs = self._link("ams", 1, "fra")
        self.waits = self._link("fra", 1, "ams")
        self.stopped = self._link("ams", 2, "nyc")
        for partition in range(2):
            self._copied(partition, COPIED)

    def _link(self, source: str, level: int, target: str) -> LinkReport:
        cluster = self.config.cluster(source)
        status = StatusTopic(KafkaSide(cluster), self.config.messages.status_topic)
        distributor = self.config.checked_tree().distributor(ClusterName(source), Level(level))
        made = LinkReport(distributor, status)
        made.load()
        made.targeted(ClusterName(target))
        return made

    def _copied(self, partition: int, counts: dict[str, int | str]) -> None:
        at = {"topic": ORDERS, "partition": partition, "position": 1_000}
        now_ms = time.time_ns() // 1_000_000
        self.runs.copied({**at, **counts, "last_timestamp_ms": now_ms - 4_000})

    def report(self, behind: int) -> None:
        """All that run say so; one without a word for half a minute counts as silent."""
        self.behind = behind
        reached = {(ORDERS, partition): Position(1_000, "id") for partition in range(2)}
        self.runs.planned({ORDERS: Topic(ORDERS, "id", 2, {})}, {}, {}, reached)
        self._copied(0, dict.fromkeys(COPIED, 0))
        self.runs.publish({(ORDERS, 0): 1_000 + behind, (ORDERS, 1): 1_000})
        self.waits.trouble("ams: Broker transport failure")
        self.stopped.planned({}, {ORDERS: "nyc has 3 partitions, not 2"}, {}, {})

    @contextmanager
    def going_on(self) -> Iterator[None]:
        """They say so again and again, as long as a page looks at them."""

        def report(over: threading.Event) -> None:
            while not over.wait(5):
                self.report(self.behind)

        with meanwhile(report):
            yield


def groups_that_follow(config: ClustersConfig, ams: str, fra: str) -> None:
    """A group of ams, followed by the services of ams and fra. ams lacks none of the records."""
    for address in (ams, fra):
        create_topic(address, ORDERS, partitions=2)
        produce_at(address, ORDERS, values(0, 20))
    commit(ams, BILLING, ORDERS, 12)
    with Services(config, ["ams", "fra"]) as services:
        services.until(
            lambda: services.decided("fra", BILLING, ORDERS), what="the group known on fra"
        )


def schemas_that_are_refused(config: ClustersConfig) -> None:
    """fra holds another schema under an id of ams; nothing has been reported for nyc."""
    collision = Refusal(
        reason=Reason.ID_TAKEN,
        subject="orders-value",
        version=Version(3),
        id=SchemaId(41),
        detail=TAKEN,
    )
    status = status_of(Round(17, 0, (collision,)), last_write_ms=None)
    place = {"target": "fra", "source": "ams", "problem": None, "at_ms": time.time_ns() // 10**6}
    state = StateTopic(config.cluster("fra").client_settings(), config.schemas.state_topic)
    state.ensure()
    asyncio.run(state.report(place | status))


@pytest.fixture  # the site first: with an open browser nothing else can run asyncio
def page(site: Site, browser: Browser) -> Iterator[Tab]:
    """A tab of a viewer of everything. Its content policy holds throughout."""
    site.links.report(behind=120)
    with site.links.going_on(), tab(browser, site.url, token=VIEWER) as opened:
        yield opened
        assert not opened.violations


def test_the_tree_has_the_lag_of_every_link(page: Tab, site: Site) -> None:
    """And the picture follows it by itself."""
    page.open("links")
    page.page.evaluate("window.loadedOnce = true")
    arrows = page.page.locator(".links-picture .arrow")
    expect(arrows).to_have_count(5)
    running = page.page.locator("[data-link='ams 1'] text")
    expect(running).to_have_text(re.compile("^120 records · "))
    expect(page.page.locator("[data-link='fra 1'] text")).to_have_text("waiting")
    expect(page.page.locator("[data-link='ams 2'] text")).to_have_text("1 topic stopped")
    expect(page.page.locator("[data-link='nyc 2'] text")).to_have_text("never run")
    picture = page.page.get_by_role("img", name="3 clusters: ams, fra, nyc")
    expect(picture).to_have_accessible_name(re.compile("ams to fra at level 1: 120 records"))
    site.links.report(behind=4_000)
    expect(running).to_have_text(re.compile("^4,000 records · "))
    assert page.page.evaluate("window.loadedOnce")


def test_a_link_tells_its_partitions_to_the_keyboard(page: Tab) -> None:
    page.open("links")
    chosen = page.page.get_by_role("button", name="ams → fra")
    row = page.page.get_by_role("row").filter(has=chosen)
    expect(row).to_contain_text("2,400")
    chosen.press("Enter")
    expect(chosen).to_have_attribute("aria-expanded", "true")
    details = page.page.locator("#link-details")
    figures = details.locator(".tile .figure")
    expect(figures).to_have_text(["2,400 records", "60", "4", "2", "6", "0"])
    partition = details.get_by_role("row").filter(has_text=f"{ORDERS}-1")
    expect(partition.locator("td")).to_contain_text(["1,200", "30", "2", "1", "3", "0"])
    page.page.get_by_role("button", name="fra → ams").press("Enter")
    expect(details).to_contain_text("ams: Broker transport failure")
    page.page.get_by_role("button", name="ams → nyc").press("Enter")
    expect(details).to_contain_text(f"{ORDERS}: nyc has 3 partitions, not 2")
    page.page.get_by_role("button", name="ams → nyc").press("Enter")
    expect(details).to_have_count(0)


def test_groups_and_schemas(page: Tab) -> None:
    """Where a group would go on, with the offsets of each partition, and a collision of schemas."""
    page.open("links")
    group = page.page.get_by_role("button", name=BILLING).first
    row = page.page.get_by_role("row").filter(has=group).first
    expect(row).to_contain_text("fra")
    group.click()
    partition = page.page.locator("#move-details").get_by_role("row").filter(has_text=f"{ORDERS}-0")
    expect(partition.locator("td").nth(0)).to_have_text("12")
    expect(partition.locator("td").nth(4)).to_have_text(re.compile(r"^\d+$"))
    schemas = page.page.get_by_role("region", name="Schemas")
    expect(schemas.get_by_role("row", name="fra collision 17")).to_be_visible()
    refused = schemas.get_by_role("row").filter(has_text="id taken")
    expect(refused).to_contain_text("orders-value")
    expect(refused).to_contain_text(TAKEN)
    expect(schemas.get_by_role("row").filter(has_text="nyc")).to_be_visible()


def test_it_is_accessible_and_fits_a_phone(page: Tab) -> None:
    page.open("links")
    page.page.get_by_role("button", name="ams → fra").click()
    page.page.get_by_role("button", name=BILLING).first.click()
    expect(
        page.page.get_by_role("region", name="Schemas").locator("tbody tr").first
    ).to_be_visible()
    expect(page.page.locator(".loading")).to_have_count(0)
    page.page.set_viewport_size({"width": PHONE[0], "height": PHONE[1]})
    assert page.sideways_px() <= 0
    page.page.set_viewport_size({"width": DESKTOP[0], "height": DESKTOP[1]})
    assert page.inaccessible() == []
    page.page.emulate_media(color_scheme="dark")
    assert page.inaccessible("color-contrast") == []


def test_the_states_of_the_view(page: Tab, browser: Browser, site: Site) -> None:
    """Loading, a fault in the file, a token that may not see it."""
    page.page.route("**/v1/links", lambda _: None)
    page.open("links")
    tree = page.page.get_by_role("region", name="Tree of the clusters")
    expect(tree.locator(".loading")).to_be_visible()
    expect(page.page.locator("[data-link='ams 1'] text")).to_have_text("not known yet")
    page.page.unroute("**/v1/links")
    expect(tree.locator(".loading")).to_have_count(0)

    right = site.file.read_text()
    site.file.write_text(right.replace("level: 1", "level: 7"))
    try:
        page.open("topics")
        page.open("links")
        expect(page.page.get_by_role("alert")).to_contain_text("the node of ams, fra has level 7")
    finally:
        site.file.write_text(right)
    expect(page.page.get_by_role("alert")).to_have_count(0)
    expect(page.page.locator("[data-link='ams 1'] text")).to_contain_text("records")

    with tab(browser, site.url, token=SOME_GROUPS) as other:
        shown = other.page.locator("main")
        other.open("links")
        expect(shown).to_contain_text("You may not see this")
        other.open()
        expect(shown).to_contain_text("Lag of all groups")
        expect(shown).not_to_contain_text("From clients")
        expect(shown).not_to_contain_text("Requests")
        other.open("topics")
        expect(shown.locator("section", has_text="Virtual brokers")).to_contain_text(
            "You may not see this"
        )


def test_picture_for_the_documents(page: Tab, screenshots: Path | None) -> None:
    """KEYWAY_TESTS_SCREENSHOTS=1 makes that of docs/images anew."""
    if screenshots is None:
        pytest.skip("KEYWAY_TESTS_SCREENSHOTS=1 makes the picture")
    page.page.set_viewport_size({"width": 1180, "height": 840})
    page.open("links")
    expect(page.page.locator(".loading")).to_have_count(0)
    file = screenshots / "dashboard-links.png"
    page.page.screenshot(path=file)
    assert file.stat().st_size <= 150 * 1024
