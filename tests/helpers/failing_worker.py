"""Let every system call on the cache folder fail in turn; run with `failing_calls.c` preloaded.

Prints what was tried and what went wrong, as JSON: a wrong byte served, an error that is none of
ours, a cache that is not usable afterwards, litter.
"""

import contextlib
import ctypes
import errno
import json
import logging
import shutil
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path

from wids.caching.cache import ShardCache
from wids.errors import WidsError
from wids.fetching.fetch import Fetcher, FetchPolicy

SHIM = ctypes.CDLL(None)
SHORT_WRITE = -1
FAILURES = [errno.ENOSPC, errno.EIO, errno.EINTR, errno.EDQUOT, errno.EACCES, SHORT_WRITE]


def attempt(folder: Path, urls: list[str], shard: bytes, bound: int) -> str:
    """Fetch some shards, with an eviction in between; return what went wrong, or None."""
    cache = ShardCache(folder, cache_size=bound, fetcher=Fetcher(FetchPolicy(attempts=1)))
    try:
        for url in urls:
            path = cache.get(url)
            with unwatched():
                if path.read_bytes() != shard:
                    return "a wrong byte"
    except WidsError as error:
        return "" if str(folder) in str(error) or "http:" in str(error) else f"unclear: {error}"
    except Exception:  # noqa: BLE001 (whatever comes is the finding)
        return traceback.format_exc(limit=-3)
    finally:
        cache.close()
    return ""


@contextlib.contextmanager
def unwatched() -> Iterator[None]:
    """Context in which no system call fails, for the test's own files."""
    SHIM.pause_calls(1)
    try:
        yield
    finally:
        SHIM.pause_calls(0)


def litter(folder: Path) -> list[str]:
    """Return files that belong to no shard, after the removal of orphans."""
    ShardCache(folder).trim(1 << 60)
    return [path.name for path in folder.iterdir() if path.name.startswith(".")]


def main() -> None:
    """Try each call with each failure."""
    logging.disable(logging.CRITICAL)
    options = json.loads(sys.argv[1])
    shard = Path(options["shard"]).read_bytes()
    folder = Path(options["folder"])
    job = (folder, options["urls"], shard, options["bound"])
    findings: list[str] = []

    def run(number: int, failure: int) -> int:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(mode=0o700)
        SHIM.fail_at(str(folder).encode(), number, failure)
        found = attempt(*job)
        made = int(SHIM.calls())
        SHIM.fail_at(b"", 0, 0)
        found = found or (attempt(*job) and "not usable afterwards")
        if found or litter(folder):
            findings.append(f"call {number}, errno {failure}: {found} {litter(folder)}")
        return made

    calls = run(0, 0)
    for number in range(1, calls + 1, options["step"]):
        for failure in FAILURES:
            run(number, failure)
    json.dump({"calls": calls, "findings": findings}, sys.stdout)


if __name__ == "__main__":
    main()
