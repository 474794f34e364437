"""The parked records of a group on the dashboard: looked at, released, skipped, dead-lettered."""

from __future__ import annotations

import re
import shlex

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.conftest import (
    AUDITOR,
    LEDGER,
    LETTERS,
    OPERATOR,
    PAYMENTS,
    Stage,
    park,
    parked_offsets,
)
from tests.rig.browser import Tab, tab
from tests.rig.clients.kafka_tools import KafkaTools
from tests.rig.documents import TOOLS
from tests.rig.kafka import read_partition
from tests.rig.patience import wait_until

pytestmark = [pytest.mark.deep, pytest.mark.integration]


def test_parked_records_are_released_and_skipped(page: Tab, stage: Stage) -> None:
    """Each decision is shown first, and nothing happens before the answer."""
    first, second, *_ = parked = parked_offsets(stage)
    page.open(f"groups/{LEDGER}/parked")
    skip = page.page.get_by_role("button", name="Skip …")
    expect(skip).to_be_disabled()
    page.page.get_by_label(f"choose {PAYMENTS}-0 {first}", exact=True).check()
    skip.click()
    dialog = page.page.get_by_role("dialog")
    expect(dialog).to_contain_text("1 record will count as settled")
    expect(dialog).to_contain_text(f"offset {first}")
    page.page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    assert parked_offsets(stage) == parked
    skip.click()
    dialog.get_by_role("button", name="Skip").click()
    expect(dialog).to_have_count(0)
    wait_until(lambda: parked_offsets(stage) == parked[1:], what="skipped", deadline_s=20)
    page.page.get_by_label(f"choose {PAYMENTS}-0 {second}", exact=True).check()
    page.page.get_by_role("button", name="Release …").click()
    dialog.get_by_role("button", name="Release").click()
    expect(dialog).to_have_count(0)
    (again,) = stage.ledger.poll_some()
    assert again.offset == second
    stage.ledger.settle("ACCEPT", [again])
    expect(page.page.locator("tbody tr")).to_have_count(len(parked) - 2)


@pytest.mark.deep
def test_headers_are_shown_to_those_who_may_see_keys(browser: Browser, stage: Stage) -> None:
    """They are read from Kafka at a press, and stay while the page renews the rest."""
    park(stage, 1, headers=[("trace", b"<b>abc</b>"), ("raw", b"\xff"), ("none", None)])
    *_, last = parked_offsets(stage)
    with tab(browser, stage.url, token=OPERATOR) as opened:
        opened.open(f"groups/{LEDGER}/parked")
        opened.page.get_by_label(
            f"show the time and headers of {PAYMENTS}-0 {last}", exact=True
        ).click()
        shown = opened.page.get_by_label(f"details of {PAYMENTS}-0 {last}", exact=True)
        expected: list[str | re.Pattern[str]] = [
            re.compile("^made 20"),
            "trace: <b>abc</b>",
            "raw: base64 /w==",
            "none: null",
        ]
        expect(shown.get_by_role("listitem")).to_have_text(expected)
        with opened.page.expect_response(re.compile("/v1/parked")) as renewed:
            pass
        assert "headers" not in renewed.value.url
        expect(shown.get_by_role("listitem")).to_have_text(expected)
    with tab(browser, stage.url, token=AUDITOR) as opened:
        opened.open(f"groups/{LEDGER}/parked")
        expect(opened.page.locator("tbody tr").first).to_be_visible()
        expect(opened.page.get_by_text("details")).to_have_count(0)
        expect(opened.page.get_by_text("value", exact=True)).to_have_count(0)


def test_a_value_is_shown_to_those_who_may_see_values(browser: Browser, stage: Stage) -> None:
    """Masked, and read once: each look is in the audit."""
    park(stage, 1, value=b'{"iban": "<b>DE1</b>", "sum": 5}')
    *_, last = parked_offsets(stage)
    with tab(browser, stage.url, token=OPERATOR) as opened:
        opened.open(f"groups/{LEDGER}/parked")
        opened.page.get_by_label(f"show the value of {PAYMENTS}-0 {last}", exact=True).click()
        shown = opened.page.get_by_label(f"value of {PAYMENTS}-0 {last}", exact=True)
        expect(shown.get_by_role("paragraph")).to_have_text("json, 32 B · masked: iban")
        expect(shown.locator("pre")).to_have_text('{\n  "iban": "***",\n  "sum": 5\n}')
        with opened.page.expect_response(re.compile("/v1/parked")) as renewed:
            pass
        assert "value" not in renewed.value.url


