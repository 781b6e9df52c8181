"""A browse server for tests, on a free port of the loopback."""

import json
import os
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import requests

from helpers.chromium import leave_server
from helpers.waiting import eventually, when_finished
from wids.browse.fieldreader import FieldReader
from wids.browse.handlers import ApiHandlers
from wids.browse.server import BrowseServer
from wids.errors import WidsWarning
from wids.reading.shardlist import ShardList


@dataclass
class Browsing:
    """A running server, with methods for requests."""

    url: str
    handlers: ApiHandlers
    session: requests.Session
    token: str

    def get(self, path: str, headers: dict[str, str] | None = None, **query: Any) -> Any:
        """Send a GET; returns the response."""
        return self.session.get(
            self.url + path, params=query, headers=headers, timeout=60, allow_redirects=False
        )

    def ask(self, name: str, **query: Any) -> Any:
        """Request an endpoint of the API; return its JSON."""
        response = self.get(f"api/{name}", **query)
        assert response.status_code == 200, response.text
        return response.json()

    def ask_until_finished(self, name: str, **query: Any) -> Any:
        """Repeat a request until its scans are finished; return its JSON."""
        return when_finished(lambda: self.ask(name, **query))

    def selection(self, **query: Any) -> Any:
        """Request the document of a selection until what it depends on is read; return it."""
        answers: list[Any] = []

        def is_there() -> bool:
            answers[:] = [self.get("selection.json", **query)]
            return answers[0].ok or " yet" not in answers[0].text

        eventually(is_there)
        assert answers[0].ok, answers[0].text
        return answers[0].json()

    def states(self) -> list[str]:
        """Request the states of all shards; return them."""
        return [row["state"] for row in self.ask("shards")["shards"]]

    def search(self, text: str, **query: Any) -> Any:
        """Search all keys; return the progress, with `hits` in place of the number found."""
        page = self.ask_until_finished("page", q=text, count=240, **query)
        hits = [{name: tile[name] for name in ("index", "key")} for tile in page["tiles"]]
        return {**page["filtering"], "hits": hits}


@contextmanager
def browsing(spec: Any, title: str = "test", **options: Any) -> Iterator[Browsing]:
    """Serve a dataset, with options of `ApiHandlers`, `FieldReader` and `BrowseServer`."""
    serving = {"host": options.pop("host", "127.0.0.1"), "token": options.pop("token", False)}
    waits = {name: options.pop(name) for name in ("patience", "retry_seconds") if name in options}
    with warnings.catch_warnings():
        # As the command does, which logs them: the page says what is fetched whole.
        warnings.simplefilter("ignore", WidsWarning)
        with ShardList(spec, transformations="memoryview", remote="range") as dataset:
            # Under load a decoder process may take seconds to start.
            options = {"view_seconds": 60.0, **options}
            dataset.class_names = options.pop("class_names", {})
            handlers = ApiHandlers(FieldReader(dataset, **waits), title, **options)
            server = BrowseServer(handlers, port=0, **serving)
            thread = threading.Thread(target=server.run)
            thread.start()
            try:
                with requests.Session() as session:
                    session.trust_env = False
                    url, _, token = server.url.partition("?token=")
                    yield Browsing(url, handlers, session, token)
                    leave_server(url)
            finally:
                server.stop()
                thread.join()


Serve = Callable[..., Browsing]  # the type of the fixture that serves samples


class Command:
    """`wids browse` in a process of its own, so that its memory can be seen."""

    def __init__(self, spec: Path | str, cache: Path, *options: str, token: bool = False) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "wids", "browse", str(spec), "--json", "--port", "0", *options]
            + ["--no-token"] * (not token),
            stdout=subprocess.PIPE,
            text=True,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(each for each in sys.path if each),
                "WIDS_CACHE": str(cache),
            },
            cwd=cache,
        )
        self.url = json.loads(self.process.stdout.readline())["url"]

    def get(self, path: str, **options: Any) -> requests.Response:
        query = {
            name: value for name, value in options.items() if name not in ("headers", "stream")
        }
        others = {name: value for name, value in options.items() if name not in query}
        return requests.get(self.url + path, params=query, timeout=120, **others)

    def ask_until_finished(self, name: str, **query: Any) -> Any:
        """Repeat a request to the API until its scans are finished; return its JSON."""

        def ask() -> Any:
            response = self.get(f"api/{name}", **query)
            assert response.ok, response.text
            return response.json()

        return when_finished(ask)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Press Ctrl-C, and see that it ends in good order."""
        leave_server(self.url)
        self.process.send_signal(signal.SIGINT)
        try:
            assert self.process.wait(100) == 0
        finally:
            self.process.kill()
            self.process.stdout.close()

    @property
    def own_nbytes(self) -> int:
        """Private memory of the process, without the pages of mapped shards."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("RssAnon"))
        return int(line.split()[1]) * 1024
