"""`Fetcher`: reads, lists and downloads URLs, with retries and resumption."""

from __future__ import annotations

import os
import threading
import time
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from wids.base.threads import DaemonThreadPool, result_of
from wids.base.urls import check_url, display_url, is_local, scheme_of
from wids.errors import FetchError, IntegrityError
from wids.fetching.hosts import HostConnections
from wids.fetching.http import HttpSource
from wids.fetching.hub import HubSource
from wids.fetching.listing import Listing
from wids.fetching.localfile import MAX_DOCUMENT_NBYTES, read_local
from wids.fetching.objecthelper import object_source
from wids.fetching.objectstore import OBJECT_SCHEMES
from wids.fetching.pipe import PipeSource
from wids.fetching.responses import (
    FileVersion,
    check_length,
    check_range,
    coalesce,
    may_be_one,
    read_bounded,
    skip_known,
    unlike_promised,
    whole_file,
)
from wids.fetching.split import LEAST_NBYTES, SegmentFailedError, SplitDownload
from wids.fetching.transport import (
    AnsweredError,
    BeyondEndError,
    ChangedError,
    ExistsError,
    FetchPolicy,
    Lister,
    RangesNotServedError,
    ReplacedError,
    ServerBusyError,
    SilentServerError,
    Sink,
    Source,
    StoppedError,
)
from wids.log import logger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from wids.fetching.blocks import Scattered
    from wids.fetching.hosts import Connection
    from wids.fetching.partfile import PartFile
    from wids.fetching.transport import DownloadObserver, Stream

__all__ = ["BeyondEndError", "FetchPolicy", "Fetcher", "RangesNotServedError", "open_url"]

T = TypeVar("T")
_OVERLAP_NBYTES = 512  # fetched again on resuming, to check that the file is the same
_PROGRESS_NBYTES = 1 << 16  # a try that receives this many bytes does not count as failed
# A spec of a million shards takes 200 MB; a server may send anything.
_SHOWN_NBYTES = 80
_POLL_SECONDS = 0.05

# URL scheme to the factory of its `Source`. A new scheme is a line here.
_SOURCES: dict[str, Callable[[FetchPolicy], Source]] = {
    "http": HttpSource,
    "https": HttpSource,
    "hf": HubSource,
    **dict.fromkeys(OBJECT_SCHEMES, object_source),
    "pipe": PipeSource,
}

# How to put files where no source puts them.
_UPLOADED_BY = {
    "hf": "by `hf upload OWNER/NAME FOLDER --repo-type dataset` (huggingface_hub)",
    # Its gateways redirect, which obstore does not follow with a body.
    "ais": "by `ais put`",
}


