"""Fixtures of all tests: real data, small shards, a check for leaked descriptors."""

import gc
import os
import re
import sys
import tarfile
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

import pytest
from helpers.chromium import chromium, open_page
from helpers.disks import small_disk
from helpers.downloads import cache
from helpers.firefox import firefox, open_firefox
from helpers.server import shard_server
from helpers.shards import Sample, write_shard
from helpers.stores import azure_endpoint, hub, s3_endpoint
from helpers.waiting import eventually
from hypothesis import HealthCheck, settings

__all__ = [
    "azure_endpoint",
    "cache",
    "chromium",
    "firefox",
    "hub",
    "open_firefox",
    "open_page",
    "s3_endpoint",
    "shard_server",
    "small_disk",
]

# Not every version of Python has a build of torch; `make test-pythons` runs the other tests there,
# without a browser.
_runs_programs_with_torch = {"test_docs.py", "test_old_modules.py"}
_imports_torch = re.compile(r"^\s*(import|from) torch|\btorchdata\b", re.MULTILINE)
collect_ignore = [
    str(path)
    for path in Path(__file__).parent.rglob("test_*.py")
    if find_spec("torch") is None
    and (path.name in _runs_programs_with_torch or _imports_torch.search(path.read_text()))
]

# A busy machine must not fail a test: hypothesis would by its deadline of 200 ms, and by how long
# inputs take to make. The same inputs each time, so that a run that fails failed for its change:
# then more of them say little more. `make test-all` looks for new ones.
settings.register_profile(
    "steady",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=True,
    max_examples=25,
)
settings.register_profile(
    "long", settings.get_profile("steady"), derandomize=False, max_examples=300
)
settings.load_profile("long" if os.environ.get("WIDS_LONG_TESTS") else "steady")


def pytest_collection_finish() -> None:
    """Keep thousands of tests out of each collection of garbage, and as they are in forks."""
    gc.collect()
    gc.freeze()
    # The iterator of a DataLoader that an error keeps in a cycle cannot tell its workers to end
    # when it is collected: it waits this long for each of them, in whatever test that happens.
    if "torch.utils.data" in sys.modules:
        sys.modules["torch.utils.data._utils"].MP_STATUS_CHECK_INTERVAL = 0.5


@pytest.fixture(autouse=True)
def _private_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep tests out of the user's own cache folder."""
    monkeypatch.setenv("WIDS_CACHE", str(tmp_path / "wids-cache"))


@pytest.fixture
def no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Repeat requests that failed at once."""
    monkeypatch.setattr("wids.fetching.transport.FetchPolicy.wait_seconds", lambda *_: 0.0)


@pytest.fixture
def make_shard(tmp_path: Path) -> Callable[..., Path]:
    """Make a shard in the test's folder, by name, of `{"__key__": "0", ".txt": b"x"}` dicts."""

    def make(name: str, samples: Sequence[Sample], tar_format: int = tarfile.USTAR_FORMAT) -> Path:
        return write_shard(tmp_path / name, samples, tar_format)

    return make


@pytest.fixture
def no_fd_leaks() -> Iterator[None]:
    """Fail a test that leaves more descriptors open than before."""
    gc.collect()
    before = len(list(Path("/proc/self/fd").iterdir()))
    yield
    gc.collect()
    # A test's server lives in this process too, and closes its side of a connection a little later.
    if not eventually(lambda: len(list(Path("/proc/self/fd").iterdir())) <= before):
        after = len(list(Path("/proc/self/fd").iterdir()))
        pytest.fail(f"{after - before} descriptors were left open ({before} before, {after} after)")
