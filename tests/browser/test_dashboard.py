"""The dashboard in a real browser, in front of a real node under load."""

from __future__ import annotations

import os
import re
import signal
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.conftest import (
    AUDITOR,
    BILLING,
    HOSTILE,
    LEDGER,
    OPERATOR,
    ORDERS,
    PAYMENTS,
    STOPPED,
    VIEWER,
    Stage,
    listed,
    park,
    parked_offsets,
)
from tests.rig.browser import DESKTOP, PHONE, Tab, tab
from tests.rig.clients.share_members import ShareHost, consume_all
from tests.rig.inflating import with_a_bomb
from tests.rig.kafka import create_topic, produce
from tests.rig.patience import wait_until

pytestmark = pytest.mark.integration

TABS = ("", "/members", "/keys", "/parked", "/unreadable", "/positions", "/filters", "/settings")
VIEWS = (
    "",
    "groups",
    "topics",
    "clients",
    "links",
    "audit",
    *(f"groups/{LEDGER}{tab}" for tab in TABS),
    f"groups/{BILLING}",
)


def rules_of(stage: Stage, group: str) -> list[dict[str, Any]]:
    return listed(stage, "/v1/filters", "rules", group=group)


def test_figures_change_by_themselves(page: Tab, stage: Stage) -> None:
    """The lag of a stopped group grows on the page, which is not loaded again."""
    page.open("groups")
    page.page.evaluate("window.loadedOnce = true")
    row = page.page.get_by_role("row").filter(has_text=STOPPED)
    lag = row.locator("td.number").nth(1)

    def shown() -> int:
        text = lag.inner_text()  # 12.3 k from 10,000 on
        value = float(re.sub(r"[^\d.]", "", text) or -1)
        return round(value * 1_000) if "k" in text else int(value)

    wait_until(lambda: shown() > 0, what="a lag", deadline_s=20)
    before = shown()
    produce(stage.gateway.bootstrap, ORDERS, [(b"more", b"x")] * 300)
    wait_until(lambda: shown() >= before + 300, what="the lag grown", deadline_s=20)
    assert page.page.evaluate("window.loadedOnce")
    page.page.goto(f"{stage.url}/#/")
    figures = page.page.get_by_label("Figures of the node")
    expect(figures.locator(".tile", has_text="From clients")).to_contain_text("B/s")


def test_an_address_without_a_view_says_so(page: Tab) -> None:
    for view in ("nowhere", f"groups/{LEDGER}/nowhere", f"groups/{LEDGER}/keys/x"):
        page.open(view)
        expect(page.page.get_by_role("heading", level=1)).to_have_text("No such view")
        expect(page.page.get_by_role("status").first).to_contain_text(f"/{view}")
    assert not page.inaccessible()
    page.page.get_by_role("link", name="To the overview").click()
    expect(page.page.get_by_role("heading", level=1)).to_have_text("Overview")


def test_login(browser: Browser, stage: Stage) -> None:
    """A stranger sees a login; a viewer its groups only, and nothing to change."""
    with tab(browser, stage.url) as stranger:
        stranger.page.goto(stage.url)
        stranger.phase("denied")
        token = stranger.page.get_by_label("Token")
        token.fill("keyway_wrong")
        token.press("Enter")
        expect(stranger.page.get_by_role("alert")).to_contain_text("no such token")
        token.fill(VIEWER)
        token.press("Enter")
        stranger.live()
        expect(stranger.page.locator("tbody th a.name")).to_have_text([BILLING])
        cookies = stranger.page.context.cookies()
        assert [(cookie["httpOnly"], cookie["sameSite"]) for cookie in cookies] == [
            (True, "Strict")
        ]
        stranger.page.goto(f"{stage.url}/#/groups/{BILLING}/filters")
        expect(stranger.page.get_by_role("heading", name="Key filters")).to_be_visible()
        expect(stranger.page.get_by_role("button", name="Edit")).to_have_count(0)
        stranger.page.goto(f"{stage.url}/#/groups/{LEDGER}")
        expect(stranger.page.get_by_role("alert")).to_contain_text("no group")
        stranger.page.get_by_role("button", name="log out").click()
        stranger.phase("denied")
        assert not stranger.violations


@pytest.mark.deep
def test_the_keyboard_alone_is_enough(page: Tab) -> None:
    """A decision is reached with Tab and Space; the dialog keeps the focus until it is closed."""
    page.open(f"groups/{LEDGER}/parked")
    keyboard = page.page.keyboard
    box = page.page.get_by_label("choose all that are shown")
    expect(box).to_be_visible()
    for _ in range(40):
        keyboard.press("Tab")
        if box.evaluate("it => it === document.activeElement"):
            break
    keyboard.press("Space")
    expect(box).to_be_checked()
    with page.page.expect_response(re.compile("/v1/parked")):
        pass  # the page is drawn anew, and the focus stays
    assert box.evaluate("it => it === document.activeElement")
    page.page.get_by_role("button", name="Dead-letter …").press("Enter")
    expect(page.page.get_by_role("button", name="Cancel")).to_be_focused()
    for _ in range(4):
        keyboard.press("Tab")
        behind = "document.getElementById('app').contains(document.activeElement)"
        assert not page.page.evaluate(behind)
    keyboard.press("Escape")
    expect(page.page.get_by_role("dialog")).to_have_count(0)


