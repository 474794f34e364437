"""A real browser (Debian's chromium) that looks at the dashboard, driven by playwright."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, ConsoleMessage, Page, expect, sync_playwright

CHROMIUM = Path("/usr/bin/chromium")
# Nothing but the page itself: no first-run pages, no updates, no phoning home.
ARGUMENTS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
SHOWN_MS_MAX = 60_000  # the machine is busy: a page that is never shown fails later
DESKTOP = (1280, 800)
PHONE = (375, 780)
AXE_RULES: dict[str, Any] = {"resultTypes": ["violations"]}

Scheme = Literal["light", "dark"]


@contextmanager
def chromium() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=str(CHROMIUM), args=list(ARGUMENTS), chromium_sandbox=False
        )
        try:
            yield browser
        finally:
            browser.close()


@dataclass(slots=True)
class Tab:
    """A tab of the browser on one node, with all that its console said."""

    page: Page
    url: str
    said: list[str] = field(default_factory=list)

    def open(self, view: str = "") -> None:
        """A view by the part of its address behind `#`, shown with live data."""
        self.page.goto(f"{self.url}/#/{view}")
        self.live()

    def live(self) -> None:
        expect(self.page.locator("main")).to_have_attribute("data-phase", "live")

    def phase(self, phase: str) -> None:
        expect(self.page.locator("main")).to_have_attribute("data-phase", phase)

    @property
    def violations(self) -> list[str]:
        """Lines of the console about the content policy, and errors of the page's own code."""
        return [line for line in self.said if re.search(r"Content.Security.Policy|Error:", line)]

    def last_words(self) -> str:
        """The address, the text and the console of the page, for a test that failed."""
        text = self.page.evaluate("document.body.innerText")
        return "\n".join((self.page.url, str(text), *self.said[-20:]))

    def sideways_px(self) -> int:
        """The part of the page that is wider than the screen."""
        wider = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        return int(self.page.evaluate(wider))

    def inaccessible(self, *rules: str) -> list[str]:
        """Violations of these rules (none: all) that axe-core finds, with the elements."""
        options = AXE_RULES | ({"runOnly": list(rules)} if rules else {})
        found: list[dict[str, Any]] = Axe().run(self.page, options=options).response["violations"]
        return [
            f"{violation['id']}: {[node['target'] for node in violation['nodes'][:3]]}"
            for violation in found
        ]


@contextmanager
def tab(
    browser: Browser,
    url: str,
    *,
    token: str | None = None,
    scheme: Scheme = "light",
    size: tuple[int, int] = DESKTOP,
) -> Iterator[Tab]:
    """`token`: sent with each request, so that a restart of the node needs no new login."""
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    context = browser.new_context(
        viewport={"width": size[0], "height": size[1]},
        color_scheme=scheme,
        extra_http_headers=headers,
        reduced_motion="reduce",
    )
    context.set_default_timeout(SHOWN_MS_MAX)
    expect.set_options(timeout=SHOWN_MS_MAX)
    opened = Tab(context.new_page(), url)

    def note(message: ConsoleMessage) -> None:
        opened.said.append(f"{message.type}: {message.text}")

    opened.page.on("console", note)
    opened.page.on("pageerror", lambda error: opened.said.append(f"Error: {error}"))
    try:
        yield opened
    except AssertionError as error:
        error.add_note(opened.last_words())
        raise
    finally:
        context.close()
