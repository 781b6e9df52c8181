"""Source of objects for forked processes: a helper process opens them and sends the bytes by pipe.

obstore runs threads of its own. A fork does not copy threads, so every call in the child would
block for ever; and the workers of a DataLoader may be forked from a process that has read its spec
from a bucket. The helper process is a new interpreter that shares no state with the forked one.

A request is a line of JSON. The response is a line of JSON, followed by pieces, each preceded by
its length; an empty piece is the last one. If the object breaks off, the length is 0xFFFFFFFF, and
a line with the error follows. The pieces of a listing are its pages, as JSON.
"""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import threading
from contextlib import closing, suppress
from dataclasses import asdict
from typing import IO, TYPE_CHECKING, Any

from wids.base.processes import fresh_python
from wids.base.urls import display_url
from wids.errors import FetchError
from wids.fetching.objectstore import ObjectSource
from wids.fetching.transport import (
    AbsentError,
    ChangedError,
    FetchPolicy,
    ListedFile,
    ListingPage,
    ServerBusyError,
    Stream,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from wids.fetching.transport import Source

__all__ = ["HelpedSource", "object_source", "serve"]

_LENGTH = struct.Struct(">I")
_BROKEN = 0xFFFFFFFF
_MOST_HELPERS = 16  # processes at once, as many as segments of a large file
_SAID = ("start", "size", "validator", "content_type", "ranges", "delimited", "stop")
_MAIN = "from wids.fetching.objecthelper import main; main()"


class _Ancestors:
    """Record of whether obstore was loaded in an ancestor of this forked process."""

    loaded = False


def _note_fork() -> None:
    _Ancestors.loaded = _Ancestors.loaded or "obstore" in sys.modules


if hasattr(os, "register_at_fork"):  # where processes fork
    os.register_at_fork(after_in_child=_note_fork)


def object_source(policy: FetchPolicy) -> Source:
    """Return a source of objects that works in this process, forked or not.

    Args:
        policy: Time limits.
    """
    return HelpedSource(policy) if _Ancestors.loaded else ObjectSource(policy)


class HelpedSource:
    """Source that opens objects through helper processes, one for each open stream.

    Args:
        policy: Time limits.
    """

    def __init__(self, policy: FetchPolicy) -> None:
        self._policy = policy
        self._idle: list[_Helper] = []
        # A pool of ranges asks for far more streams at once than there should be processes.
        self._turns = threading.BoundedSemaphore(_MOST_HELPERS)

    def close(self) -> None:
        """End the idle helpers."""
        while self._idle:
            self._idle.pop().close()

    def open(
        self, url: str, start: int = 0, stop: int | None = None, *, validator: str | None = None
    ) -> Stream:
        """Request the bytes `[start, stop)` of an object; see `Source.open`.

        Raises:
            FetchError: The object does not exist, access is denied, or obstore is missing.
            ChangedError: The range lies outside the object.
            ConnectionError: The store did not respond, or asks for a retry.
        """
        request = {"url": url, "start": start, "stop": stop, "validator": validator}
        said, reply = self._ask(request)
        return Stream(**said, chunks=reply.chunks(), close=reply.close)

    def pin(self, url: str) -> str:
        """Return the URL of a folder as it is, since buckets have no revisions."""
        return url

    def pages(self, url: str, cursor: str | None = None) -> Iterator[ListingPage]:
        """List the objects in a folder of a bucket; see `Lister.pages`.

        Raises:
            FetchError: There is no such bucket, access is denied, or obstore is missing.
            ConnectionError: The store did not respond, or asks for a retry.
        """
        _, reply = self._ask({"url": url, "cursor": cursor})
        with closing(reply):
            for page in reply.chunks():
                files, following = json.loads(page)
                yield ListingPage([ListedFile(*each) for each in files], following)

    def _ask(self, request: dict[str, Any]) -> tuple[dict[str, Any], _Reply]:
        self._turns.acquire()
        try:
            return self._ask_helper(request)
        except BaseException:
            self._turns.release()
            raise

    def _ask_helper(self, request: dict[str, Any]) -> tuple[dict[str, Any], _Reply]:
        try:
            helper = self._idle.pop()  # atomic: several threads open objects
        except IndexError:
            helper = _Helper(self._policy)
        try:
            said = helper.ask(request)
        except (ChangedError, FetchError):
            self._idle.append(helper)  # the request failed, not the helper
            raise
        # Its pipe may hold half a request, so the helper cannot be used again.
        except BaseException:
            helper.close()
            raise
        return said, _Reply(helper, self._idle, self._turns)


class _Reply:
    """Body of one response; its helper becomes idle again once all bytes are read."""

    def __init__(
        self, helper: _Helper, idle: list[_Helper], turns: threading.BoundedSemaphore
    ) -> None:
        self._helper: _Helper | None = helper
        self._idle = idle
        self._turns = turns

    def chunks(self) -> Iterator[bytes]:
        while self._helper is not None:
            chunk = self._helper.chunk()
            if not chunk:
                self._idle.append(self._helper)
                self._helper = None
                self._turns.release()
                return
            yield chunk

    def close(self) -> None:
        # A running transfer can be stopped only by ending its helper.
        helper, self._helper = self._helper, None
        if helper is not None:
            helper.close()
            self._turns.release()


class _Helper:
    """Helper process that serves one request at a time."""

    def __init__(self, policy: FetchPolicy) -> None:
        command, environment = fresh_python("-c", _MAIN, json.dumps(asdict(policy)))
        self._process = subprocess.Popen(  # noqa: S603 (this very interpreter)
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
        )
        self._requests: IO[bytes] = _there(self._process.stdin)
        self._answers: IO[bytes] = _there(self._process.stdout)

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        try:
            self._requests.write(json.dumps(request).encode() + b"\n")
            self._requests.flush()
        except OSError as error:
            raise ConnectionError(f"the helper process has ended: {error}") from error
        return self._line()

    def chunk(self) -> bytes:
        (length,) = _LENGTH.unpack(self._exactly(_LENGTH.size))
        if length == _BROKEN:
            self._line()
        return self._exactly(length)

    def close(self) -> None:
        with suppress(OSError):
            self._requests.close()
        self._process.kill()
        self._answers.close()
        self._process.wait()

    def _line(self) -> dict[str, Any]:
        line = self._answers.readline()
        if not line.endswith(b"\n"):
            raise ConnectionError("the helper process has ended")
        said: dict[str, Any] = json.loads(line)
        if "refused" in said:
            raise (AbsentError if said.get("absent") else FetchError)(said["refused"])
        if "changed" in said:
            raise ChangedError(said["changed"])
        if "busy" in said:
            raise ServerBusyError(said["busy"], crowded=said["crowded"])
        if "broken" in said:
            raise ConnectionError(said["broken"])
        return said

    def _exactly(self, nbytes: int) -> bytes:
        data = self._answers.read(nbytes)
        if len(data) != nbytes:
            raise ConnectionError("the helper process has ended")
        return data


def _there(pipe: IO[bytes] | None) -> IO[bytes]:
    if pipe is None:
        raise ConnectionError("the helper process has no pipe")
    return pipe


def serve(requests: IO[bytes], answers: IO[bytes], source: ObjectSource) -> None:
    """Serve requests until the stream of requests ends.

    Args:
        requests: Stream of requests, one line of JSON each.
        answers: Stream for the responses.
        source: Source that opens the objects.
    """

    def say(**fields: Any) -> None:
        answers.write(json.dumps(fields).encode() + b"\n")
        answers.flush()

    for line in requests:
        request = json.loads(line)
        url = request.pop("url")
        try:
            if "cursor" in request:
                say()
                _send((json.dumps(page).encode() for page in source.pages(url, **request)), answers)
                continue
            with closing(source.open(url, **request)) as stream:
                say(**{name: getattr(stream, name) for name in _SAID})
                _send(stream.chunks, answers)
        except FetchError as error:
            say(refused=str(error), **({"absent": True} if isinstance(error, AbsentError) else {}))
        except ChangedError as error:
            say(changed=str(error))
        except BrokenPipeError:
            return  # the other process has closed its end
        except ServerBusyError as error:
            say(busy=str(error), crowded=error.crowded)
        except ConnectionError as error:
            say(broken=str(error))
        except Exception as error:  # noqa: BLE001 (every error is reported to the other process)
            say(refused=f"{display_url(url)}: {error}")


def _send(chunks: Iterator[bytes], answers: IO[bytes]) -> None:
    """Send the pieces of an object, and an error mark if it breaks off."""
    try:
        for chunk in chunks:
            answers.write(_LENGTH.pack(len(chunk)))
            answers.write(chunk)
        answers.write(_LENGTH.pack(0))
        answers.flush()
    except BrokenPipeError:
        raise
    except Exception:  # any error: without the mark, the line about it would be read as a piece
        answers.write(_LENGTH.pack(_BROKEN))
        raise


def main() -> None:
    """Run the helper process: requests on standard input, responses on standard output."""
    policy = FetchPolicy(**json.loads(sys.argv[1]))
    with suppress(BrokenPipeError, KeyboardInterrupt):
        serve(sys.stdin.buffer, sys.stdout.buffer, ObjectSource(policy))
    # Skips the interpreter's final flush, which fails if the pipe is closed.
    os._exit(0)
