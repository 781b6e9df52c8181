"""Debian's Firefox, driven by WebDriver BiDi, the protocol that it speaks by itself."""

import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import pytest

__all__ = ["FirefoxPage", "firefox", "open_firefox"]

WAIT_SECONDS = 90.0  # as for Chromium: machines under load take seconds for milliseconds
_LISTENING = re.compile(r"WebDriver BiDi listening on (ws://\S+)")
_PREFERENCES = {
    "app.update.enabled": False,
    "browser.aboutwelcome.enabled": False,
    "browser.shell.checkDefaultBrowser": False,
    "datareporting.policy.dataSubmissionEnabled": False,
    "network.captive-portal-service.enabled": False,
    "network.connectivity-service.enabled": False,
    "remote.active-protocols": 1,
    "toolkit.telemetry.enabled": False,
}
# Keys that are no characters, by the code points of WebDriver.
KEYS = {
    "Enter": "\ue007",
    "Escape": "\ue00c",
    "ArrowRight": "\ue014",
    "ArrowDown": "\ue015",
    "Home": "\ue011",
}


class Firefox:
    """A running Firefox without a window, and the connection to it."""

    def __init__(self, path: str, folder: Path) -> None:
        from websockets.sync.client import connect

        profile = folder / "profile"
        profile.mkdir()
        lines = [f"user_pref({json.dumps(n)}, {json.dumps(v)});" for n, v in _PREFERENCES.items()]
        (profile / "user.js").write_text("\n".join(lines))
        log = folder / "log"
        flags = ["--headless", "--no-remote", "--remote-debugging-port=0"]
        with log.open("w") as said:
            self._process = subprocess.Popen(
                [path, *flags, "--profile", profile, "about:blank"],
                stdout=said,
                stderr=said,
                env={**os.environ, "HOME": str(folder), "MOZ_CRASHREPORTER_DISABLE": "1"},
            )
        self._ending = ExitStack()
        self._ending.callback(self._process.wait, WAIT_SECONDS)
        self._ending.callback(self._process.terminate)
        self._number = 0
        self.events: list[Mapping[str, Any]] = []
        with ExitStack() as ending_on_error:
            ending_on_error.push(self._ending)
            address = self._address(log)
            connecting = connect(f"{address}/session", max_size=None, open_timeout=WAIT_SECONDS)
            self._socket = self._ending.enter_context(connecting)
            self.call("session.new", capabilities={})
            self.call("session.subscribe", events=["log.entryAdded", "network.beforeRequestSent"])
            ending_on_error.pop_all()

    def _address(self, log: Path) -> str:
        end = time.monotonic() + WAIT_SECONDS
        while not (found := _LISTENING.search(log.read_text())):
            if self._process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"Firefox did not start: {log.read_text()}")
            time.sleep(0.05)
        return found[1]

    def call(self, method: str, **parameters: Any) -> Any:
        """Send a command; return its result, and note the events before it."""
        self._number += 1
        self._socket.send(json.dumps({"id": self._number, "method": method, "params": parameters}))
        while True:
            message = json.loads(self._socket.recv(WAIT_SECONDS))
            if message.get("id") == self._number:
                break
            self.events.append(message)
        if message["type"] == "error":
            raise RuntimeError(f"{method}: {message['error']}: {message['message']}")
        return message["result"]

    def close(self) -> None:
        """End the browser."""
        self._ending.close()


