"""Source of `pipe:` URLs: the standard output of a command, run without a shell."""

from __future__ import annotations

import re
import shlex
import subprocess
from concurrent.futures import ThreadPoolExecutor
from typing import IO, TYPE_CHECKING

from wids.base.shardref import Version
from wids.base.urls import display_url, hide_credentials
from wids.errors import FetchError
from wids.fetching.transport import FetchPolicy, Stream

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["PipeSource"]

_READ_NBYTES = 1 << 20
_SHOWN_LENGTH = 400
_KEPT_NBYTES = 16 << 10  # of standard error: a secret that is cut in two would not be found in it
_MAYBE_SECRET = re.compile(r"[:=\s]")
_SHELL_WORDS = frozenset({"|", "||", "&&", "&", ";", ">", ">>", "<", "2>"})


class PipeSource:
    r"""Source that runs the commands of `pipe:` URLs, which `allow_pipe=True` must permit.

    >>> with PipeSource(FetchPolicy()).open("pipe:echo hello") as stream:
    ...     list(stream.chunks)
    [b'hello\n']
    """

    def __init__(self, policy: FetchPolicy) -> None:
        """Create a source; the policy's time limits do not apply to commands."""

    def close(self) -> None:
        """Do nothing: each command ends with its stream."""

    def open(
        self, url: str, start: int = 0, stop: int | None = None, *, validator: str | None = None
    ) -> Stream:
        """Start the command; the stream begins with its first byte, whatever range is requested.

        Raises:
            FetchError: The command does not exist, or needs a shell.
        """
        del start, stop, validator
        arguments = _arguments(url)
        try:
            process = subprocess.Popen(  # noqa: S603 (no shell, and allowed by the user)
                arguments,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
        except OSError as error:
            message = f"{display_url(url)}: cannot run {arguments[0]!r}: {error.strerror}"
            raise FetchError(message) from error
        return Stream(
            start=0,
            version=Version(),
            content_type="",
            delimited=True,  # by the exit status
            chunks=_output(process, url, arguments),
            close=lambda: _end(process),
        )


def _output(
    process: subprocess.Popen[bytes], url: str, arguments: Sequence[str]
) -> Iterator[bytes]:
    """Yield the output of a command as it arrives; raise FetchError if the command fails."""
    with ThreadPoolExecutor(1) as reader:  # an unread standard error would block the command
        complaints = reader.submit(_read_end, process.stderr)
        while process.stdout and (chunk := process.stdout.read(_READ_NBYTES)):
            yield chunk
        said = complaints.result()
    status = process.wait()
    if status != 0:
        said = _without_arguments(said, arguments)[-_SHOWN_LENGTH:]
        raise FetchError(
            f"{display_url(url)}: the command ended with status {status}, so its output was "
            f"discarded; its standard error: {said or 'nothing'}"
        )


def _without_arguments(said: str, arguments: Sequence[str]) -> str:
    """Return what a command said without credentials and arguments that it quotes.

    A path stays, since the user needs it; a header, `key=value` or `user:password` may be secret.
    """
    quoted = set(arguments)
    for script in arguments:  # any may be one for a shell
        try:
            quoted.update(shlex.split(script))
        except ValueError:  # a quote that is not closed
            quoted.update(script.split())
    for argument in sorted(quoted, key=len, reverse=True):
        if _MAYBE_SECRET.search(argument):
            said = said.replace(argument, "...")
    return hide_credentials(said)


def _read_end(stream: IO[bytes] | None) -> str:
    """Return the last part of a command's standard error."""
    said = b""
    while stream and (chunk := stream.read1(_KEPT_NBYTES)):  # type: ignore[attr-defined]
        said = (said + chunk)[-_KEPT_NBYTES:]
    return said.decode(errors="replace").strip()


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    for stream in (process.stdout, process.stderr):
        if stream:
            stream.close()


def _arguments(url: str) -> list[str]:
    """Return the arguments of the command, split as by a shell.

    Old specs use `{local}` as the path of the output file; it is replaced by standard output.
    """
    try:
        arguments = shlex.split(url.partition(":")[2])
    except ValueError as error:
        raise FetchError(f"{display_url(url)}: {error}") from error
    if not arguments:
        raise FetchError(f"{display_url(url)}: names no command")
    operators = sorted(_SHELL_WORDS.intersection(arguments))
    if operators:
        raise FetchError(
            f"{display_url(url)}: {operators[0]!r} is for a shell, and no shell is used; "
            f"write pipe:sh -c '...' if the command is yours"
        )
    return [argument.replace("{local}", "/dev/stdout") for argument in arguments]