class Fetcher:
    """Fetches URLs of all schemes; connections are kept by process and are not pickled.

    Args:
        policy: Time limits, tries, connections.
        allow_pipe: Whether `pipe:` URLs may start commands.

    >>> Fetcher().read("pipe:echo hello")
    Traceback (most recent call last):
    wids.errors.FetchError: pipe:echo ...: commands run only with allow_pipe=True, ...
    """

    def __init__(self, policy: FetchPolicy | None = None, *, allow_pipe: bool = False) -> None:
        self.policy = policy or FetchPolicy()
        self.allow_pipe = allow_pipe
        # By process id: a forked child must use neither connections nor threads of its parent.
        self._sources: dict[tuple[int, str], Source] = {}
        self._pools: dict[int, DaemonThreadPool] = {}
        self._closings = 0

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_sources": {}, "_pools": {}}

    def make_ready(self, urls: Iterable[str]) -> None:
        """Import the modules that these URLs need, so that no other thread imports them.

        If a process forks while one of its threads imports a module, the child inherits the locked
        import lock of that module: a worker of a DataLoader would hang.

        Args:
            urls: At least one URL of each scheme. Unsupported URLs are skipped.
        """
        for scheme in {scheme_of(url) for url in urls if not is_local(url)}:
            with suppress(FetchError):
                self._source(f"{scheme}://host/path")

    def close(self) -> None:
        """Close the connections of this process; the next use makes new ones.

        What other threads are fetching meanwhile fails with a `FetchError`.
        """
        self._closings += 1  # first, so that a thread that loses its connection knows why
        pool = self._pools.pop(os.getpid(), None)
        if pool is not None:
            pool.close()
        for key in [key for key in self._sources if key[0] == os.getpid()]:
            self._sources.pop(key).close()

    def read(self, url: str, max_nbytes: int = MAX_DOCUMENT_NBYTES) -> bytes:
        """Return the content of a small document.

        Raises:
            FetchError: The server refuses, all tries failed, or the document is larger than
                `max_nbytes`.
        """

        def read_once() -> bytes:
            with self._open(url) as stream:
                return read_bounded(url, stream, max_nbytes)

        return self._tried(url, read_once, lambda: 0)

    def list_folder(self, url: str) -> Listing:
        """List all files in a folder of a bucket or of a repository of the hub.

        Args:
            url: The folder. A revision of the hub is resolved once, so that all files are of one
                commit.

        Raises:
            FetchError: Its scheme has no listings, the server refuses or lists more than
                `policy.most_listed` files, or all tries failed.
        """
        source = self._source(url)
        if not isinstance(source, Lister):
            raise FetchError(
                f"{display_url(url)}: a server of {scheme_of(url)}: URLs cannot be asked which "
                "files it has; name a spec, or the shards, such as train-{000..146}.tar"
            )
        folder = self._tried(url, lambda: source.pin(url), lambda: 0)
        listing = Listing(folder, self.policy.most_listed)

        def read_on() -> None:
            with self._connection(url, lambda: None):
                listing.read(source)

        # A page is progress, like many bytes.
        self._tried(url, read_on, lambda: listing.num_pages * _PROGRESS_NBYTES)
        return listing

    def sink(self, url: str) -> Sink:
        """Return the source of a URL, to which files can be put.

        Raises:
            FetchError: No file can be put there.

        >>> Fetcher().sink("https://host/sets/")
        Traceback (most recent call last):
        wids.errors.FetchError: https://host/sets/: files can be put into folders and ...
        """
        source = self._source(url)
        tool = _UPLOADED_BY.get(scheme_of(url))
        if tool is not None or not isinstance(source, Sink):
            raise FetchError(
                f"{display_url(url)}: files can be put into folders and into buckets (s3:, gs:, "
                "az:) only; write them to a folder, and upload that "
                f"{tool or 'by the tool of the server'}"
            )
        return source

    def put(self, url: str, file: Path, *, replace: bool = False) -> None:
        """Put a file to a URL of a bucket, whole or not at all.

        Args:
            url: The URL.
            file: The file.
            replace: Replace what is there.

        Raises:
            ExistsError: There is another file already, and it is not to be replaced.
            FetchError: No file can be put there, the server refuses, or all tries failed.
        """
        sink = self.sink(url)

        def put_once() -> None:
            with self._connection(url, lambda: None):
                sink.put(url, file, replace=replace)

        try:
            self._tried(url, put_once, lambda: 0)
        except ExistsError:
            # A try whose response was lost may have put this very file there.
            if self.read(url, file.stat().st_size) != file.read_bytes():
                raise

    def download(
        self,
        url: str,
        part: PartFile,
        observer: DownloadObserver,
    ) -> Stream:
        """Download a file to a part; each try continues where the part ends.

        Args:
            url: The file.
            part: The partial file; its content is kept if the server still has the same file.
            observer: Follows the download, and may stop it.

        Returns:
            The last response, closed, with the attributes of the file.

        Raises:
            FetchError: The server refuses, or all tries failed.
            IntegrityError: The size is not the promised one.
            CacheError: The disk is full.
            StoppedError: The observer stopped it.
        """
        parallel, reached = True, part.nbytes

        def check_stopped() -> None:
            if observer.stopped():
                raise StoppedError(display_url(url))

        def receive() -> Stream:
            nonlocal parallel
            try:
                return self._receive(url, part, observer, check_stopped, parallel=parallel)
            except (ChangedError, RangesNotServedError, ReplacedError) as error:
                part.restart()
                parallel = False  # several replicas disagree, but one connection reads from one
                raise ConnectionError(str(error)) from error
            except SegmentFailedError:
                parallel = False  # the part is right as far as it goes
                raise

        def progress() -> int:
            """Return the most bytes that were there so far; repeated ones are no progress."""
            nonlocal reached
            reached = max(reached, part.nbytes)
            return reached

        return self._tried(url, receive, progress, check_stopped)

    def read_ranges(
        self,
        url: str,
        ranges: Sequence[tuple[int, int]],
        *,
        max_gap_nbytes: int = 16 << 10,
        version: FileVersion | None = None,
    ) -> list[bytes]:
        """Return byte ranges of one version of a file, in a few concurrent requests.

        At most `policy.connections` requests run at once, for any number of calling threads.

        Args:
            url: The file.
            ranges: Half-open byte ranges in any order.
            max_gap_nbytes: Ranges with no more unwanted bytes between them share a request.
            version: Version of the file that the bytes must come from, shared by several calls; by
                default the version of the first response.

        Returns:
            The bytes of each range, in the order given.

        Raises:
            RangesNotServedError: The server sends only whole files.
            ReplacedError: The server has another version of the file.
            SizeMismatchError: The file is too short, or its size is not the expected one.
            FetchError: The server refuses, or all tries failed.
        """
        spans = coalesce(ranges, max_gap_nbytes, self.policy.segment_nbytes)
        self._source(url)  # before the threads start, which would each create one
        found = [b""] * len(ranges)
        wanted = _Wanted(url)
        transfer = _Transfer(url, version or FileVersion(), wanted.check)
        bodies = [self._pool.submit(self._span, transfer, span.start, span.stop) for span in spans]
        try:
            for span, body in zip(spans, bodies, strict=True):
                data = result_of(body)
                for number in span.members:
                    start, stop = ranges[number]
                    found[number] = bytes(memoryview(data)[start - span.start : stop - span.start])
        finally:
            for body in bodies:
                body.cancel()  # useless once another has failed
            wanted.end()
        return found

    def would_another_help(self, url: str) -> bool:
        """Return whether a further connection to the host of a URL makes the transfer faster.

        >>> Fetcher().would_another_help("https://host.invalid/a.tar")
        True
        """
        return HostConnections.of_process().would_help(url, self.policy)

    @property
    def _pool(self) -> DaemonThreadPool:
        """Threads that request ranges, a connection each."""
        # The threads are kept, since new threads and connections take longer than a small range.
        pool = self._pools.get(os.getpid())
        if pool is None:
            made = DaemonThreadPool(self.policy.connections, "wids-ranges")
            pool = self._pools.setdefault(os.getpid(), made)
        return pool

    def _span(self, transfer: _Transfer, start: int, stop: int) -> bytearray:
        try:
            return self._segment(transfer, (start, stop))
        except ChangedError as error:
            raise _beyond_end(transfer.url, start, stop, error) from error

    def _receive(
        self,
        url: str,
        part: PartFile,
        observer: DownloadObserver,
        check_stopped: Callable[[], None],
        *,
        parallel: bool,
    ) -> Stream:
        # Resuming is safe only if a changed file would be noticed.
        if not part.resumable:
            part.restart()
        known = part.tail(_OVERLAP_NBYTES) if part.nbytes else b""
        start = part.nbytes - len(known)
        with self._begun(url, part, start, check_stopped, parallel=parallel) as stream:
            # A 200 in place of a 206 has the whole file, which is of another version.
            same = (stream.size, stream.validator) == (part.size, part.validator) and may_be_one(
                part.weak_etag, stream.weak_etag
            )
            if stream.start != start or (known and not same):
                part.restart()
                known = b""
            if stream.start not in (start, 0):
                raise ConnectionError(f"asked for bytes from {start}, got {stream.start}")
            if stream.start and not known:
                raise ConnectionError("the server has another version of the file than before")
            part.joined |= bool(known) and stream.validator is None
            chunk: bytes | bytearray = b""
            try:
                part.begin(stream.size, stream.validator, stream.weak_etag)
                check_stopped()
                observer.reserve(stream.size)
                chunks = self._chunks(url, stream, check_stopped) if parallel else stream.chunks
                for chunk in skip_known(chunks, known):
                    part.append(chunk)
                    observer.progress(part.nbytes)
                    check_stopped()
            except IntegrityError as error:
                if stream.stop is not None and not known:  # some state other sizes with ranges
                    raise RangesNotServedError(str(error)) from error
                # A wrong size is known before the first byte arrives; the message shows both.
                head = part.head(_SHOWN_NBYTES) or bytes(chunk) or next(stream.chunks, b"")
                raise unlike_promised(error, stream.content_type, head) from None
        if stream.size is not None and part.nbytes != stream.size:
            raise ConnectionError(f"{part.nbytes} of {stream.size} bytes came")
        return stream

    def _begun(
        self,
        url: str,
        part: PartFile,
        start: int,
        check_stopped: Callable[[], None],
        *,
        parallel: bool,
    ) -> Stream:
        """Request a file from `start` on, or only its next bytes if several connections fetch it.

        If a response is left to other connections, bytes that the server has already sent are
        wasted, and its connection cannot be used again.
        """

        def request(stop: int | None = None) -> Stream:
            return self._open(
                url, start, stop, validator=part.validator, check_stopped=check_stopped
            )

        hosts = HostConnections.of_process()
        several = parallel and self.policy.segments > 1
        if not (several and hosts.would_help(url, self.policy, begun=1)):
            return request()
        try:
            stream = request(start + LEAST_NBYTES)
        except ChangedError:
            if start:
                raise
            return request()  # a range lies outside an empty file
        if stream.stop is None or (stream.start == start and _has_version(stream)):
            return stream
        stream.close()
        return request()

    def _chunks(
        self, url: str, stream: Stream, check_stopped: Callable[[], None]
    ) -> Iterator[bytes | bytearray]:
        """Yield the bytes of a stream, over several connections if that is faster."""
        policy, size = self.policy, stream.size
        whole = stream.stop in (None, size)
        if size is None or (whole and size - stream.start <= policy.parallel_nbytes):
            return stream.chunks
        if not stream.ranges or not _has_version(stream) or policy.segments == 1:
            return stream.chunks
        return self._parallel_chunks(url, stream, size, check_stopped)

    def _parallel_chunks(
        self, url: str, stream: Stream, size: int, check_stopped: Callable[[], None]
    ) -> Iterator[bytes | bytearray]:
        wanted, hosts = _Wanted(url), HostConnections.of_process()
        whole = _Transfer(url, FileVersion(), check_stopped)
        whole.version.check(url, stream)
        segments = whole._replace(check_stopped=wanted.check)
        split = SplitDownload(
            stream,
            size,
            self.policy,
            fetch=lambda span, connection: self._segment(segments, span, connection),
            reopen=lambda start, stop: self._reopened(whole, start, stop),
            another=lambda: hosts.another(url, self.policy),
            check_stopped=check_stopped,
        )
        try:
            yield from split.chunks()
        finally:
            wanted.end()

    def _reopened(self, transfer: _Transfer, start: int, stop: int) -> Stream:
        """Return a response with a part of a file of a known version."""
        url, version, check_stopped = transfer
        stream = self._open(
            url, start, stop, validator=version.validator, check_stopped=check_stopped
        )
        try:
            version.check(url, stream)
            check_range(url, stream, (start, stop))
        except BaseException:
            stream.close()
            raise
        return stream

    def _segment(
        self, transfer: _Transfer, span: tuple[int, int], connection: Connection | None = None
    ) -> bytearray:
        """Return the bytes of a half-open span, resuming where a connection broke."""
        data = bytearray()  # it grows with the bytes that come, since a number read may be wrong
        self._fill(transfer, span, data, connection=connection)
        return data

    def read_into(
        self,
        url: str,
        start: int,
        buffer: memoryview | Scattered,
        *,
        version: FileVersion,
        check_stopped: Callable[[], None] = lambda: None,
    ) -> None:
        """Fill a buffer with the bytes of a file from `start` on, by one request.

        It runs in the calling thread; where the connection breaks, the rest is requested again.

        Args:
            url: The file.
            start: First byte.
            buffer: Writable bytes, as many as are wanted.
            version: Version of the file that the bytes must come from, shared by several calls.
            check_stopped: Called while bytes arrive and between two tries; may raise to stop.

        Raises:
            RangesNotServedError: The server sends only whole files.
            ReplacedError: The server has another version of the file.
            SizeMismatchError: The file is too short, or its size is not the expected one.
            FetchError: The server refuses, or all tries failed.
        """
        stop = start + len(buffer)
        try:
            self._fill(_Transfer(url, version, check_stopped), (start, stop), buffer)
        except ChangedError as error:
            raise _beyond_end(url, start, stop, error) from error

    def _fill(
        self,
        transfer: _Transfer,
        span: tuple[int, int],
        buffer: memoryview | bytearray | Scattered,
        *,
        connection: Connection | None = None,
    ) -> None:
        """Fill a buffer with a byte range, resuming where a connection broke.

        Args:
            transfer: The file.
            span: The byte range, half-open.
            buffer: Buffer of the size of the range, or an empty one, which grows.
            connection: Connection that the first try uses; by default each waits for one.
        """
        (url, version, check_stopped), (start, stop) = transfer, span
        came, steps, given = 0, 0, [] if connection is None else [connection]

        def receive_once() -> bool:
            """Receive a response, perhaps of a part; return whether it ended as it should."""
            nonlocal came
            validator = version.validator
            if validator is None:
                came = 0  # without a validator, the rest may be of another version
            position = start + came
            with self._open(
                url,
                position,
                stop,
                validator=validator,
                check_stopped=check_stopped,
                connection=given.pop() if given else None,
            ) as stream:
                version.check(url, stream)
                check_range(url, stream, (position, stop))
                for chunk in stream.chunks:
                    check_stopped()
                    if came + len(chunk) > stop - start:
                        raise RangesNotServedError(whole_file(url))
                    buffer[came : came + len(chunk)] = chunk
                    came += len(chunk)
            return stream.delimited

        def receive() -> None:
            nonlocal steps
            # Servers may send less than was asked for, as those do that keep files in slices.
            ended = stepped = True
            while ended and stepped and came < stop - start:
                before, ended = came, False
                try:
                    ended = receive_once()
                finally:
                    # Half of a small rest is progress, too: it takes few such steps.
                    least = max(1, min(_PROGRESS_NBYTES, (stop - start - before) // 2))
                    stepped = version.validator is not None and came - before >= least
                    steps += stepped
            check_length(came, (start, stop))

        self._tried(url, receive, lambda: steps * _PROGRESS_NBYTES, check_stopped)

    def _tried(
        self,
        url: str,
        attempt: Callable[[], T],
        progress: Callable[[], int],
        check_stopped: Callable[[], None] = lambda: None,
    ) -> T:
        """Repeat an attempt and return its result; raise after a final error or many failures."""
        failures, silent_seconds = 0, 0.0
        check_open = self._checker(url, check_stopped)

        while True:
            before = progress()
            try:
                return attempt()
            except (ConnectionError, TimeoutError) as error:
                check_open()
                # A try that received data does not count: a large file takes many on a bad line.
                failures = 1 if progress() - before >= _PROGRESS_NBYTES else failures + 1
                # A silent server costs a limit of time with each try, so that these are fewer.
                if isinstance(error, SilentServerError):
                    silent_seconds += error.seconds
                else:
                    silent_seconds = 0.0
                shown = display_url(url)
                if failures >= self.policy.attempts or silent_seconds >= self.policy.silent_seconds:
                    message = f"{shown}: gave up after {failures} attempts; the last: {error}"
                    raise FetchError(message) from error
                wait = self.policy.wait_seconds(
                    failures, getattr(error, "retry_after_seconds", None)
                )
                logger.warning("%s: %s; trying again in %.1f s", shown, error, wait)
            # The wait is outside the handler, which would keep the error and its connection alive.
            while wait > 0:
                check_open()
                time.sleep(min(wait, _POLL_SECONDS))
                wait -= _POLL_SECONDS

    def _checker(self, url: str, check_stopped: Callable[[], None]) -> Callable[[], None]:
        """Return `check_stopped`, preceded by a check that `close` was not called meanwhile."""
        closings = self._closings

        def check_open() -> None:
            if self._closings != closings:
                raise FetchError(
                    f"{display_url(url)}: its connections were closed while it was fetched; call "
                    "close() after the last reading thread"
                )
            check_stopped()

        return check_open

    def _open(
        self,
        url: str,
        start: int = 0,
        stop: int | None = None,
        *,
        validator: str | None = None,
        check_stopped: Callable[[], None] = lambda: None,
        connection: Connection | None = None,
    ) -> Stream:
        """Request bytes as `Source.open`, once the host may have another connection.

        The connection counts until the stream is closed. It is the given one, or else a new one.
        """
        with ExitStack() as stack:
            counted = stack.enter_context(self._connection(url, check_stopped, connection))
            source, began = self._source(url), time.monotonic()
            try:
                stream = source.open(url, start, stop, validator=validator)
            except AnsweredError:
                raise
            except (ConnectionError, TimeoutError) as error:
                raise SilentServerError(str(error), time.monotonic() - began) from error
            counted.opened(time.monotonic() - began)
            stack.callback(stream.close)
            chunks = _measured(stream.chunks, counted)
            return replace(stream, chunks=chunks, close=stack.pop_all().close)

    @contextmanager
    def _connection(
        self, url: str, check_stopped: Callable[[], None], connection: Connection | None = None
    ) -> Iterator[Connection]:
        """Count a connection to the host of a URL while the `with` block runs."""
        if connection is None:
            most = self.policy.connections_per_host
            connection = HostConnections.of_process().wait(
                url, most, self._checker(url, check_stopped)
            )
        try:
            yield connection
        except ServerBusyError as error:
            if error.crowded:
                connection.refused(error.retry_after_seconds)
            raise
        finally:
            connection.end()

    def _source(self, url: str) -> Source:
        check_url(url)
        scheme = scheme_of(url)
        key = (os.getpid(), scheme)
        source = self._sources.get(key)
        if source is None:
            made = self._new_source(url, scheme)
            # Threads that create a source at the same time must all use the same one, or the
            # connections of the others would never be closed. `setdefault` is atomic; a lock could
            # be copied locked by a fork.
            source = self._sources.setdefault(key, made)
            if source is not made:
                made.close()
        return source

    def _new_source(self, url: str, scheme: str) -> Source:
        new_source = _SOURCES.get(scheme)
        if not scheme:
            raise FetchError(
                f"{display_url(url)}: is a URL without a host or bucket; expected one such as "
                "s3://bucket/train.json or https://host/train.json"
            )
        if new_source is None:
            known = ", ".join([*_SOURCES, "file"])
            raise FetchError(f"{display_url(url)}: cannot fetch {scheme}: URLs; known are {known}")
        if scheme == "pipe" and not self.allow_pipe:
            raise FetchError(
                f"{display_url(url)}: commands run only with allow_pipe=True, in a program"
            )
        return new_source(self.policy)


class _Transfer(NamedTuple):
    """What all requests for parts of one file share.

    Attributes:
        url: The file.
        version: Version that the bytes must be of; set by the first response.
        check_stopped: Called while bytes arrive and between two tries; may raise to stop.
    """

    url: str
    version: FileVersion
    check_stopped: Callable[[], None]


class _Wanted:
    """Flag that stops threads whose result is no longer needed."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._ended = threading.Event()

    def end(self) -> None:
        self._ended.set()

    def check(self) -> None:
        if self._ended.is_set():
            raise FetchError(
                f"{display_url(self._url)}: stopped, since its result is no longer needed"
            )


def _has_version(stream: Stream) -> bool:
    """Return whether a response says enough of its file to request the rest of the same one."""
    return stream.size is not None and stream.validator is not None


def _measured(chunks: Iterator[bytes], connection: Connection) -> Iterator[bytes]:
    """Yield pieces and note how long each was waited for; the consumer's time does not count."""
    while True:
        began = time.monotonic()
        chunk = next(chunks, None)
        if chunk is None:
            return
        connection.received(len(chunk), time.monotonic() - began)
        yield chunk


def _beyond_end(url: str, start: int, stop: int, error: ChangedError) -> BeyondEndError:
    return BeyondEndError(f"{display_url(url)}: asked for bytes [{start}, {stop}): {error}")


def open_url(url: str, fetcher: Fetcher | None = None) -> bytes:
    """Return the content of a small document, such as a JSON spec, at a path or URL.

    Args:
        url: A plain path, or a URL of any scheme that `Fetcher` knows.
        fetcher: The fetcher to use; by default a new one, which is closed again.

    Raises:
        FetchError: It cannot be read, or is larger than 256 MiB.

    >>> open_url("/no/such/spec.json")
    Traceback (most recent call last):
    wids.errors.FetchError: /no/such/spec.json: No such file or directory
    """
    if is_local(url):
        return read_local(url)
    if fetcher is not None:
        return fetcher.read(url)
    own = Fetcher()
    try:
        return own.read(url)
    finally:
        own.close()
