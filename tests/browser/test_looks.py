"""What can be measured of the dashboard's looks, in a real browser: words that stay whole, colours
that differ, a strip that shows its tab, figures of a group that stopped.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from itertools import combinations
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.conftest import BILLING, LEDGER, OPERATOR, ORDERS, STOPPED, Stage
from tests.rig.browser import PHONE, Tab, tab
from tests.rig.clients.share_members import ShareHost
from tests.rig.kafka import produce
from tests.rig.patience import wait_until

pytestmark = [pytest.mark.deep, pytest.mark.integration]

LONG = "com.example.payments.settlement-reconciliation-service"
TWELVE = "twelve"

# Words of links and headings whose parts between two places for a line end stand in two lines.
BROKEN_WORDS = """() => {
  const broken = [];
  for (const element of document.querySelectorAll("tbody th, h1.name")) {
    const walk = document.createTreeWalker(element, NodeFilter.SHOW_TEXT);
    for (let text = walk.nextNode(); text; text = walk.nextNode()) {
      for (const word of text.data.matchAll(/[a-zA-Z0-9]+/g)) {
        const range = document.createRange();
        range.setStart(text, word.index);
        range.setEnd(text, word.index + word[0].length);
        const tops = new Set([...range.getClientRects()].map((it) => Math.round(it.top)));
        if (tops.size > 1) broken.push(word[0]);
      }
    }
  }
  return broken;
}"""


@pytest.fixture(scope="module")
def crowd(stage: Stage) -> Iterator[None]:
    """A group with a long name, and one of twelve members."""
    with ShareHost.librdkafka() as host:
        names = [(LONG, "settler"), *((TWELVE, f"worker-{at:02}") for at in range(12))]
        for group, name in names:
            host.member(stage.gateway.bootstrap, group, [ORDERS], name=name).begin_consume(600)
        yield


@pytest.fixture
def page(browser: Browser, stage: Stage, crowd: None) -> Iterator[Tab]:  # noqa: ARG001
    with tab(browser, stage.url, token=OPERATOR) as opened:
        yield opened
        assert not opened.violations


def resized(page: Tab, width: int) -> None:
    page.page.set_viewport_size({"width": width, "height": 800})


def test_names_are_not_broken_inside_a_word(page: Tab) -> None:
    """Whatever the width, and the column of parked records is on the screen."""
    for view in ("groups", "", f"groups/{LONG}"):
        page.open(view)
        name = page.page.get_by_text("settlement-").first
        expect(name).to_be_visible()
        for width in (700, 800, 900, 1_000, 1_100, 1_280):
            resized(page, width)
            assert page.page.evaluate(BROKEN_WORDS) == [], (view, width)
            assert page.sideways_px() <= 0
            if view == "groups":
                inside = "it => it.scrollWidth - it.clientWidth"
                assert page.page.locator("section.panel").evaluate(inside) <= 0, width


def test_a_phone_shows_the_tab_that_is_chosen_and_the_state_of_groups(
    browser: Browser, stage: Stage
) -> None:
    with tab(browser, stage.url, token=OPERATOR, size=PHONE) as phone:
        for view in ("filters", "members", "positions", ""):
            phone.open(f"groups/{LEDGER}{'/' if view else ''}{view}")
            chosen = phone.page.locator(".tabs [aria-current]")
            expect(chosen).to_be_visible()
            place = chosen.bounding_box()
            assert place is not None
            assert place["x"] >= 0
            assert place["x"] + place["width"] <= PHONE[0], view
        phone.open("groups")
        row = phone.page.get_by_role("row").filter(has_text=STOPPED)
        expect(row.locator(".narrow .pill")).to_be_visible()
        expect(row.locator(".narrow .pill")).to_have_text("Empty")


def rgb(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text)[:3])


def far(one: str, other: str) -> int:
    return sum(abs(a - b) for a, b in zip(rgb(one), rgb(other), strict=True))


def test_twelve_members_have_twelve_colours(page: Tab) -> None:
    page.open(f"groups/{TWELVE}/members")
    expect(page.page.locator(".ring .arc")).to_have_count(12)
    colours: list[str] = page.page.evaluate(
        """() => [...document.querySelectorAll(".ring .arc")]
          .map((it) => getComputedStyle(it).stroke)"""
    )
    assert min(far(one, other) for one, other in combinations(colours, 2)) >= 40
    swatches: list[str] = page.page.evaluate(
        """() => [...document.querySelectorAll("tbody .swatch rect")]
          .map((it) => getComputedStyle(it).fill)"""
    )
    assert sorted(swatches) == sorted(colours)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_settled_waiting_and_unread_differ(page: Tab, scheme: Any) -> None:
    page.page.emulate_media(color_scheme=scheme)
    page.open(f"groups/{BILLING}")
    expect(page.page.locator(".legend .w-settled")).to_be_visible()
    colours: list[str] = page.page.evaluate(
        """() => ["settled", "ready", "behind"].map((state) =>
          getComputedStyle(document.querySelector(`.legend .w-${state}`)).backgroundColor)"""
    )
    assert min(far(one, other) for one, other in combinations(colours, 2)) >= 75


def test_tiles_leave_no_hole(page: Tab) -> None:
    """Every row has as many, and a unit does not touch the line below it."""
    for view in ("", f"groups/{LEDGER}"):
        page.open(view)
        expect(page.page.locator(".tile").first).to_be_visible()
        for width in (375, 700, 1_000, 1_280):
            resized(page, width)
            tiles: list[dict[str, Any]] = page.page.evaluate(
                """() => [...document.querySelectorAll(".tile")].map((tile) => {
                  const [unit, line] = [tile.querySelector(".unit"), tile.querySelector(".line")];
                  const gap = unit && line
                    ? line.getBoundingClientRect().top - unit.getBoundingClientRect().bottom : 9;
                  return { top: Math.round(tile.getBoundingClientRect().top), gap };
                })"""
            )
            tops = [tile["top"] for tile in tiles]
            assert len({tops.count(top) for top in tops}) == 1, (view, width, tops)
            assert min(tile["gap"] for tile in tiles) >= 2, (view, width)


def test_a_key_that_was_never_used_does_not_look_healthy(page: Tab) -> None:
    page.open(f"groups/{BILLING}/keys")
    page.page.get_by_placeholder("look a key up").fill("no-such-key")
    page.page.keyboard.press("Enter")
    expect(page.page.get_by_text("or the key was never used")).to_be_visible()
    expect(page.page.get_by_role("cell", name="nothing unsettled").first).to_be_visible()


def test_a_warning_above_a_field_leaves_it_its_focus(page: Tab, stage: Stage) -> None:
    """Somebody types while the node hangs for some seconds."""
    page.open(f"groups/{BILLING}/keys")
    words = page.page.get_by_placeholder("look a key up")
    words.fill("no-such-")
    os.kill(stage.gateway.pid, signal.SIGSTOP)
    try:
        page.phase("stale")
        expect(words).to_be_focused()
        page.page.keyboard.type("k")
    finally:
        os.kill(stage.gateway.pid, signal.SIGCONT)
    page.live()
    expect(words).to_be_focused()
    page.page.keyboard.type("ey")
    page.page.keyboard.press("Enter")
    expect(page.page.get_by_text("No record of no-such-key is unsettled")).to_be_visible()


def test_connections_are_searched(page: Tab) -> None:
    page.open("topics")
    rows = page.page.get_by_role("table", name="Connections of clients").locator("tbody tr")
    expect(rows.filter(has_text="worker-").first).to_be_visible()
    words = page.page.get_by_label("Connections with these letters")
    words.fill("Worker-07")
    expect(rows.first).to_contain_text("worker-07")
    expect(rows.filter(has_not_text="worker-07")).to_have_count(0)
    words.fill("no such client")
    expect(page.page.get_by_text("No connection has these letters.")).to_be_visible()


def test_the_node_keeps_the_last_minutes_of_a_group(page: Tab) -> None:
    """The lines are there at once; those of a page that was just opened, too."""
    page.open(f"groups/{BILLING}")
    charts = page.page.locator("figure.chart")
    expect(charts).to_have_count(2)
    said = charts.first.locator("svg[role=img]").get_attribute("aria-label") or ""
    assert re.search(r"produced [\d.]+ now, .* settled [\d.]+ now", said), said
    expect(charts.first.locator(".scale span")).to_have_count(3)
    settled = page.page.get_by_text("Settled", exact=True)
    expect(page.page.locator(".tile").filter(has=settled)).to_contain_text("came")


def test_a_group_that_stopped_is_a_warning(page: Tab, stage: Stage) -> None:
    """Not 'All is well', and not grey; its lag looks as if it grew."""
    produce(stage.gateway.bootstrap, ORDERS, [(b"more", b"x")] * 100)
    page.open()
    wait_until(
        lambda: page.page.locator("[data-health]").inner_text() == "Serving, with warnings",
        what="a warning",
        deadline_s=200,
    )
    warning = f"group {STOPPED} has no member, and its lag grows"
    expect(page.page.locator(".reasons")).to_contain_text(warning)
    page.open("groups")
    row = page.page.get_by_role("row").filter(has_text=STOPPED)
    expect(row.locator("td .pill.warn")).to_have_text("Empty")
    expect(row).to_contain_text("no member, its lag grows")
