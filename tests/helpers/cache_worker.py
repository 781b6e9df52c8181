"""Crowds of processes on one cache: run as a script, with a JSON of options on the command line.

A script, since it forks: a test process with server threads should not.
"""

import fcntl
import hashlib
import json
import mmap
import operator
import os
import random
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from wids.caching.cache import ShardCache
from wids.errors import WidsError
from wids.fetching.fetch import Fetcher, FetchPolicy
from wids.reading.shardlist import ShardList

# Sixty processes on two cores keep a server busy for long; it is not silent for that.
POLICY = FetchPolicy(
    connect_timeout_seconds=60.0,
    stall_timeout_seconds=60.0,
    backoff_seconds=0.01,
)


def new_cache(options: dict) -> ShardCache:
    """Open the cache that all processes share."""
    return ShardCache(options["folder"], cache_size=options.get("bound"), fetcher=Fetcher(POLICY))


def read_whole(cache: ShardCache, url: str) -> str:
    """Read a shard as a dataset does, through a file that may be evicted meanwhile."""
    with cache.get(url).open("rb") as stream:
        first = stream.read(1000)
        time.sleep(0)
        return hashlib.md5(first + stream.read()).hexdigest()


def fork(action: Callable[[], object]) -> int:
    """Run an action in a child process; its exit status is 0 unless the action raised."""
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        action()
        status = 0
    except WidsError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
    except Exception:  # noqa: BLE001 (told, and the status tells too)
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def crowd(options: dict) -> dict:
    """Let all processes fetch one shard at the same time; count those that read it right."""
    if options.get("broken_locks"):
        fcntl.flock = lambda *_: None
    url, digest = options["url"], options["digest"]
    go, start = os.pipe()

    def want() -> None:
        os.close(start)
        select.select([go], [], [])
        if read_whole(new_cache(options), url) != digest:
            raise SystemExit("a wrong byte")

    children = [fork(want) for _ in range(options["processes"])]
    os.close(start)
    statuses = [os.waitpid(child, 0)[1] for child in children]
    return {"right": statuses.count(0)}


def killed(options: dict) -> dict:
    """Kill processes at random times; then check that no wrong bytes are read."""
    source = random.Random(options["seed"])
    digests: dict[str, str] = options["digests"]
    wrong = failed = running = 0
    for number in range(options["kills"]):
        if number % 12 == 0 and not options.get("bound"):
            new_cache(options).clear()  # else all would soon be there
        names = source.sample(sorted(digests), 3)

        def work(names: list[str] = names) -> None:
            cache = new_cache(options)
            for name in names:
                if read_whole(cache, name) != digests[name]:
                    os._exit(7)

        pid = fork(work)
        time.sleep(source.uniform(0, options["longest"]))
        os.kill(pid, signal.SIGKILL)
        status = os.waitpid(pid, 0)[1]
        running += os.WIFSIGNALED(status)
        wrong += os.waitstatus_to_exitcode(status) == 7
        failed += os.waitstatus_to_exitcode(status) == 1
    cache = new_cache(options)
    wrong += sum(read_whole(cache, url) != digest for url, digest in digests.items())
    cache.close()
    cache.trim(options.get("bound") or 1 << 60)
    cache.close()
    left = [path.name for path in Path(options["folder"]).iterdir() if path.name.startswith(".")]
    return {"wrong": wrong, "failed": failed, "killed": running, "left": left}


def killed_indexing(options: dict) -> dict:
    """Kill processes while they index shards; then check that all shards read right."""
    source = random.Random(options["seed"])
    folder = Path(options["folder"])
    digests: dict[str, str] = options["digests"]

    def read(path: str) -> str:
        digest = hashlib.md5()
        with ShardList([path], cache_dir=folder, transformations="bytes") as dataset:
            for sample in dataset:
                digest.update(sample[".bin"])
        return digest.hexdigest()

    # As long as it takes on this machine, so that most kills hit, on a fast one as on a slow one.
    began = time.monotonic()
    os.waitpid(fork(lambda: read(min(digests))), 0)
    longest = time.monotonic() - began
    running = wrong = 0
    for number in range(options["kills"]):
        path = source.choice(sorted(digests))
        if number % 2 == 0:
            for sidecar in folder.glob("*.widx"):
                sidecar.unlink()  # else all would soon be there
        pid = fork(lambda path=path: read(path) == digests[path] or os._exit(7))
        time.sleep(source.uniform(0, longest))
        os.kill(pid, signal.SIGKILL)
        status = os.waitpid(pid, 0)[1]
        running += os.WIFSIGNALED(status)
        wrong += os.waitstatus_to_exitcode(status) > 0
    wrong += sum(read(path) != digest for path, digest in digests.items())
    ShardCache(folder).trim(1 << 60)
    left = [path.name for path in folder.iterdir() if path.name.startswith(".")]
    return {"wrong": wrong, "killed": running, "left": left}


