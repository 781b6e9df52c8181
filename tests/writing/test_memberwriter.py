"""`MemberWriter` writes plain archives, readable by every tar; equal calls give equal bytes."""

import contextlib
import io
import tarfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wids.writing.memberwriter import MemberWriter, SampleArchive, member_header, member_nbytes

TOO_LONG = "x" * 130 + ".txt"  # one component: ustar cannot say it


def archive_of(members: list[tuple[str, bytes]], mtime: int = 0) -> bytes:
    """Write members to a tar in memory."""
    stream = io.BytesIO()
    with MemberWriter(stream, mtime) as writer:
        for name, data in members:
            writer.write(name, data)
    return stream.getvalue()


def read_back(archive: bytes) -> list[tuple[str, bytes]]:
    """Read an archive by Python's tarfile."""
    with tarfile.open(fileobj=io.BytesIO(archive)) as reader:
        return [(member.name, reader.extractfile(member).read()) for member in reader]


def test_name_that_is_no_utf8_survives():
    """Names that are not UTF-8 are stored unchanged, as tarfile reads them."""
    names = [b"caf\xe9.txt", b"caf\xe9" * 40 + b".txt"]
    members = [(name.decode("utf-8", "surrogateescape"), b"x") for name in names]
    assert read_back(archive_of(members)) == members
    assert len(member_header(members[0][0], 1)) == 512


def test_metadata_is_fixed():
    """Owner, mode and times do not depend on the machine or the time."""
    with tarfile.open(fileobj=io.BytesIO(archive_of([("a.txt", b"x")]))) as reader:
        member = reader.next()
    seen = (member.mode, member.uid, member.gid, member.uname, member.gname, member.mtime)
    assert seen == (0o444, 0, 0, "", "", 0)


def test_mtime_can_be_chosen():
    """A given modification time is written for every member."""
    with tarfile.open(fileobj=io.BytesIO(archive_of([("a.txt", b"x")], 1_700_000_000))) as reader:
        assert reader.next().mtime == 1_700_000_000


def test_archive_ends_with_two_zero_blocks_and_nothing_else():
    """Two zero blocks end the archive without further padding."""
    archive = archive_of([("a.txt", b"x")])
    assert len(archive) == 512 + 512 + 1024
    assert archive_of([]) == bytes(1024)


def test_length_is_known_before_the_end():
    """`nbytes` and `member_nbytes` give the size in the archive, also for long names."""
    stream = io.BytesIO()
    members = [("a.txt", b"1"), (TOO_LONG, b"22"), ("b.txt", b""), ("ü", b"x" * 600)]
    with MemberWriter(stream) as writer:
        for name, data in members:
            before = writer.nbytes
            writer.write(name, data)
            assert writer.nbytes - before == member_nbytes(name, data)
    assert writer.nbytes == len(stream.getvalue())


def test_large_data_is_passed_on_without_a_copy():
    """A large member is passed to the stream without a copy."""
    data = b"L" * 2_500_000
    seen = []

    class Sink:
        def write(self, block: bytes | memoryview) -> None:
            seen.append(block)

    MemberWriter(Sink()).write("large.bin", data)
    views = [block for block in seen if isinstance(block, memoryview)]
    assert all(view.obj is data for view in views)
    assert sum(map(len, views)) == len(data)


def test_any_buffer_may_be_written_and_changed_afterwards():
    """A buffer may be changed after it was written."""
    stream = io.BytesIO()
    changing = bytearray(b"before")
    with MemberWriter(stream) as writer:
        writer.write("a", changing)
        changing[:] = b"after!"
        writer.write("b", memoryview(b"xyz")[1:])
        large = bytearray(b"L" * 3_000_001)
        writer.write("c", large)
        large[:] = bytes(3_000_001)
    assert read_back(stream.getvalue()) == [
        ("a", b"before"),
        ("b", b"yz"),
        ("c", b"L" * 3_000_001),
    ]


def test_archive_left_by_an_error_does_not_look_whole():
    """After an error in the block, the end of the archive is not written."""
    stream = io.BytesIO()
    with contextlib.suppress(KeyError), MemberWriter(stream) as writer:
        writer.write("a.txt", b"x")
        raise KeyError
    assert not stream.getvalue().endswith(bytes(1024))


def test_closed_writer_refuses():
    """Writing to a closed writer is an error."""
    writer = MemberWriter(io.BytesIO())
    writer.close()
    with pytest.raises(ValueError, match=r"a\.txt.*closed"):
        writer.write("a.txt", b"")


names = st.text(
    st.characters(min_codepoint=33, exclude_categories=["Cs", "Cc"]), min_size=1, max_size=300
).filter(lambda name: not name.startswith("/") and "//" not in name and not name.endswith("/"))


@given(st.lists(st.tuples(names, st.binary(max_size=1500)), max_size=6))
def test_whatever_is_written_is_read_by_tarfile(members: list[tuple[str, bytes]]):
    """Python's tarfile reads any names and data; the same calls give the same bytes."""
    archive = archive_of(members)
    assert read_back(archive) == members
    assert archive_of(members) == archive


def test_members_of_another_archive_are_taken_over_in_one_piece():
    """Members copied as raw blocks give the same bytes as writing them."""
    rows = [("a.txt", b"one"), ("ключ.txt", b"x" * 700), ("b.bin", bytes(900_000)), ("c", b"")]
    whole = memoryview(archive_of(rows))
    stream = io.BytesIO()
    with MemberWriter(stream) as writer:
        writer.write(*rows[0])
        writer.write_raw(whole[1024 : 1024 + 1536 + 1024])
        writer.write(rows[2][0], memoryview(rows[2][1]), stable=True)
        writer.write_raw(whole[-1024 - 512 : -1024])
        nbytes = writer.nbytes
    assert stream.getvalue() == whole.tobytes()
    assert nbytes == len(whole)
    with pytest.raises(ValueError, match="closed"):
        writer.write_raw(whole[:1024])


def test_a_sample_taken_over_keeps_its_key_from_coming_again():
    """A key copied as raw blocks cannot be written again."""
    archive = SampleArchive(io.BytesIO(), "x.tar")
    archive.write_raw("a", memoryview(archive_of([("a.txt", b"one")]))[:1024])
    with pytest.raises(ValueError, match="'a' is in x.tar already"):
        archive.write("a", [("a.cls", b"1")])
