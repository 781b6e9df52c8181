"""Digests that are computed while a file is written equal those of its bytes."""

import hashlib
import io
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wids.writing.shardfile import DigestingFile


@given(st.lists(st.binary(max_size=300), max_size=40), st.sets(st.sampled_from(["md5", "sha256"])))
def test_any_blocks_are_digested_in_order(blocks: list[bytes], digests: set[str]):
    """The digest does not depend on how the bytes are divided into blocks."""
    stream = io.BytesIO()
    file = DigestingFile(stream, sorted(digests))
    for block in blocks:
        file.write(memoryview(block))
    whole = b"".join(blocks)
    assert file.close() == {name: hashlib.new(name, whole).hexdigest() for name in sorted(digests)}
    assert stream.getvalue() == whole
    assert file.nbytes == len(whole)


def test_threads_end_with_the_file():
    """No thread runs after `close`, which may be called several times."""
    before = set(threading.enumerate())
    file = DigestingFile(io.BytesIO(), ("md5", "sha256"))
    threads = set(threading.enumerate()) - before  # others may end meanwhile
    assert len(threads) == 2
    file.write(b"x")
    assert file.close() == file.close()
    assert not any(thread.is_alive() for thread in threads)


def test_error_of_the_stream_reaches_the_writer_and_leaves_no_thread():
    """An error of the stream is raised to the caller, and closing then ends the threads."""

    class Full(io.BytesIO):
        def write(self, block: bytes) -> int:
            raise OSError(28, "No space left on device")

    before = set(threading.enumerate())
    file = DigestingFile(Full(), ("md5",))
    (thread,) = set(threading.enumerate()) - before
    with pytest.raises(OSError, match="No space"):
        file.write(b"x")
    file.close()
    assert not thread.is_alive()
