"""Sidecars: the documented bytes, refused files, and hostile files."""

import hashlib
import os
import re
import struct
from zlib import crc32

import pytest
from helpers.shards import REPOSITORY
from helpers.sidecarbytes import HEADER_NBYTES, fingerprinted, sealed
from helpers.tarbytes import END, member

from wids.errors import ShardFormatError
from wids.tar.shard import Shard
from wids.tar.tarindex import TarIndex

FORMAT = REPOSITORY / "docs" / "formats.md"


def resealed_row(image, row, spans):
    """Recompute the check of sample 0 after a change."""
    image = bytearray(image)
    keys_start = (
        len(image)
        - struct.unpack_from("<QQ", image, 72)[0]
        - struct.unpack_from("<Q", image, 80)[0]
    )
    first, key, extension_set, _, last, key_end, _, _ = struct.unpack_from("<8I", image, row)
    covered = bytes(image[spans + 16 * first : spans + 16 * last])
    check = crc32(
        covered, crc32(bytes(image[keys_start + key : keys_start + key_end]), extension_set)
    )
    image[row + 12 : row + 16] = struct.pack("<I", check)
    return bytes(image)


def read_and_check(shard, sidecar, expected):
    """Read the one sample of a shard, which must be right or refused; check the whole index."""
    index = TarIndex.load(sidecar)
    assert Shard(shard, index)[0] == expected
    index.check()


@pytest.fixture
def shard(tmp_path):
    """Write the shard of the documented example."""
    path = tmp_path / "two.tar"
    path.write_bytes(member(b"a.cls", b"7") + member(b"a.txt", b"hello") + END)
    return path


@pytest.fixture
def sidecar(shard):
    """Write the example's sidecar."""
    path = shard.with_suffix(".tar.widx")
    TarIndex.from_tar(shard).save(path)
    return path


def test_the_documented_example_byte_for_byte(sidecar):
    """The written sidecar equals the hex dump in the documentation."""
    dump = re.findall(
        r"^[0-9a-f]{4}  ((?:[0-9a-f]{2} )*[0-9a-f]{2})", FORMAT.read_text(), re.MULTILINE
    )
    assert sidecar.read_bytes() == bytes.fromhex("".join(dump))


def test_round_trip(tmp_path):
    """A loaded index has the names, spans, keys, fields and counts of the scanned one."""
    path = tmp_path / "odd.tar"
    names = [b"README", b"\xff.jpg", b"\xff.txt", b"b.jpg", b".hid", b"d/c.x.y", b"d/c.z"]
    content = b"".join(member(n, n * i) for i, n in enumerate(names))
    path.write_bytes(content + member(b"d/", b"", kind=b"5") + END)
    index = TarIndex.from_tar(path)
    index.save(tmp_path / "x.widx")
    loaded = TarIndex.load(tmp_path / "x.widx", tar=path)
    for one in (index, loaded):
        assert one.names == [os.fsdecode(name) for name in names]
        assert one.sizes.tolist() == [len(n) * i for i, n in enumerate(names)]
        assert list(one.keys) == ["\udcff", "b", "d/c"]
        assert one.find("\udcff") == 0
        assert one.fields(2) == [(".x.y", one.offsets[5], 35), (".z", one.offsets[6], 30)]
        assert one.skipped == {"directory": 1, "hidden": 1, "no extension": 1}
    assert loaded.offsets.tolist() == index.offsets.tolist()
    assert loaded.digest == index.digest


def test_pipes_and_links_beside_a_shard_do_no_harm(shard, tmp_path):
    """A pipe at the path of a sidecar or lock is not waited for; a link there creates no file."""
    sidecar, lock = tmp_path / "two.tar.widx", tmp_path / "lock"
    os.mkfifo(sidecar)
    os.mkfifo(lock)
    with pytest.raises(ShardFormatError, match="expected a regular file"):
        TarIndex.load(sidecar)
    assert TarIndex.open(shard, sidecar, lock_path=lock).num_samples == 1
    assert TarIndex.load(sidecar, tar=shard).num_samples == 1
    sidecar.unlink()
    lock.unlink()
    lock.symlink_to(tmp_path / "elsewhere")
    assert TarIndex.open(shard, sidecar, lock_path=lock).num_samples == 1
    assert not (tmp_path / "elsewhere").exists()


def test_every_byte_counts(shard, sidecar):
    """A change of any single byte of a sidecar is noticed when it is opened or read."""
    image = sidecar.read_bytes()
    expected = Shard(shard)[0]
    for place in range(len(image)):
        for change in (0x01, 0x80, 0xFF):
            sidecar.write_bytes(image[:place] + bytes([image[place] ^ change]) + image[place + 1 :])
            with pytest.raises(ShardFormatError):
                read_and_check(shard, sidecar, expected)


