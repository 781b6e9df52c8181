"""Scanning many shards at once, in interpreters of their own.

The scan is work for the processor, so threads would take turns. The usual pools of processes are
no help inside a library: forking a program that has threads may hang it, and spawning runs its
main script again. So a scanner is a fresh `python -P -m wids.reading.scanners` that reads one job a
line from its standard input, writes the shard's sidecar, and answers with one line.
"""

import json
import queue
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from wids.base.processes import fresh_python
from wids.errors import WidsError
from wids.log import logger
from wids.tar.tarindex import TarIndex

__all__ = ["Scanners", "serve"]


class Scanners:
    """A few scanner processes, started when needed; used by threads, one job each at a time.

    A scanner takes a third of a second to start, so shards below `worth_nbytes` are left alone.

    A scanner only writes sidecars: whatever goes wrong in one is found again, and told, when the
    shard is opened. So a machine where no scanner can be started loses speed and nothing else.

    >>> with Scanners(2) as scanners:
    ...     scanners.scan(Path(__file__), Path("a.widx"), {})  # too small to be worth it
    """

    # At a microsecond a member, 256 MB of small ones take about as long as a scanner to start.
    def __init__(self, most: int, worth_nbytes: int = 1 << 28) -> None:
        self._worth_nbytes = worth_nbytes
        self._processes: list[subprocess.Popen[str]] = []
        # Holds a place for each scanner that may run: its process once it has been started.
        # Last in, first out: as few are started as there is work for.
        self._idle: queue.LifoQueue[subprocess.Popen[str] | None] = queue.LifoQueue()
        for _ in range(most):
            self._idle.put(None)

    def scan(self, tar: Path, sidecar: Path, options: Mapping[str, Any]) -> None:
        """Have a shard indexed, and wait until its sidecar is there; failures are only logged.

        Args:
            tar: The shard.
            sidecar: Where its tar index belongs.
            options: Keyword arguments of `TarIndex.open`.
        """
        if tar.stat().st_size < self._worth_nbytes:
            return
        process = self._idle.get()
        try:
            process = process or self._start()
            job = json.dumps({"tar": str(tar), "sidecar": str(sidecar), "options": dict(options)})
            answer = _ask(process, job)
            if answer:
                logger.info("%s: not indexed ahead: %s", tar, answer)
        except OSError as error:
            logger.info("%s: not indexed ahead: %s", tar, error)
        finally:
            self._idle.put(process)

    def _start(self) -> subprocess.Popen[str]:
        command, environment = fresh_python("-m", "wids.reading.scanners")
        process = subprocess.Popen(  # noqa: S603 (this very interpreter)
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        self._processes.append(process)
        return process

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for process in self._processes:
            process.communicate()  # closes its input, which ends it


def _ask(process: subprocess.Popen[str], job: str) -> str:
    if process.stdin is None or process.stdout is None:
        raise OSError("the scanner has no pipes")
    process.stdin.write(job + "\n")
    process.stdin.flush()
    answer = process.stdout.readline()
    if not answer:
        raise OSError("the scanner ended")
    return str(json.loads(answer))


def serve(jobs: IO[str], answers: IO[str]) -> None:
    """Index one shard for each line of `jobs`; answer "" or what went wrong.

    >>> import io
    >>> answers = io.StringIO()
    >>> serve(io.StringIO('{"tar": "no.tar", "sidecar": "no.widx", "options": {}}'), answers)
    >>> "no.tar" in answers.getvalue()
    True
    """
    for line in jobs:
        job = json.loads(line)
        try:
            TarIndex.open(job["tar"], job["sidecar"], **job["options"])
            problem = ""
        except (WidsError, OSError) as error:
            problem = str(error)
        answers.write(json.dumps(problem) + "\n")
        answers.flush()


if __name__ == "__main__":
    serve(sys.stdin, sys.stdout)
