"""Fixtures of all tests of the page."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from helpers.browsing import Browsing, Serve, browsing
from helpers.chromium import Open
from helpers.shards import Sample, write_shard


@pytest.fixture(scope="module", autouse=True)
def _cache_of_the_module(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep the servers that serve a whole module out of the user's own cache folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WIDS_CACHE", str(tmp_path_factory.mktemp("module-cache")))
        yield


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Return a function that serves samples as one shard, with options of `browsing`."""
    with ExitStack() as servers:

        def serve_samples(samples: Sequence[Sample], **options: Any) -> Browsing:
            path = write_shard(tmp_path / "served.tar", samples)
            return servers.enter_context(browsing([str(path)], **options))

        yield serve_samples


@pytest.fixture
def page_of(serve: Serve, open_page: Open) -> Open:
    """Return a function that serves samples as one shard and opens a page of them."""

    def open_one(samples: Sequence[Sample], query: str = "", **options: Any) -> Any:
        return open_page(serve(samples, **options).url + query)

    return open_one