@pytest.mark.parametrize("cut", [0, 1, 7, 127, 128, 170, 202])
def test_cut_off_sidecars_are_refused(sidecar, cut):
    """A sidecar that is too short or too long is refused."""
    image = sidecar.read_bytes()
    sidecar.write_bytes(image[:cut])
    with pytest.raises(ShardFormatError, match=re.escape(str(sidecar))):
        TarIndex.load(sidecar)
    sidecar.write_bytes(image + bytes(cut + 1))
    with pytest.raises(ShardFormatError, match="bytes by its header"):
        TarIndex.load(sidecar)


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (0, b"notwids\0", "magic"),
        (8, struct.pack("<I", 2), "version 1"),
        (12, struct.pack("<I", 16), "flags"),
        (40, struct.pack("<Q", 1 << 60), "bytes by its header"),
        (48, struct.pack("<Q", (1 << 64) - 1), "bytes by its header"),
        (72, struct.pack("<Q", 1 << 63), "bytes by its header"),
        # No offset of 63 bits could span such a shard.
        *(
            (place, struct.pack("<Q", value), "expected a shard of at most")
            for place in (16, 24, 32)
            for value in (1 << 63, (1 << 64) - 1)
        ),
    ],
)
def test_hostile_headers_are_refused(sidecar, place, value, message):
    """Impossible counts and sizes are refused before memory is allocated, by a valid check too."""
    image = bytearray(sidecar.read_bytes())
    image[place : place + len(value)] = value
    sidecar.write_bytes(sealed(image))
    with pytest.raises(ShardFormatError, match=message):
        TarIndex.load(sidecar)


def test_more_bytes_after_the_archive_than_the_shard_has_are_refused(shard, sidecar):
    """Such a sidecar is refused, and made again where the shard is at hand."""
    image = bytearray(sidecar.read_bytes())
    struct.pack_into("<Q", image, 32, shard.stat().st_size + 1)
    sidecar.write_bytes(sealed(image))
    with pytest.raises(ShardFormatError, match="after the archive, the size of the shard"):
        TarIndex.load(sidecar, tar=shard)
    assert TarIndex.open(shard, sidecar).num_samples == 1


@pytest.mark.parametrize("offset", [-5, -4096, 3000, 1 << 40, (1 << 63) - 1, -(1 << 63)])
@pytest.mark.parametrize("size", [0, 5, 1 << 40, (1 << 63) - 1, -5])
def test_hostile_spans_reach_nothing_outside(shard, sidecar, offset, size):
    """Spans outside the shard are refused, even with valid checks."""
    image = bytearray(sidecar.read_bytes())
    struct.pack_into("<qq", image, HEADER_NBYTES, offset, size)
    image = resealed_row(image, HEADER_NBYTES + 32, HEADER_NBYTES)
    sidecar.write_bytes(sealed(fingerprinted(image, shard.read_bytes())))
    index = TarIndex.load(sidecar)
    if offset == 3000 and size in (0, 5):
        assert len(Shard(shard, index)[0][".cls"]) == size
        return
    for read in (lambda: Shard(shard, index)[0], lambda: index.fields(0), lambda: index.offsets):
        with pytest.raises(ShardFormatError):
            read()


@pytest.mark.parametrize(
    "row", [(7, 0, 0), (0, 9, 0), (0, 0, 3), (2**32 - 1, 2**32 - 1, 2**32 - 1)]
)
def test_hostile_rows_reach_nothing_outside(shard, sidecar, row):
    """Rows that point outside of the sections are refused, even with valid checks."""
    image = bytearray(sidecar.read_bytes())
    struct.pack_into("<3I", image, HEADER_NBYTES + 32, *row)
    sidecar.write_bytes(sealed(resealed_row(image, HEADER_NBYTES + 32, HEADER_NBYTES)))
    index = TarIndex.load(sidecar)
    if row == (0, 9, 0):
        assert index.key(0) == ""
        return
    with pytest.raises(ShardFormatError, match="damaged sidecar"):
        Shard(shard, index)[0]


@pytest.mark.parametrize("sets", [b".cls/.cls\0", b"__key__/x\0", b".cls.txt.\0"])
def test_hostile_extensions_are_refused(shard, sidecar, sets):
    """Duplicate or missing extensions, and extensions without a dot, are refused."""
    image = sidecar.read_bytes().replace(b".cls/.txt\0", sets)
    sidecar.write_bytes(sealed(image))
    with pytest.raises(ShardFormatError, match="damaged sidecar"):
        Shard(shard, TarIndex.load(sidecar))[0]


