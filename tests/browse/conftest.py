"""Fixture of all tests of the page."""

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module", autouse=True)
def _cache_of_the_module(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep the servers that serve a whole module out of the user's own cache folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WIDS_CACHE", str(tmp_path_factory.mktemp("module-cache")))
        yield