class FirefoxPage:
    """A tab of Firefox.

    Args:
        browser: The browser.
        width: Width of its view in CSS pixels.
        ratio: Pixels of the screen for each.

    Attributes:
        said: Errors and warnings that the page logged.
        asked: URLs of all requests of the page.
    """

    def __init__(self, browser: Firefox, width: int = 1280, ratio: float = 1.0) -> None:
        self._browser = browser
        self._context = browser.call("browsingContext.create", type="tab")["context"]
        browser.call(
            "browsingContext.setViewport",
            context=self._context,
            viewport={"width": width, "height": 860},
            devicePixelRatio=ratio,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._browser.call("browsingContext.close", context=self._context)
        assert self.said == [], self.said

    @property
    def said(self) -> list[str]:
        entries = [each["params"] for each in self._of("log.entryAdded")]
        return [each["text"] for each in entries if each["level"] in ("error", "warn")]

    @property
    def asked(self) -> list[str]:
        return [each["params"]["request"]["url"] for each in self._of("network.beforeRequestSent")]

    def _of(self, method: str) -> list[Mapping[str, Any]]:
        events = (each for each in self._browser.events if each.get("method") == method)
        return [each for each in events if self._context in str(each["params"])]

    def open(self, url: str) -> None:
        """Go to a URL, and wait until it is loaded."""
        self._browser.call(
            "browsingContext.navigate", context=self._context, url=url, wait="complete"
        )

    def evaluate(self, expression: str) -> Any:
        """Return the value of a JavaScript expression, or of its promise, as JSON can hold it."""
        found = self._browser.call(
            "script.evaluate",
            expression=f"(async () => JSON.stringify([await ({expression})]))()",
            target={"context": self._context},
            awaitPromise=True,
        )
        if found["type"] == "exception":
            raise RuntimeError(f"{expression}: {found['exceptionDetails']['text']}")
        return json.loads(found["result"]["value"])[0]

    def violations(self) -> list[list[str]]:
        """Return the faults that axe finds: the rule, and the first element that breaks it."""
        script = pytest.importorskip("axe_playwright_python.base").AXE_SCRIPT
        target = {"context": self._context}
        self._browser.call(
            "script.evaluate", expression=f"{script};0", target=target, awaitPromise=False
        )
        found: list[list[str]] = self.evaluate(
            "axe.run().then((found) => "
            "found.violations.map((each) => [each.id, each.nodes[0].html]))"
        )
        return found

    def wait_until(self, expression: str) -> None:
        """Wait until a JavaScript expression is true."""
        end = time.monotonic() + WAIT_SECONDS
        while not self.evaluate(f"!!({expression})"):
            if time.monotonic() > end:
                raise TimeoutError(f"{expression}; the page shows {self.text()[:2000]}")
            time.sleep(0.02)

    def text(self) -> str:
        """Return the text of the page."""
        return str(self.evaluate("document.body.innerText"))

    def wait_for_text(self, text: str) -> None:
        """Wait until the page shows a text."""
        self.wait_until(f"document.body.innerText.includes({json.dumps(text)})")

    def press(self, *keys: str) -> None:
        """Press and release keys, one after the other."""
        strokes = [KEYS.get(key, key) for key in keys]
        actions = [{"type": f"key{way}", "value": key} for key in strokes for way in ("Down", "Up")]
        self._perform({"type": "key", "id": "keyboard", "actions": actions})

    def click(self, selector: str) -> None:
        """Click into the middle of the first element that a selector finds, once it is there."""
        self.wait_until(f"document.querySelector({json.dumps(selector)})")
        middle = self.evaluate(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            " e.scrollIntoView({block: 'center'}); const r = e.getBoundingClientRect();"
            " return [r.left + r.width / 2, r.top + r.height / 2].map(Math.round); })()"
        )
        move = {"type": "pointerMove", "x": middle[0], "y": middle[1]}
        presses = [{"type": "pointerDown", "button": 0}, {"type": "pointerUp", "button": 0}]
        self._perform({"type": "pointer", "id": "mouse", "actions": [move, *presses]})

    def _perform(self, source: dict[str, Any]) -> None:
        self._browser.call("input.performActions", context=self._context, actions=[source])


@pytest.fixture(scope="session")
def firefox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Firefox]:
    """Start the installed Firefox once; without one the tests are skipped."""
    path = shutil.which("firefox-esr") or shutil.which("firefox")
    if path is None:
        pytest.skip("there is no Firefox; apt-get install firefox-esr brings it")
    pytest.importorskip("websockets", reason="websockets connects to Firefox")
    browser = Firefox(path, tmp_path_factory.mktemp("firefox"))
    yield browser
    browser.close()


@pytest.fixture
def open_firefox(firefox: Firefox) -> Callable[..., FirefoxPage]:
    """Return a function that makes a page, which must not have logged an error at its end."""

    def open_one(**options: Any) -> FirefoxPage:
        return FirefoxPage(firefox, **options)

    return open_one
