"""`MemberWriter` writes plain archives, readable by every tar; equal calls give equal bytes."""

import io
import tarfile

import pytest
from helpers.tarbytes import END
from hypothesis import given
from hypothesis import strategies as st

from wids.writing.memberwriter import MemberWriter, member_header, member_nbytes


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


names = st.text(
    st.characters(min_codepoint=33, exclude_categories=["Cs", "Cc"]), min_size=1, max_size=300
).filter(lambda name: not name.startswith("/") and "//" not in name and not name.endswith("/"))


@given(st.lists(st.tuples(names, st.binary(max_size=1500)), max_size=6))
def test_whatever_is_written_is_read_by_tarfile(members: list[tuple[str, bytes]]):
    """Python's tarfile reads any names and data; the same calls give the same bytes."""
    archive = archive_of(members)
    assert read_back(archive) == members
    assert archive_of(members) == archive
    assert sum(member_nbytes(*member) for member in members) == len(archive) - len(END)


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
