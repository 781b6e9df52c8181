"""Tries variants of attacks, each in a process with bounded memory and time, and counts results.

A variant may give the right samples, samples that nothing can tell from right ones ("bounded"), or
one error of the library ("refused"). All else is a fault: another exception, wrong samples, a
crash, more memory or time than allowed, a file that is left behind, a descriptor that stays open.
"""

import gc
import json
import os
import random
import resource
import select
import shutil
import signal
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wids.errors import WidsError

LIMIT = 1 << 30  # bytes of memory beyond what the imports take
DEADLINE_SECONDS = 30.0  # of processor time, since others may have the processor meanwhile
HANGING_SECONDS = 240.0
CLOSING_SECONDS = 60.0
BATCH = 50  # variants in one process
MAX_MESSAGE = 20_000  # characters; a location may have 8,192, and be shown twice
MAX_CACHED = 256 << 20  # bytes that may stay in the cache
RIGHT, BOUNDED, REFUSED, FAULT = "right", "bounded", "refused", "fault"


class Wrong(Exception):  # noqa: N818 (it is no error of the library, but a fault that was found)
    """The library did what it must not do."""


@dataclass(frozen=True)
class Scene:
    """Where one variant is made and tried.

    Attributes:
        chance: Source of all that varies, the same for the same family, seed and number.
        folder: Empty folder for shards and specs. The library must leave no file there.
        cache: Cache folder.
        cleanup: Stops servers.
        shared: What `Family.setup` gave.
    """

    chance: random.Random
    folder: Path
    cache: Path
    cleanup: ExitStack
    shared: Any

    def write(self, name: str, content: bytes) -> Path:
        """Write a file of the attacker, and return its path."""
        path = self.folder / name
        path.write_bytes(content)
        return path


# Makes a variant, and returns what tries it; that returns RIGHT or BOUNDED, or raises.
Attack = Callable[[Scene], Callable[[], str]]


@dataclass(frozen=True)
class Family:
    """Attacks of one family; variant `n` is of the `n`-th kind, and so on in turn.

    Attributes:
        kinds: The attacks, by the name of their kind.
        setup: Makes what all variants of one process share; its open sockets are no leak.
        usual: Number of variants in the usual run of the tests.
    """

    kinds: Mapping[str, Attack]
    usual: int
    setup: Callable[[Path], AbstractContextManager[Any]] = lambda _: nullcontext()


@dataclass
class Tally:
    """What became of the variants of one family."""

    counts: Counter[str] = field(default_factory=Counter)
    kinds: dict[str, Counter[str]] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    grown_nbytes: int = 0
    slowest_seconds: float = 0.0
    slowest: str = ""

    def add(self, kind: str, number: int, result: Mapping[str, Any]) -> None:
        """Count one variant."""
        self.counts[result["outcome"]] += 1
        self.kinds.setdefault(kind, Counter())[result["outcome"]] += 1
        self.grown_nbytes = max(self.grown_nbytes, result.get("grown", 0))
        if result.get("seconds", 0.0) > self.slowest_seconds:
            self.slowest_seconds, self.slowest = result["seconds"], f"{kind} {number}"
        if result["outcome"] == FAULT:
            self.faults.append(f"{kind} {number}: {result['what']}")


def run(name: str, family: Family, numbers: Iterable[int], seed: int, folder: Path) -> Tally:
    """Try variants of a family; `folder` is used for files and left empty."""
    tally, kinds = Tally(), list(family.kinds)
    waiting = list(numbers)
    while waiting:
        batch = _Batch(name, family, waiting[:BATCH], seed, folder / f"{name}-{os.getpid()}")
        for number, result in batch.results():
            tally.add(kinds[number % len(kinds)], number, result)
            waiting.remove(number)
        if batch.failed_outside is not None:
            tally.faults.append(batch.failed_outside)
            tally.counts[FAULT] += 1
    return tally


