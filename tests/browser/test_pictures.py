"""The dashboard's pictures in docs/images, made anew when they are asked for."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.browser.conftest import ALICE, SHIPPING, Stage, slow_group
from tests.rig.browser import PHONE, Scheme, tab

pytestmark = pytest.mark.integration


def test_pictures_for_the_documents(
    screenshots: Path | None, request: pytest.FixtureRequest
) -> None:
    """KEYWAY_TESTS_SCREENSHOTS=1 makes those of docs/images anew."""
    if screenshots is None:
        pytest.skip("KEYWAY_TESTS_SCREENSHOTS=1 makes the pictures")
    browser: Browser = request.getfixturevalue("browser")
    stage: Stage = request.getfixturevalue("stage")
    screenshots.mkdir(exist_ok=True)
    views: tuple[tuple[str, str, Scheme, tuple[int, int]], ...] = (
        ("dashboard", "", "light", (1180, 560)),
        ("dashboard-group", f"groups/{SHIPPING}", "dark", (1180, 920)),
        ("dashboard-members", f"groups/{SHIPPING}/members", "light", (1180, 700)),
        ("dashboard-phone", f"groups/{SHIPPING}", "light", PHONE),
    )
    with slow_group(stage):
        for name, view, scheme, size in views:
            with tab(browser, stage.url, token=ALICE, scheme=scheme, size=size) as opened:
                opened.open()
                opened.page.wait_for_timeout(20_000)  # so that the lines have some length
                opened.page.goto(f"{stage.url}/#/{view}")
                opened.page.wait_for_timeout(4_000)
                opened.page.screenshot(path=screenshots / f"{name}.png")
            assert (screenshots / f"{name}.png").stat().st_size <= 150 * 1024