@pytest.mark.deep
def test_a_picture_tells_its_parts(page: Tab) -> None:
    """To the pointer, and to the keyboard."""
    page.open(f"groups/{LEDGER}")
    picture = page.page.locator("svg.window")
    said = page.page.locator(".pointed-text")
    picture.locator("rect.w-parked").first.hover()
    expect(said).to_contain_text(re.compile(rf"{PAYMENTS}-0, offset.* parked"))
    page.page.mouse.move(0, 0)
    expect(said).to_contain_text("Point at a picture")
    picture.focus()
    expect(said).to_contain_text(f"{PAYMENTS}-0, offset")
    first = said.inner_text()
    parts = picture.locator("rect").count()
    page.page.keyboard.press("ArrowRight")
    if parts > 1:
        expect(said).not_to_have_text(first)


def test_keys_are_shown_to_those_who_may_see_them(browser: Browser, stage: Stage) -> None:
    if len(parked_offsets(stage)) < 1:
        park(stage, 1)
    for token, shown in ((OPERATOR, r"^account-\d+$"), (AUDITOR, "^[0-9a-f]{8}$")):
        with tab(browser, stage.url, token=token) as opened:
            opened.open(f"groups/{LEDGER}/keys")
            expect(opened.page.get_by_role("heading", name="Hot keys")).to_be_visible()
            expect(opened.page.locator("tbody th").first).to_have_text(re.compile(shown))
            opened.page.goto(f"{stage.url}/#/groups/{LEDGER}/members")
            expect(opened.page.locator(".ring .arc")).to_have_count(1)


@pytest.mark.deep
def test_a_long_figure_stays_in_its_tile(page: Tab) -> None:
    page.open()
    wider = page.page.evaluate(
        """() => [...document.querySelectorAll(".tile .figure")].map((figure) => {
          figure.firstChild.data = "888.8 k";
          return figure.scrollWidth - figure.clientWidth;
        })"""
    )
    assert wider
    assert max(wider) <= 0


@pytest.mark.deep
def test_figures_are_written_as_people_read_them(page: Tab) -> None:
    page.open()
    shown = page.page.evaluate(
        """async () => {
          const { bytes, count, duration, percent, short, some, whole } =
            await import("/dashboard/format.js");
          return [
            whole(1234567), whole(null), short(9999), short(12345), short(1234567), short(0.25),
            bytes(999), bytes(1500), bytes(12.3e6), duration(0.5), duration(340), duration(12500),
            duration(90e3), duration(86400e3 * 3), percent(0.1234), count(1, "record"),
            count(2, "record"), some(["a", "b", "c"], 2), some(["a"], 2),
          ];
        }"""
    )
    assert shown == [
        *("1,234,567", "\u2013", "9,999", "12.3 k", "1.23 M", "0.3", "999 B", "1.50 kB", "12.3 MB"),
        *("0.5 ms", "340 ms", "12 s", "1.5 min", "3.0 d", "12.3 %", "1 record", "2 records"),
        *("a, b and 1 more", "a"),
    ]


@pytest.mark.deep
def test_a_filter_is_previewed_then_set_then_removed(page: Tab, stage: Stage) -> None:
    page.open(f"groups/{BILLING}/filters")
    page.page.get_by_role("button", name="Edit …").click()
    page.page.get_by_label("client.id").fill("billing-0*")
    page.page.get_by_label("Keys, one glob a line").fill("key-1*\nkey-2*")
    page.page.get_by_role("button", name="Preview …").click()
    dialog = page.page.get_by_role("dialog")
    expect(dialog.get_by_role("row").filter(has_text="billing-0")).to_contain_text("every key")
    expect(dialog.get_by_role("row").filter(has_text="billing-0")).to_contain_text("key-2*")
    expect(dialog).to_contain_text(re.compile(r"\d+ change their owner"))
    assert rules_of(stage, BILLING) == []
    dialog.get_by_role("button", name="Set the rules").click()
    expect(dialog).to_have_count(0)
    assert rules_of(stage, BILLING) == [{"client_id": "billing-0*", "keys": ["key-1*", "key-2*"]}]
    page.page.get_by_role("button", name="Back to keyway.yaml …").click()
    expect(dialog).to_contain_text("The rules of keyway.yaml count again")
    dialog.get_by_role("button", name="Remove them").click()
    expect(dialog).to_have_count(0)
    assert rules_of(stage, BILLING) == []


