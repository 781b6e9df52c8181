"""The search of the site, in a real browser, over pages that Sphinx made."""

import functools
import http.server
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from helpers.shards import REPOSITORY

pytestmark = pytest.mark.slow

Search = Callable[[str], list[str]]

# In the order of the alphabet, which is Sphinx's own for equal scores.
PAGES = {
    "index": "# The front\n\n```{toctree}\nbenchmarks\ncache\nquestions\n```\n",
    "benchmarks": "# Benchmarks\n\nShards were resumed.\n",
    "cache": "# The cache\n\nA broken download is resumed: shards are never cut.\n",
    "questions": "# Questions\n\n## How do I skip corrupt samples?\n\nBy a placeholder.\n",
}


class Quiet(http.server.SimpleHTTPRequestHandler):
    """A server without a log."""

    def log_message(self, *arguments: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Make a small site with the settings of the real one, and serve it."""
    place = tmp_path_factory.mktemp("site")
    (place / "source").mkdir()
    for name, text in PAGES.items():
        (place / "source" / f"{name}.md").write_text(text)
    build = [sys.executable, "-m", "sphinx", "-q", "-b", "html", "-c", REPOSITORY / "website"]
    build += ["-D", "html_extra_path=", place / "source", place / "html"]
    subprocess.run(build, check=True, capture_output=True)
    (place / "html" / "favicon.ico").touch()  # browsers ask for it
    handler = functools.partial(Quiet, directory=place / "html")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture
def search(address: str, open_page: Callable[..., Any]) -> Search:
    """Return a function from a query to the titles that are found, the best first."""

    def found(query: str) -> list[str]:
        page = open_page(f"{address}/search.html?q={query}")
        page.get_by_text(re.compile("finished|did not match")).first.wait_for()
        titles = page.locator("#search-results ul.search li > a").all_inner_texts()
        page.close()
        return titles

    return found


def test_a_heading_is_found_by_its_words(search: Search) -> None:
    """The section whose heading has the words comes first, in whatever order they are typed."""
    assert search("corrupt skip")[0] == "Questions > How do I skip corrupt samples?"


def test_a_page_may_lack_one_word(search: Search) -> None:
    """Where no page has every word, those that have all but one are shown."""
    assert search("broken download unheard")[0] == "The cache"
    assert search("unheard") == []


def test_guides_come_before_measurements(search: Search) -> None:
    """Of pages with the same words, the one for users is the first."""
    assert search("resumed shards") == ["The cache", "Benchmarks"]