def forged(tmp_path, *, spans, rows, order=(), sets=b".x\0", skipped=b"", keys=b"", others=b""):
    """Write a sidecar with any sections and a matching header and digest."""
    body = struct.pack(f"<{2 * len(spans)}q", *sum(spans, ()))
    body += b"".join(struct.pack("<4I", *row) for row in rows)
    body += struct.pack(f"<{len(order)}I", *order) + sets + skipped + keys + others
    lengths = map(len, (spans, rows[1:], sets, skipped, keys, others))
    head = struct.pack("<8sIIQQQ", b"widsidx\0", 1, 8 if order else 0, 4096, 0, 0)
    head += struct.pack("<6Q", *lengths) + bytes(16)
    head += hashlib.blake2b(body, digest_size=16).digest()
    path = tmp_path / "forged.widx"
    path.write_bytes(sealed(head + bytes(8) + body))
    return path


def row(key, spans, start=0, first=0):
    """Return a sample's row with a matching check."""
    covered = struct.pack(f"<{2 * len(spans)}q", *sum(spans, ()))
    return (first, start, 0, crc32(covered, crc32(key, 0)))


SPAN = (512, 1)


def test_a_forged_sidecar_reads_if_it_is_right(tmp_path):
    """A correct sidecar made by the same helper is accepted."""
    rows = [row(b"a", [SPAN]), row(b"b", [SPAN], 1, 1), (2, 2, 0, 0)]
    index = TarIndex.load(forged(tmp_path, spans=[SPAN] * 2, rows=rows, order=(1, 0), keys=b"ab"))
    assert index.names == ["b.x", "a.x"]


@pytest.mark.parametrize("order", [(), (1, 0)])
@pytest.mark.parametrize("others", [b"", b"b", b"b\0c\0"])
def test_each_member_has_one_name(tmp_path, order, others):
    """A sidecar with fewer or more names than members is refused."""
    rows = [row(b"a", [SPAN]), (1, 1, 0, 0)]
    index = TarIndex.load(
        forged(tmp_path, spans=[SPAN] * 2, rows=rows, order=order, keys=b"a", others=others)
    )
    for read in (lambda: index.names, lambda: index.offsets, index.check):
        with pytest.raises(ShardFormatError, match="names for 2 members"):
            read()


def test_rows_ascend(tmp_path):
    """Overlapping keys, by which a small file could have gigabytes of keys, are refused."""
    rows = [row(b"k" * 99, [], start % 2) for start in range(9)] + [(0, 99, 0, 0)]
    index = TarIndex.load(forged(tmp_path, spans=[], rows=rows, keys=b"k" * 99))
    for read in (lambda: index.names, lambda: list(index.keys), lambda: index.keys[:],
                 lambda: index.find("k"), index.check):  # fmt: skip
        with pytest.raises(ShardFormatError, match="ascend"):
            read()


def test_keys_are_distinct(tmp_path):
    """Two samples with one key are refused when all keys are read."""
    rows = [row(b"a", [SPAN]), row(b"a", [SPAN], 1, 1), (2, 2, 0, 0)]
    index = TarIndex.load(forged(tmp_path, spans=[SPAN] * 2, rows=rows, keys=b"aa"))
    for read in (lambda: index.find("a"), index.check):
        with pytest.raises(ShardFormatError, match="one key"):
            read()


def test_names_that_multiply_are_refused(tmp_path):
    """A long key that many names would repeat is refused."""
    key, fields = b"k" * (2 << 20), 1000
    sets = b"/".join(b".%d" % i for i in range(fields)) + b"\0"
    rows = [row(key, [SPAN] * fields), (fields, len(key), 0, 0)]
    path = forged(tmp_path, spans=[SPAN] * fields, rows=rows, sets=sets, keys=key)
    index = TarIndex.load(path)
    for read in (lambda: index.names, index.check):
        with pytest.raises(ShardFormatError, match="names would take 2097[0-9]{6} bytes"):
            read()


@pytest.mark.parametrize(
    "tables",
    [{"sets": bytes(2)}, {"sets": bytes(2 << 20)}, {"skipped": b"a=1\0" * (1 << 15)}],
)
def test_large_tables_are_refused(tmp_path, tables):
    """More sets than samples, and impossibly large tables, are refused unread."""
    rows = [row(b"a", [SPAN]), (1, 1, 0, 0)]
    path = forged(tmp_path, spans=[SPAN], rows=rows, keys=b"a", **tables)
    with pytest.raises(ShardFormatError, match="at most"):
        TarIndex.load(path)
