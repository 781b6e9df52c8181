"""Fixtures for Debian's Chromium, driven by playwright."""

import os
import shutil
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

__all__ = [
    "WAIT_MILLISECONDS",
    "Open",
    "assert_axe_is_content",
    "assert_it_fits",
    "chromium",
    "leave_server",
    "open_page",
    "wait_until",
]

Open = Callable[..., Any]  # the type of the fixtures that open a page
WAIT_MILLISECONDS = 90_000  # machines under load take seconds for what takes milliseconds

_PAGES: list[Any] = []  # of the test that runs


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """Start the installed browser once; without one the tests are skipped, or fail in CI."""
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        if os.environ.get("WIDS_NEEDS_CHROMIUM"):
            pytest.fail("there is no chromium, and WIDS_NEEDS_CHROMIUM says that it is needed")
        pytest.skip("there is no chromium; apt-get install chromium brings it")
    pytest.importorskip("playwright")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # The sandbox wants a user who is not root; a container's tests run as root.
        flags = ["--no-sandbox", "--autoplay-policy=no-user-gesture-required"]
        browser = playwright.chromium.launch(executable_path=path, args=flags)
        yield browser
        browser.close()


@pytest.fixture
def open_page(chromium: Any) -> Iterator[Open]:
    """Return a function that opens a page; the page must not have logged an error.

    What the page goes to next may be a query alone.
    """
    contexts: list[Any] = []
    said: list[str] = []

    def listen(kind: str, text: str) -> None:
        if kind in ("error", "warning"):
            said.append(text)

    def open_one(url: str, width: int = 1280, scheme: str = "light", **options: Any) -> Any:
        viewport = {"width": width, "height": 860}
        context = chromium.new_context(
            base_url=url, viewport=viewport, color_scheme=scheme, **options
        )
        contexts.append(context)
        context.set_default_timeout(WAIT_MILLISECONDS)
        page = context.new_page()
        _PAGES.append(page)
        page.on("console", lambda message: listen(message.type, message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("dialog", lambda dialog: (said.append(dialog.message), dialog.dismiss()))
        page.goto(url)
        return page

    yield open_one
    for context in contexts:
        context.close()
    _PAGES.clear()
    assert said == [], said


def leave_server(url: str) -> None:
    """Leave the pages of a server that is about to end.

    It breaks off what they ask of it, which they log as an error.
    """
    for page in _PAGES:
        if not page.is_closed() and page.url.startswith(url):
            page.goto("about:blank")


def wait_until(page: Any, condition: str) -> None:
    """Wait until a JavaScript expression is true; the page forbids playwright's own way."""
    # It is looked at in the browser, since each question from here takes time of three processes.
    waiting = f"""(async () => {{
        const end = performance.now() + 1000;
        while (!({condition})) {{
            if (performance.now() > end) return false;
            await new Promise((resolve) => setTimeout(resolve, 20));
        }}
        return true;
    }})()"""
    end = time.monotonic() + WAIT_MILLISECONDS / 1000
    while not page.evaluate(waiting):
        if time.monotonic() > end:
            raise TimeoutError(condition)


def assert_axe_is_content(page: Any) -> None:
    """See that the tool axe finds no fault: no rule with a first element that breaks it."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    found = axe.run(page).response["violations"]
    assert [(each["id"], each["nodes"][0]["html"]) for each in found] == [], page.url


def assert_it_fits(page: Any) -> None:
    """See that the page is no wider than its window, and that axe is content."""
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), page.url
    assert_axe_is_content(page)