@pytest.mark.deep
def test_parked_records_are_narrowed_by_reason_and_key(browser: Browser, stage: Stage) -> None:
    """What is decided about all is then about all that the page shows."""
    park(stage, 1, key=b"narrow-1")
    before = parked_offsets(stage)
    with tab(browser, stage.url, token=OPERATOR) as opened:
        page = opened.page
        opened.open(f"groups/{LEDGER}/parked")
        expect(page.locator("tbody tr")).to_have_count(len(before))
        page.get_by_label("Reason").select_option("lock timeout")
        expect(page.get_by_text("No parked record has this reason and key.")).to_be_visible()
        page.get_by_label("Reason").select_option("rejected")
        expect(page.locator("tbody tr")).to_have_count(len(before))
        page.get_by_label("Key (").fill("narrow-*")
        page.keyboard.press("Enter")
        expect(page.locator("tbody tr")).to_have_count(1)
        park(stage, 1, key=b"narrow-2")
        expect(page.locator("tbody tr")).to_have_count(2)
        page.get_by_role("button", name="Skip all …").click()
        dialog = page.get_by_role("dialog")
        expect(dialog).to_contain_text("with the reason rejected and a key like narrow-*")
        dialog.get_by_role("button", name="Skip all").click()
        expect(dialog).to_have_count(0)
        expect(page.get_by_text("No parked record has this reason and key.")).to_be_visible()
    assert parked_offsets(stage) == before[:-1]
    with tab(browser, stage.url, token=AUDITOR) as opened:
        opened.open(f"groups/{LEDGER}/parked")
        expect(opened.page.get_by_label("Reason")).to_be_visible()
        expect(opened.page.get_by_label("Key (")).to_have_count(0)


TOPIC_TOOLS = ("kafka-topics", "kafka-console-consumer", "kafka-acls")


@pytest.mark.deep
def test_the_page_has_the_commands_of_kafkas_own_tools(
    browser: Browser, stage: Stage, kafka_tools: KafkaTools
) -> None:
    """They are run as they stand there, by those very tools."""
    views = {
        f"groups/{LEDGER}": ("Positions and lag", PAYMENTS),
        f"groups/{LEDGER}/members": ("Members", "ledger"),
        f"groups/{LEDGER}/positions": ("A move to the start", "not empty"),
        f"groups/{LEDGER}/settings": ("Settings in Kafka", LEDGER),
        f"groups/{LEDGER}/parked": ("The record", "100"),
    }
    with tab(browser, stage.url, token=OPERATOR) as opened:
        page = opened.page
        for view, (what, expected) in views.items():
            opened.open(view)
            page.get_by_role("button", name="Kafka's own commands").click()
            row = page.locator("#stock-commands > div").filter(has_text=what).first
            tool, option, bootstrap, *words = shlex.split(row.locator("code").inner_text())
            assert (option, bootstrap) == ("--bootstrap-server", stage.gateway.bootstrap)
            said = kafka_tools.run(TOOLS[tool], bootstrap, *words)
            assert expected in said, (view, said)
            row.get_by_role("button", name="copy").click()
            expect(page.get_by_text("The command is").last).to_be_attached()
        opened.open("topics")
        page.get_by_role("button", name="Kafka's own commands").click()
        commands = page.locator("#stock-commands code")
        expect(commands).to_have_text([re.compile(rf"^{tool}\.sh ") for tool in TOPIC_TOOLS])


def test_all_parked_records_of_a_group_are_released_at_once(page: Tab, stage: Stage) -> None:
    park(stage, 2)
    page.open(f"groups/{LEDGER}/parked")
    page.page.get_by_role("button", name="Skip all …").click()
    dialog = page.page.get_by_role("dialog")
    expect(dialog).to_contain_text("will count as settled")
    dialog.get_by_role("button", name="Skip all").click()
    expect(page.page.get_by_text("No record is parked.")).to_be_visible()
    assert parked_offsets(stage) == []
    park(stage, 3)


def test_a_parked_record_goes_to_the_dead_letters(page: Tab, stage: Stage) -> None:
    park(stage, 1)
    wait_until(lambda: bool(parked_offsets(stage)), what="a parked record", deadline_s=20)
    *others, last = parked_offsets(stage)
    letters = read_partition(stage.kafka.bootstrap_servers, LETTERS, 0)
    page.open(f"groups/{LEDGER}/parked")
    page.page.get_by_label(f"choose {PAYMENTS}-0 {last}", exact=True).check()
    page.page.get_by_role("button", name="Dead-letter …").click()
    dialog = page.page.get_by_role("dialog")
    expect(dialog).to_contain_text("1 record will be written to the dead-letter topic")
    expect(dialog).to_contain_text(f"{PAYMENTS}-0: offset {last}")
    assert parked_offsets(stage) == [*others, last]
    dialog.get_by_role("button", name="Dead-letter").click()
    expect(dialog).to_have_count(0)
    wait_until(lambda: parked_offsets(stage) == others, what="it is gone", deadline_s=20)

    def written() -> list[bytes | None]:
        now = read_partition(stage.kafka.bootstrap_servers, LETTERS, 0)
        return [value for _, _, value in now[len(letters) :]]

    wait_until(lambda: bool(written()), what="the dead letter", deadline_s=20)  # it is on its way
    assert written() == [b"100"]