def test_positions_are_moved_after_a_look(page: Tab, stage: Stage) -> None:
    """Old, new and the difference first; the group moves with the second press."""

    def cursors() -> list[int]:
        rows = listed(stage, "/v1/positions", "positions", group=STOPPED, topic=ORDERS)
        return [row["cursor"] for row in rows]

    before = cursors()
    new = before[0] + 7
    produce(stage.gateway.bootstrap, ORDERS, [(b"more", b"x")] * 7, partition=0)
    page.open(f"groups/{STOPPED}/positions")
    page.page.get_by_label("Move to").select_option("an offset")
    page.page.get_by_label("Offset").fill(str(new))
    page.page.get_by_label("Of topic").select_option(ORDERS)
    page.page.get_by_label("Partition", exact=True).fill("0")
    page.page.get_by_role("button", name="Preview …").click()
    dialog = page.page.get_by_role("dialog")
    cells = dialog.get_by_role("row").filter(has_text=f"{ORDERS}-0").locator("td")
    expect(cells).to_have_text([f"{before[0]:,}", f"{new:,}", "+7", "\u2013"])
    assert cursors() == before
    dialog.get_by_role("button", name="Move").click()
    expect(dialog).to_have_count(0)
    expect(page.page.locator("#said")).to_have_text("1 position moved.")
    assert cursors() == [new, *before[1:]]
    page.page.get_by_label("Offset").fill("999999999")
    page.page.get_by_role("button", name="Preview …").click()
    expect(dialog.get_by_role("alert").first).to_contain_text("No position can be moved")
    expect(dialog.get_by_role("button", name="Move")).to_have_count(0)
    dialog.get_by_role("button", name="Close").click()


def test_positions_of_a_group_at_work_stay(page: Tab) -> None:
    page.open(f"groups/{BILLING}/positions")
    page.page.get_by_role("button", name="Preview …").click()
    dialog = page.page.get_by_role("dialog")
    expect(dialog.get_by_role("alert").first).to_contain_text("members")
    expect(dialog.get_by_role("row").filter(has_text=f"{ORDERS}-0")).to_be_visible()
    expect(dialog.get_by_role("button")).to_have_text(["Close"])


@pytest.mark.deep
def test_an_unreadable_batch_is_skipped_after_a_look(page: Tab, stage: Stage) -> None:
    name, group = "browser-unreadable", "stuck"
    create_topic(stage.kafka.bootstrap_servers, name, partitions=1)
    with_a_bomb(stage.kafka, name)

    def unreadable() -> list[dict[str, Any]]:
        return listed(stage, "/v1/unreadable", "unreadable", group=group)

    with ShareHost.librdkafka() as host:
        member = host.member(stage.gateway.bootstrap, group, [name])
        consume_all([member], {(name, 0, 0), (name, 0, 1)})
        page.open(f"groups/{group}/unreadable")
        skip = page.page.get_by_role("button", name=f"Skip … {name}-0")
        expect(page.page.get_by_role("row").filter(has=skip)).to_contain_text("too large")
        skip.click()
        dialog = page.page.get_by_role("dialog")
        expect(dialog).to_contain_text("1 offset will count as settled")
        expect(dialog).to_contain_text("reads on at offset 3")
        dialog.get_by_role("button", name="Cancel").click()
        assert [row["offset"] for row in unreadable()] == [2]
        skip.click()
        dialog.get_by_role("button", name="Skip").click()
        expect(dialog).to_have_count(0)
        consume_all([member], {(name, 0, 3), (name, 0, 4)})
        expect(page.page.get_by_text("The group can read everything.")).to_be_visible()
        assert unreadable() == []
        member.close()


@pytest.mark.deep
def test_a_page_without_events_polls(browser: Browser, stage: Stage) -> None:
    """Where they are refused, and where a proxy holds them back: the figures are as fresh."""
    events = "**/v1/events"
    with tab(browser, stage.url, token=OPERATOR) as opened:
        for block in (lambda route: route.abort(), lambda _: None):
            opened.page.route(events, block)
            opened.page.goto("about:blank")
            opened.page.goto(f"{stage.url}/#/groups")
            opened.phase("polling")
            state = opened.page.locator(".state")
            expect(state).to_have_text(re.compile(r"^polling · [1-5](\.\d)? s old$"))
            lag = (
                opened.page.get_by_role("row").filter(has_text=STOPPED).locator("td.number").nth(1)
            )
            before = lag.inner_text()
            produce(stage.gateway.bootstrap, ORDERS, [(b"more", b"x")] * 200)
            expect(lag).not_to_have_text(before)
            opened.phase("polling")
            opened.page.unroute(events)
        opened.live()  # it tries again


