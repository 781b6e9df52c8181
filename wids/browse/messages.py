"""Messages between the server and its processes: a JSON object and bytes, each after its length.

Both sides are of this library, but the server does not trust the answers: what a process works on
is untrusted, and may control it.
"""

from __future__ import annotations

import io
import json
import struct
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import socket

__all__ = ["MAX_DATA_NBYTES", "MAX_MESSAGE_NBYTES", "Message", "head", "receive"]

MAX_MESSAGE_NBYTES = 8 << 20  # of the JSON in a message
MAX_DATA_NBYTES = 256 << 20
_LENGTHS = struct.Struct("<QQ")

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
