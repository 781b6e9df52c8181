"""Messages between the server and its processes."""

import socket
import struct
import threading
import time
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wids.browse.workerprocess import MAX_DATA_NBYTES, MAX_MESSAGE_NBYTES, head, receive

LENGTHS = struct.Struct("<QQ")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=9,
)


def sent(*pieces: bytes) -> socket.socket:
    """Return a connection that has received some bytes and its end."""
    here, there = socket.socketpair()

    def send() -> None:  # beside the reader: a connection holds little that nobody reads
        with there, suppress(OSError):
            for piece in pieces:
                there.sendall(piece)

    threading.Thread(target=send, daemon=True).start()
    return here


@given(st.dictionaries(st.text(), JSON), st.binary(), st.integers(1, 30))
def test_messages_come_as_they_were_sent(header: dict[str, Any], data: bytes, step: int) -> None:
    """Messages are received correctly however they are divided into pieces."""
    message = head(header, len(data)) + data
    pieces = [message[start : start + step] for start in range(0, len(message), step)]
    with sent(*pieces, message) as connection:
        for _ in range(2):
            assert receive(connection) == (header, data)
        with pytest.raises(EOFError):
            receive(connection)


@pytest.mark.parametrize("cut", range(1, 30, 4))
def test_a_message_that_breaks_off_is_no_message(cut: int) -> None:
    """A truncated message is an error."""
    message = head({"failed": "x"}, 9) + b"123456789"
    with sent(message[:-cut]) as connection, pytest.raises(EOFError):
        receive(connection)


@pytest.mark.parametrize(
    "lengths", [(MAX_MESSAGE_NBYTES + 1, 0), (2, MAX_DATA_NBYTES + 1), (2**64 - 1, 2**64 - 1)]
)
def test_more_than_may_be_sent_is_not_waited_for(lengths: tuple[int, int]) -> None:
    """A message that claims too much is refused without allocating memory."""
    with sent(LENGTHS.pack(*lengths) + b"{}") as connection, pytest.raises(EOFError):
        receive(connection)


@pytest.mark.parametrize(
    "text",
    [b"[]", b"7", b"null", b"{", b"\xff\xfe", b"", b"[" * 200_000],
    ids=["list", "number", "null", "torn", "no text", "empty", "nested"],
)
def test_what_is_no_object_is_a_value_error(text: bytes) -> None:
    """A header that is no JSON object raises a ValueError."""
    with sent(LENGTHS.pack(len(text), 0) + text) as connection, pytest.raises(ValueError):
        receive(connection)


def test_silence_ends_at_the_deadline() -> None:
    """An incomplete message is an error at the deadline."""
    here, there = socket.socketpair()
    with here, there:
        there.sendall(head({"failed": "x"}, 100) + b"half")
        with pytest.raises(OSError, match="timed out"):
            receive(here, time.monotonic() + 0.05)
