"""The dashboard of several nodes: what each owns, a drain by an admin's click, and a node that
dies; from the page of the other one.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Locator, expect

from gateway.admin.tokens import sha256_of
from gateway.embedded.kafka import KafkaCluster
from tests.chaos.nodes.site import Nodes
from tests.rig.browser import CHROMIUM, DESKTOP, PHONE, Tab, chromium, tab

pytestmark = [pytest.mark.deep, pytest.mark.integration]

ADMIN, OPERATOR = "keyway_admin-of-nodes", "keyway_operator-of-nodes"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if not CHROMIUM.exists():
        pytest.skip(f"no {CHROMIUM}: make setup installs it as root (apt-get install chromium)")
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def nodes(kafka_pair: KafkaCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    tokens = [
        {"name": "root", "role": "admin", "sha256": sha256_of(ADMIN)},
        {"name": "some", "role": "operator", "sha256": sha256_of(OPERATOR)},
    ]
    both = Nodes(tmp_path_factory.mktemp("nodes"), kafka_pair, "ab", admin={"tokens": tokens})
    with both.running("ab"):
        yield both


def row(opened: Tab, node: str) -> Locator:
    head = opened.page.get_by_role("rowheader", name=node)
    return opened.page.get_by_role("row").filter(has=head)


def test_nodes_are_shown_drained_and_missed(browser: Browser, nodes: Nodes) -> None:
    url = f"http://{nodes.nodes['a'].admin}"
    with tab(browser, url, token=OPERATOR) as opened:
        opened.open("nodes")
        expect(row(opened, "b")).to_contain_text("up")
        expect(opened.page.get_by_role("button", name="Drain … b")).to_have_count(0)
    with tab(browser, url, token=ADMIN) as opened:
        page = opened.page
        opened.open()
        expect(page.locator(".health")).to_contain_text("figures of nodes a, b")
        page.get_by_role("link", name="Nodes").click()
        expect(row(opened, "a")).to_contain_text("this one")
        for broker, owner in nodes.owners().items():
            expect(row(opened, owner).get_by_role("cell").nth(1)).to_have_text(str(broker))
        for size in (PHONE, DESKTOP):
            page.set_viewport_size({"width": size[0], "height": size[1]})
            assert opened.sideways_px() <= 0
        assert not opened.inaccessible()

        page.get_by_role("button", name="Drain … b").click()
        expect(page.get_by_role("dialog")).to_contain_text("Other nodes get 1 virtual broker of it")
        page.get_by_role("button", name="Drain", exact=True).click()
        expect(row(opened, "b")).to_contain_text("drained")
        expect(row(opened, "a").get_by_role("cell").nth(1)).to_have_text("1, 2")
        assert set(nodes.owners().values()) == {"a"}
        page.get_by_role("button", name="Undrain … b").click()
        page.get_by_role("button", name="Undrain", exact=True).click()
        expect(row(opened, "b")).to_contain_text("up")
        nodes.wait_for_owners("ab")

        nodes.nodes["b"].kill()
        expect(row(opened, "b")).to_contain_text("gone")
        expect(row(opened, "a").get_by_role("cell").nth(1)).to_have_text("1, 2")
        assert not opened.violations
