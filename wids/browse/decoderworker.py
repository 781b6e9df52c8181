"""Process that describes and draws fields for the server: `python -m wids.browse.decoderworker`.

It reads requests from an inherited socket and answers them one after the other until the socket is
closed. A message is a JSON object and bytes, each preceded by its length. The server does not trust
the answers, since an image that exploits a decoder controls what the process sends.
"""

from __future__ import annotations

import io
import json
import os
import re
import signal
import socket
import struct
import sys
import time
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from wids.base.optional import load_if_present
from wids.base.system import limit_process
from wids.codecs.formats import field_kind
from wids.display.fieldview import view_field
from wids.display.thumbnails import film_strip, thumbnail
from wids.errors import DecodeError

__all__ = ["head", "receive"]

MAX_MESSAGE_NBYTES = 8 << 20  # of the JSON in a message
MAX_DATA_NBYTES = 256 << 20
_LENGTHS = struct.Struct("<QQ")
# Messages by which Python, Pillow, libwebp, ffmpeg and C++ report that memory is exhausted.
_NO_MEMORY = re.compile(
    r"MemoryError|out of memory|allocate memory|bad_alloc|could not create decoder", re.IGNORECASE
)

_MAX_SMALL_PIXELS = 8 << 20  # progressive JPEGs take a dozen bytes per pixel

Message = tuple[dict[str, Any], bytes]


def head(header: dict[str, Any], nbytes: int) -> bytes:
    """Return the beginning of a message that is followed by `nbytes` bytes of data."""
    text = json.dumps(header).encode()
    return _LENGTHS.pack(len(text), nbytes) + text


def receive(connection: socket.socket, deadline: float | None = None) -> Message:
    """Wait for a message.

    Args:
        connection: A connected socket.
        deadline: Time of the monotonic clock until which to wait; None for no limit.

    Raises:
        EOFError: The other side closed the connection or sends too much.
        OSError: The message did not come in time, or the connection broke.
        ValueError: The header is not a JSON object.
    """
    length, nbytes = _LENGTHS.unpack(_exactly(connection, _LENGTHS.size, deadline))
    if length > MAX_MESSAGE_NBYTES or nbytes > MAX_DATA_NBYTES:
        raise EOFError(f"a message of {length} and {nbytes} bytes")
    try:
        header = json.loads(_exactly(connection, length, deadline))
    except RecursionError as error:  # deeply nested brackets, sent by an exploited decoder
        raise ValueError("expected a flat JSON object") from error
    if not isinstance(header, dict):
        raise ValueError("expected a JSON object")  # noqa: TRY004 (the data is wrong, no argument)
    return header, _exactly(connection, nbytes, deadline)


def _exactly(connection: socket.socket, nbytes: int, deadline: float | None) -> bytes:
    # `BytesIO` gives out its bytes uncopied; libraries that get `bytearray` or a view make a copy.
    stream = io.BytesIO(bytes(nbytes))
    received = 0
    with stream.getbuffer() as data:
        while received < nbytes:
            if deadline is not None:
                connection.settimeout(max(deadline - time.monotonic(), 0.001))
            with data[received:] as rest:
                count = connection.recv_into(rest)
            if not count:
                raise EOFError("the connection was closed")
            received += count
    return stream.getvalue()


def _answer(request: dict[str, Any], data: bytes) -> Message:
    extension, drawn = request["extension"], b""
    try:
        if request["call"] == "view":
            found = asdict(view_field(extension, data))
        else:
            draw = film_strip if request.get("strip") else thumbnail
            found = asdict(draw(extension, data, size=request["size"]))
            drawn = found.pop("data")
    except (DecodeError, MemoryError) as error:
        found = {"failed": str(error) or type(error).__name__}
    reason = found.get("failed") or found.get("error") or ""
    no_memory = _NO_MEMORY.search(reason) is not None
    if "failed" in found and not request["is_last_try"]:
        no_memory = no_memory or _is_large_image(extension, data)
    return {**found, "no_memory": no_memory}, drawn


def _is_large_image(extension: str, data: bytes) -> bool:
    """Return whether an image may have failed for lack of memory, which libjpeg does not report."""
    if field_kind(extension) != "image":
        return False
    summary = view_field(extension, data).summary
    return bool(summary.get("width", 0) * summary.get("height", 0) > _MAX_SMALL_PIXELS)


def _main(descriptor: int, nbytes: int, niceness: int) -> None:
    """Serve requests within a memory limit, each within its processor time."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # on Ctrl-C, the server ends this process
    signal.signal(signal.SIGPROF, signal.SIG_DFL)  # which ends the process
    os.nice(niceness)
    load_if_present("PIL.Image")
    limit_process(nbytes)
    with socket.socket(fileno=descriptor) as connection, suppress(EOFError, ConnectionError):
        connection.sendall(head({"ready": True}, 0))
        while True:
            request, data = receive(connection)
            signal.setitimer(signal.ITIMER_PROF, request["seconds"])
            header, drawn = _answer(request, data)
            signal.setitimer(signal.ITIMER_PROF, 0)
            del data  # frees the memory before the next field is received
            connection.sendall(head(header, len(drawn)))
            connection.sendall(drawn)


if __name__ == "__main__":
    _main(*map(int, sys.argv[1:]))