@pytest.mark.deep
def test_a_page_whose_graphics_hang_is_drawn(browser: Browser, stage: Stage) -> None:
    """A browser that has no time for its graphics sends no frames, for minutes at times."""
    with tab(browser, stage.url, token=OPERATOR) as opened:
        opened.page.add_init_script("window.requestAnimationFrame = () => 0")
        opened.open("topics")
        expect(opened.page.get_by_role("row").filter(has_text=ORDERS)).to_be_visible()
        expect(opened.page.locator(".loading")).to_have_count(0)


@pytest.mark.deep
def test_a_view_with_a_fault_says_so(browser: Browser, stage: Stage) -> None:
    with tab(browser, stage.url, token=OPERATOR) as opened:
        opened.page.route("**/v1/topics?*", lambda route: route.fulfill(json={}))
        opened.open("topics")
        main = opened.page.locator("main")
        expect(main.get_by_role("alert")).to_contain_text("This view cannot be shown: ")
        assert any("TypeError" in said for said in opened.said), "the console has the place"
        opened.page.unroute("**/v1/topics?*")
        expect(main.get_by_role("row").filter(has_text=ORDERS)).to_be_visible()
        expect(main.get_by_role("alert")).to_have_count(0)


@pytest.mark.deep
def test_links_of_a_node_that_knows_no_clusters(page: Tab) -> None:
    page.open("links")
    expect(page.page.locator("main")).to_contain_text("Set admin.clusters_file in keyway.yaml")


def test_a_name_is_never_read_as_html(page: Tab, stage: Stage) -> None:
    page.open("groups")
    page.page.get_by_role("link", name=HOSTILE, exact=True).click()
    expect(page.page.get_by_role("heading", level=1)).to_have_text(HOSTILE)
    assert page.page.url == f"{stage.url}/#/groups/{quote(HOSTILE, safe=chr(39) + '()*!')}"
    assert "owned" not in page.page.title() or page.page.title().startswith("<script>")
    assert page.page.locator("#app script, #app img").count() == 0


def test_code_that_is_put_into_the_page_does_not_run(browser: Browser, stage: Stage) -> None:
    """The policy of the page refuses it, and names the violation."""
    with tab(browser, stage.url, token=OPERATOR) as opened:
        opened.open()
        refused = opened.page.evaluate(
            """() => new Promise((told) => {
              const note = (it) => told(it.effectiveDirective);
              document.addEventListener("securitypolicyviolation", note);
              const script = document.createElement("script");
              script.textContent = "window.owned = 1";
              document.body.append(script);
            })"""
        )
        assert refused == "script-src-elem"
        assert not opened.page.evaluate("window.owned")
        assert opened.violations


@pytest.mark.deep
def test_every_view_is_accessible_and_fits_a_phone(browser: Browser, stage: Stage) -> None:
    """All rules of axe-core in light; in dark the contrast, as nothing else differs there."""
    if len(parked_offsets(stage)) < 1:
        park(stage, 1)
    found = {}
    with tab(browser, stage.url, token=OPERATOR) as opened:
        opened.open()
        for view in VIEWS:
            opened.page.goto(f"{stage.url}/#/{view}")
            opened.live()
            expect(opened.page.locator(".loading")).to_have_count(0)
            opened.page.set_viewport_size({"width": PHONE[0], "height": PHONE[1]})
            assert opened.sideways_px() <= 0, f"{view} is wider than a phone"
            opened.page.set_viewport_size({"width": DESKTOP[0], "height": DESKTOP[1]})
            faults = opened.inaccessible()
            opened.page.emulate_media(color_scheme="dark")
            faults += opened.inaccessible("color-contrast")
            opened.page.emulate_media(color_scheme="light")
            if faults:
                found[view] = faults
        assert not opened.violations
    assert not found


@pytest.mark.deep
def test_a_node_that_hangs_is_killed_and_comes_back(page: Tab, stage: Stage) -> None:
    """Live, stale, unreachable, live: the page names it, and keeps its last figures. The last
    of the tests: at its end the node is stopped.
    """
    gateway = stage.gateway
    page.open("groups")
    os.kill(gateway.pid, signal.SIGSTOP)
    page.phase("stale")
    expect(page.page.get_by_role("alert")).to_contain_text("No news from the node")
    gateway.kill()
    page.phase("unreachable")
    expect(page.page.get_by_role("link", name=BILLING)).to_be_visible()
    gateway.start()
    page.live()
    expect(page.page.get_by_role("alert")).to_have_count(0)
    expect(page.page.get_by_role("link", name=BILLING)).to_be_visible()
    page.open()
    assert gateway.stop() == 0, "open streams do not hold a node that stops"
    page.phase("unreachable")
    assert "Traceback" not in gateway.log_text()