def soak(options: dict) -> dict:
    """Read random shards in several processes, and check that the bound holds."""
    digests: dict[str, str] = options["digests"]

    def read(seed: int) -> None:
        source = random.Random(seed)
        cache = new_cache(options)
        for _ in range(options["reads"]):
            url = source.choice(sorted(digests))
            if read_whole(cache, url) != digests[url]:
                os._exit(7)

    children = [fork(lambda seed=seed: read(seed)) for seed in range(options["processes"])]
    most, statuses = 0, []
    while children:
        most = max(most, held_nbytes(Path(options["folder"])))
        time.sleep(0.002)
        ended, status = os.waitpid(-1, os.WNOHANG)
        if ended:
            children.remove(ended)
            statuses.append(os.waitstatus_to_exitcode(status))
    return {"statuses": statuses, "most": most}


def robbed(options: dict) -> dict:
    """Read samples while another process removes shards that may be in use."""
    # How many samples each process has read, and last of all whether to go on.
    counts = memoryview(mmap.mmap(-1, 8 * (options["processes"] + 1))).cast("q")
    counts[-1] = 1
    rows = [(url, options["nsamples"]) for url in options["digests"]]

    def read(seed: int) -> None:
        source = random.Random(seed)
        with ShardList(
            rows, cache_dir=options["folder"], lru_size=1, transformations="bytes"
        ) as dataset:
            while counts[-1]:
                index = source.randrange(len(dataset))
                sample = dataset[index]
                shard = options["digests"][sample["__shard__"]]
                if hashlib.md5(sample[".bin"]).hexdigest() != shard[sample["__shardindex__"]]:
                    os._exit(7)
                counts[seed] += 1

    children = [fork(lambda seed=seed: read(seed)) for seed in range(options["processes"])]
    removed, before = 0, [0] * options["processes"]
    statuses: list[int] = []
    while children:
        ended, status = os.waitpid(-1, os.WNOHANG)
        if ended:
            children.remove(ended)
            statuses.append(os.waitstatus_to_exitcode(status))
        # Each reads something in between, else one on a busy machine might never have a shard.
        elif removed < options["removals"] and all(map(operator.gt, counts[:-1], before)):
            before = counts[:-1].tolist()
            shards = sorted(Path(options["folder"]).glob("*.tar"))
            if shards:
                random.Random(removed).choice(shards).unlink(missing_ok=True)
                removed += 1
        counts[-1] = int(removed < options["removals"] and not any(statuses))
        time.sleep(0.001)
    return {"statuses": statuses}


def held_nbytes(folder: Path) -> int:
    """Return the size of all files in the folder; 0 if some came or went while they were listed.

    A file that was evicted after it was counted would be counted with the one in its place. What is
    listed twice alike was there at one time.
    """
    first, second = sizes_in(folder), sizes_in(folder)
    return sum(first.values()) if first == second else 0


def sizes_in(folder: Path) -> dict[int, int]:
    """Return the size of each file; one that is renamed meanwhile counts once."""
    sizes: dict[int, int] = {}
    for path in folder.glob("*"):
        try:
            status = path.stat()
        except FileNotFoundError:
            continue
        if path.is_file():
            sizes[status.st_ino] = status.st_size
    return sizes


if __name__ == "__main__":
    given = json.loads(sys.argv[2])
    actions = {"crowd": crowd, "killed": killed, "soak": soak, "robbed": robbed}
    actions["killed_indexing"] = killed_indexing
    json.dump(actions[sys.argv[1]](given), sys.stdout)