class _Batch:
    """One process that tries some variants; it ends early where one of them kills or hangs it."""

    def __init__(
        self, name: str, family: Family, numbers: list[int], seed: int, folder: Path
    ) -> None:
        self._numbers = numbers
        self._folder = folder
        self.failed_outside: str | None = None
        self._pipe, into = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            os.close(self._pipe)
            _child(name, family, numbers, seed, folder, into)
        os.close(into)

    def results(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield the results as they come; a variant that ends the process is a fault."""
        try:
            with os.fdopen(self._pipe, "rb", buffering=0) as pipe:
                for number in self._numbers:
                    line = self._read_line(pipe.fileno())
                    if line is None:
                        yield number, _fault(f"took over {DEADLINE_SECONDS:.0f} s")
                        return
                    if not line:
                        yield number, _fault(f"ended its process: {self._end()}")
                        return
                    yield number, json.loads(line)
                line = self._read_line(pipe.fileno())
                if line != b"ended\n":
                    self.failed_outside = f"the end of {self._numbers}: {line!r}"
        finally:
            self._end()
            shutil.rmtree(self._folder, ignore_errors=True)

    def _read_line(self, descriptor: int) -> bytes | None:
        """Return a line of the pipe, empty at its end, None if none comes in time."""
        start, used, line = time.monotonic(), self._processor_seconds(), b""
        while not line.endswith(b"\n"):
            if not select.select([descriptor], [], [], 1.0)[0]:
                waited = time.monotonic() - start
                if waited > HANGING_SECONDS or self._processor_seconds() - used > DEADLINE_SECONDS:
                    return None
                continue
            piece = os.read(descriptor, 1)
            if not piece:
                return b""
            line += piece
        return line

    def _processor_seconds(self) -> float:
        """Return the processor time of the child so far."""
        fields = Path(f"/proc/{self._pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def _end(self) -> str:
        """End the process group of the child, and return how the child ended."""
        if self._pid:
            with suppress(ProcessLookupError):
                os.killpg(self._pid, signal.SIGKILL)
            _, status = os.waitpid(self._pid, 0)
            self._pid = 0
            self._status = str(os.waitstatus_to_exitcode(status))
        return self._status


def _fault(what: str) -> dict[str, Any]:
    return {"outcome": FAULT, "what": what}


def _child(
    name: str, family: Family, numbers: list[int], seed: int, folder: Path, into: int
) -> None:
    """Try the variants, write a line on each, and end the process."""
    os.setpgid(0, 0)
    kinds = list(family.kinds.values())
    status = 1
    try:
        folder.mkdir(parents=True)
        gc.freeze()  # so that the collections between the variants are fast
        with os.fdopen(into, "wb", buffering=0) as pipe:
            with family.setup(folder) as shared:
                _limit_memory()
                for number in numbers:
                    chance = random.Random(f"{name}/{seed}/{number}")
                    kind = kinds[number % len(kinds)]
                    result = _result(kind, chance, folder, shared)
                    pipe.write(json.dumps(result).encode() + b"\n")
            pipe.write(b"ended\n")
        status = 0
    finally:
        if status:
            traceback.print_exc()
        os._exit(status)


def _limit_memory() -> None:
    """Allow the process LIMIT bytes more of private memory than it has now.

    This counts what is allocated and not yet touched, but neither mapped files nor the address
    space that a thread's stack and heap reserve.
    """
    used = _status_nbytes("VmData")
    resource.setrlimit(resource.RLIMIT_DATA, (used + LIMIT, used + LIMIT))


def _status_nbytes(name: str) -> int:
    """Return a number of bytes that the kernel counts for this process."""
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith(name))


def _reset_peak() -> int:
    """Let the largest resident size be counted anew, and return the present one."""
    Path("/proc/self/clear_refs").write_text("5")
    return _status_nbytes("VmHWM")


def _result(attack: Attack, chance: random.Random, folder: Path, shared: Any) -> dict[str, Any]:
    """Make and try a variant, and return what became of it."""
    own, cache = folder / "own", folder / "cache"
    own.mkdir()
    os.environ["WIDS_CACHE"] = str(cache)
    opened = _open_files()
    try:
        with ExitStack() as cleanup:
            attempt = attack(Scene(chance, own, cache, cleanup, shared))
            made = _files(own)
            before, start = _reset_peak(), time.monotonic()
            outcome = _outcome(attempt)
            seconds, grown = time.monotonic() - start, _status_nbytes("VmHWM") - before
            # What holds the variant's own data must not count as what the library holds.
            del attempt
        _check_nothing_is_left(own, made, cache)
        _check_closed(opened, sockets=shared is None)
    except BaseException:  # noqa: BLE001 (whatever it is, it is a fault, and the others go on)
        return _fault(traceback.format_exc(limit=-12)[-4000:])
    finally:
        for path in (own, cache):
            shutil.rmtree(path, ignore_errors=True)
    return {"outcome": outcome, "seconds": seconds, "grown": grown}


def _outcome(attempt: Callable[[], str]) -> str:
    try:
        return attempt()
    except WidsError as error:
        if len(error.args) != 1 or not isinstance(error.args[0], str) or not error.args[0]:
            raise Wrong(
                f"the error has other arguments than a message: {error.args!r:.500}"
            ) from error
        if len(error.args[0]) > MAX_MESSAGE:
            raise Wrong(f"the message has {len(error.args[0])} characters") from error
        return REFUSED


def _files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def _check_nothing_is_left(own: Path, made: list[str], cache: Path) -> None:
    """Raise Wrong for a new file beside the shards, or an unfinished or large one in the cache."""
    left = sorted(set(_files(own)) - set(made))
    if left:
        raise Wrong(f"files were left: {left}")
    # A thread flushes what was published, and replaces its record after that.
    deadline = time.monotonic() + CLOSING_SECONDS
    while unfinished := _unfinished(cache):
        if time.monotonic() > deadline:
            raise Wrong(f"unfinished files were left in the cache: {unfinished}")
        time.sleep(0.01)
    kept = [path for path in cache.rglob("*") if path.is_file()]
    nbytes = sum(path.stat().st_blocks * 512 for path in kept)
    if nbytes > MAX_CACHED:
        raise Wrong(f"{nbytes} bytes were left in the cache")


def _unfinished(cache: Path) -> list[str]:
    return [path.name for path in cache.rglob("*") if path.suffix in {".part", ".tmp", ".state"}]


def _open_files() -> Counter[str]:
    """Count the open descriptors by what they refer to."""
    found: Counter[str] = Counter()
    for link in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            target = str(link.readlink())
            # Sockets have numbers, which a closed and a new one do not share.
            found[
                target.partition("[")[0] if target.startswith(("socket:", "pipe:")) else target
            ] += 1
    return found


def _check_closed(before: Counter[str], *, sockets: bool) -> None:
    """Raise Wrong for descriptors that were not open before."""
    gc.collect()
    # A server of a variant lives in this process too, and closes its side a little later.
    deadline = time.monotonic() + CLOSING_SECONDS
    while True:
        new = _open_files() - before
        left = {name: count for name, count in new.items() if sockets or name.startswith("/")}
        # The object-store library opens its event loop at its first use, once for a process.
        loops = ("anon_inode:[event", "/proc/")
        left = {name: count for name, count in left.items() if not name.startswith(loops)}
        if not left:
            return
        if time.monotonic() > deadline:
            raise Wrong(f"descriptors stay open: {left}")
        time.sleep(0.005)
