"""The decoder process: its messages, its limits and its end."""

import json
import signal
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from typing import Any

import pytest
from helpers.specimens import npz_bomb, specimens
from hypothesis import given
from hypothesis import strategies as st

from wids.base.processes import fresh_python
from wids.browse.messages import MAX_DATA_NBYTES, MAX_MESSAGE_NBYTES, head, receive
from wids.display.fieldview import view_field
from wids.display.thumbnails import thumbnail

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


class Worker:
    """A decoder process, started as by the server."""

    def __init__(self, nbytes: int) -> None:
        self.connection, theirs = socket.socketpair()
        arguments = ("-m", "wids.browse.decoderworker", str(theirs.fileno()), str(nbytes), "0")
        command, environment = fresh_python(*arguments)
        environment |= {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        with theirs:
            self.process = subprocess.Popen(command, env=environment, pass_fds=[theirs.fileno()])
        assert receive(self.connection) == ({"ready": True}, b"")

    def ask(self, call: str, extension: str, data: bytes, **more: Any) -> tuple[Any, bytes]:
        """Request the view of one field."""
        request = {
            "call": call,
            "extension": extension,
            "is_last_try": False,
            "seconds": 60,
            **more,
        }
        # While it answers a field before, it takes no further one.
        message = head(request, len(data)) + data
        sender = threading.Thread(target=self.connection.sendall, args=(message,))
        sender.start()
        header, drawn = receive(self.connection)
        sender.join()
        return header, bytes(drawn)


@pytest.fixture
def worker() -> Iterator[Worker]:
    worker = Worker(1 << 30)
    yield worker
    worker.connection.close()
    assert worker.process.wait(120) == 0


def test_one_process_answers_field_after_field(worker: Worker) -> None:
    """One process answers many requests as a direct call would; errors do not end it."""
    for extension in (".jpg", ".json", ".npy", ".unknown"):
        data = specimens()[extension]
        header, drawn = worker.ask("view", extension, data)
        expected = json.loads(json.dumps(asdict(view_field(extension, data))))
        assert {name: header[name] for name in expected} == expected
        assert (drawn, header["no_memory"]) == (b"", False)
    header, drawn = worker.ask("thumbnail", ".jpg", b"no picture", size=32)
    assert header["failed"]
    assert drawn == b""
    data = specimens()[".png"]
    header, drawn = worker.ask("thumbnail", ".png", data, size=32)
    assert drawn == thumbnail(".png", data, size=32).data
    assert (header["width"], header["height"]) == (32, 24)


def test_the_interrupt_of_the_terminal_is_the_servers(worker: Worker) -> None:
    """The process ignores Ctrl-C until its server ends it."""
    worker.process.send_signal(signal.SIGINT)
    header, _ = worker.ask("view", ".txt", b"still here")
    assert header["error"] is None


def test_what_needs_more_memory_than_it_may_is_said_to() -> None:
    """A field that exceeds the memory limit is an error, and the process goes on."""
    worker = Worker(160 << 20)
    header, _ = worker.ask("view", ".npz", npz_bomb())
    assert header["no_memory"] or header["error"] or header["summary"]
    header, _ = worker.ask("view", ".txt", b"small")
    assert (header["error"], header["no_memory"]) == (None, False)
    worker.connection.close()
    assert worker.process.wait(120) == 0
