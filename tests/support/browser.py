"""A browser without a window, for the broker's page."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from playwright.sync_api import Browser, Page, expect, sync_playwright

from support.scripts import BROKERS, facts_of, run_script
from support.waiting import PATIENCE


@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    """Chromium; its tests must not run on an event loop."""
    facts = facts_of(run_script(str(BROKERS / "ensure-chromium"), timeout=300))
    environment = {**os.environ, "LD_LIBRARY_PATH": facts["libraries"]}
    expect.set_options(timeout=PATIENCE * 1000)
    with sync_playwright() as playwright:
        # A sandbox needs rights that containers, and root, do not have. It loads nothing but our
        # page.
        browser = playwright.chromium.launch(
            executable_path=facts["program"], env=environment, args=["--no-sandbox"], timeout=PATIENCE * 1000
        )
        try:
            yield browser
        finally:
            browser.close()


@contextlib.contextmanager
def opened(browser: Browser, url: str, **context: object) -> Iterator[Page]:
    """A page in a context of its own. It fails if the page has an error or asks another host."""
    with contextlib.closing(browser.new_context(**context)) as window:  # type: ignore[arg-type]
        window.set_default_timeout(PATIENCE * 1000)
        page = window.new_page()
        wrong: list[str] = []
        page.on("pageerror", lambda error: wrong.append(f"error: {error}"))
        page.on(
            "request",
            lambda request: (
                wrong.append(f"foreign: {request.url}")
                if not request.url.startswith((url, "data:"))
                else None
            ),
        )
        # Refusals by the content security policy are told there.
        page.on(
            "console",
            lambda said: wrong.append(said.text) if "Content Security Policy" in said.text else None,
        )
        page.goto(url)
        yield page
        assert not wrong, wrong
