"""The scan reads tars of every dialect as tarfile and GNU tar do, and refuses others clearly."""

import io
import os
import random
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest
from helpers.archives import base_256, field, link, sized
from helpers.shards import tar_bytes
from helpers.tarbytes import END, header, member, pax, repair_checksum
from helpers.tarfuzz import tarfiles
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from wids.errors import ShardFormatError
from wids.tar.sidecar import IndexSource
from wids.tar.tarbytes import TarBytes
from wids.tar.tarscan import HeaderWalk, scan_bytes, scan_tar

FORMATS = {
    "ustar": tarfile.USTAR_FORMAT,
    "gnu": tarfile.GNU_FORMAT,
    "pax": tarfile.PAX_FORMAT,
}


def listed(members):
    """Return what a scan found as `(name, offset, size)` rows."""
    names = members.names.decode("utf-8", "surrogateescape").split("\0")[:-1]
    return [(name, *span) for name, span in zip(names, members.spans.tolist(), strict=True)]


@pytest.fixture
def scan(tmp_path):
    """Scan bytes as a shard."""

    def scan_bytes(content, **options):
        path = tmp_path / "shard.tar"
        path.write_bytes(content)
        return scan_tar(path, **options)

    return scan_bytes


@pytest.fixture
def refused(scan):
    """Scan bytes that must be refused; return the error message."""

    def message(content):
        with pytest.raises(ShardFormatError) as caught:
            scan(content)
        assert "shard.tar: at byte " in str(caught.value)
        return str(caught.value)

    return message


SHARDS = {
    "small": [i * 37 % 1500 for i in range(3000)],
    "of 20 kB": range(20_000, 20_040),
    "of 100 kB": range(100_000, 100_040),
    "of 700 kB": range(700_000, 700_040),
    "mixed": [100] * 1500 + [300_000] * 8 + [5] * 1500 + [4_000_000] + [0] * 300,
}


@pytest.mark.parametrize("tar_format", FORMATS.values(), ids=FORMATS)
@pytest.mark.parametrize(("sizes", "mtime"), [*((name, 0.5) for name in SHARDS), ("small", 0)])
def test_members_equal_tarfile(tmp_path, tar_format, sizes, mtime):
    """Small members, large ones, whose data is skipped, and both in turn are read as by tarfile."""
    path = tmp_path / "many.tar"
    members = []
    for i, size in enumerate(SHARDS[sizes]):
        name = f"train/{i:0{i % 7 + 1}}.{'jpg' if i % 2 else 'cls'}"
        if size >= 20_000 and i % 9 == 0 and tar_format != tarfile.USTAR_FORMAT:
            name = f"{'long' * 40}/{i}.bin"
        members.append((name, bytes(size)))
    path.write_bytes(tar_bytes(members, tar_format, mtime))
    found = listed(scan_tar(path))
    assert found == tarfiles(path.read_bytes())
    assert [size for *_, size in found] == list(SHARDS[sizes])


def spelled(place, spelling):
    """Return a tar whose first and last header have other bytes in one place."""
    odd = field(place, spelling, header(b"a.txt", 3)) + b"abc".ljust(512, b"\0")
    return odd + member(b"b.txt", b"b") + odd


def summed(form, signed):
    """Return a tar whose first header has its checksum in another form."""
    block = bytearray(header(b"\xe4\xff\x80.txt", 3))
    block[148:156] = b" " * 8
    total = sum(byte - 256 * (signed and byte >= 128) for byte in block)
    block[148:156] = (form % total)[:8].ljust(8, b"\0")
    return bytes(block) + b"abc".ljust(512, b"\0") + member(b"b.txt", b"b")


SPELLINGS = [
    (124, b"          3 "),
    (124, b"         3\0\0"),
    (124, b"000000000003"),
    (124, b"3 " + bytes(10)),
    (124, b"\x80" + bytes(10) + b"\x03"),
    (136, b"\xff" * 12),
    (136, b"\x80" + bytes(5) + b"\xff" * 6),
    (108, b"\xff" * 8),
    (108, b"\x80\0\0\0\x7f\0\0\0"),
    (100, bytes(8)),
    (100, b"   644 \0"),
    (329, b" " * 16),
    (508, b"tar\0"),
    (257, b"ustar\x0099"),
    (257, b"ustar 00"),
    (257, bytes(8)),
]
SUMS = [b"%06o\0 ", b"%07o\0", b"%08o", b"%6o \0", b"%8o", b"%o\0\0\0\0"]
HIDERS = {
    "a directory": header(b"a.txt", 0, kind=b"5"),
    "a directory with a slash": header(b"a.txt/", 0, kind=b"5"),
    "a symbolic link": header(b"a.txt", 0, kind=b"2"),
    "a pipe": header(b"./a.txt", 0, kind=b"6"),
    "an old directory": header(b"a.txt/", 0, kind=b"\0", magic=b""),
    "a link to nothing": link(b"a.txt", b"missing.txt"),
}
HIDDEN_LINK = [link(b"b.txt", b"a.txt"), member(b"a.txt", b"again"), link(b"c.txt", b"x/../a.txt")]
INNER = b"".join(member(b"inner%d.txt" % i, b"x" * 600) for i in range(20)) + END
LONG_NAME = member(b"././@LongLink", b"long.txt\0", kind=b"L")
LONG_LINK = member(b"././@LongLink", b"long.txt\0", kind=b"K")
PAX_NAME = pax({b"path": b"pax.txt"})
TARGET = b"t" * 150 + b".txt"
A = member(b"a", b"")

# Archives, each with the names that tarfile finds in it, at what positions we need not say.
ODD = {
    **{f"{s!r} at {p}": (spelled(p, s), ["a.txt", "b.txt", "a.txt"]) for p, s in SPELLINGS},
    **{
        f"checksum {form!r}, {signed=}": (summed(form, signed), ["\udce4\udcff\udc80.txt", "b.txt"])
        for form in SUMS
        for signed in (False, True)
    },
    "tars in a tar": (
        b"".join(member(b"%d.tar" % i, INNER) + member(b"%d.cls" % i, b"1") for i in range(50)),
        [f"{i}.{end}" for i in range(50) for end in ("tar", "cls")],
    ),
    "no magic, and a folder by its slash": (
        header(b"d/", 1, kind=b"\0", magic=b"") + member(b"d/a.txt", b"a", kind=b"\0", magic=b""),
        ["d/a.txt"],
    ),
    "global path": (pax({b"path": b"g.txt"}, kind=b"g") + A + A, ["g.txt", "g.txt"]),
    "first a GNU name, then PAX": (LONG_NAME + PAX_NAME + A, ["long.txt"]),
    "first PAX, then a GNU name": (PAX_NAME + LONG_NAME + A, ["pax.txt"]),
    "PAX between GNU link and name": (LONG_LINK + PAX_NAME + LONG_NAME + A, ["pax.txt"]),
    "bytes after names": (
        b"".join(member(name, b"") for name in [b"a.txt\0junk", b"b.txt"] * 600),
        ["a.txt", "b.txt"] * 600,
    ),
    "links to links": (
        member(b"./a.txt", b"abc") + link(b"b.txt", b"a.txt\0junk") + link(b"c.txt", b"b.txt"),
        ["./a.txt", "b.txt", "c.txt"],
    ),
    "long target of a link": (
        member(b"././@LongLink", TARGET + b"\0", kind=b"L") + member(b"t", b"abc")
        + member(b"././@LongLink", TARGET + b"\0", kind=b"K") + header(b"b.txt", 0, kind=b"1"),
        [TARGET.decode(), "b.txt"],
    ),
    "links to the last of a name": (
        member(b"a.txt", b"one") + b"".join(HIDDEN_LINK),
        ["a.txt", "b.txt", "a.txt", "c.txt"],
    ),
    **{
        f"links to what {hider} hides": (
            member(b"a.txt", b"one") + head + b"".join(HIDDEN_LINK),
            ["a.txt", "a.txt", "c.txt"],
        )
        for hider, head in HIDERS.items()
    },
}  # fmt: skip


@pytest.mark.parametrize("case", ODD)
def test_odd_archives_equal_tarfile(scan, case):
    """Numbers, magics, names and links as old writers wrote them are read as by tarfile."""
    content, names = ODD[case]
    found = listed(scan(content + END))
    assert found == tarfiles(content + END)
    assert [name for name, *_ in found] == names


def test_what_is_no_member_is_counted(scan):
    """Folders, links without data, devices and types of vendors are counted by their kind."""
    kinds = b"".join(header(b"%c" % kind, 0, kind=b"%c" % kind) for kind in b"52634")
    links = link(b"b.txt", b"z.txt") + link(b"d.txt", b"nowhere")
    found = scan(kinds + member(b"a.txt", b"") + member(b"z.txt", b"two", kind=b"Z") + links + END)
    assert [name for name, *_ in listed(found)] == ["a.txt"]
    assert found.skipped == {
        "directory": 1,
        "symbolic link": 1,
        "device or pipe": 3,
        "type 'Z'": 1,
        "hard link to no earlier member": 2,
    }


def test_member_of_nine_gibibytes(tmp_path):
    """A size beyond eleven octal digits is read in all three encodings."""
    size = 9 << 30
    spellings = [
        (b"\x80" + size.to_bytes(11, "big"), b""),
        (b"%012o" % size, b""),
        (b"%011o\0" % 0, pax({b"size": b"%d" % size})),
    ]
    for stated, before in spellings:
        path = tmp_path / "heavy.tar"
        with path.open("wb") as stream:
            stream.write(before + sized(b"a.bin", stated))
            stream.seek(size, os.SEEK_CUR)
            stream.write(member(b"b.txt", b"x") + END)
        start = 512 + len(before)
        assert listed(scan_tar(path)) == [("a.bin", start, size), ("b.txt", start + size + 512, 1)]


def negative_size(content):
    """Return a member whose header states a size of -3, as GNU tar writes numbers below zero."""
    block = bytearray(content[:512])
    block[124:136] = b"\xff" * 11 + b"\xfd"
    return repair_checksum(block) + content[512:]


# Lengths that do not fit, missing keys, and empty or cut values.
PAX_BODIES = [
    b"garbage!", b"5 a=", b"6 a=b", b"6 =bb\n", b"5 path=\n", b"07path=a\n", b"11 path=a\0\n",
    b"8 path=\n", b"8 path=a", b"0 a=b\n",
]  # fmt: skip


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (pax({b"path": b"a"}) + pax({b"path": b"b"}) + member(b"a", b""), "differ in 'path'"),
        (pax({b"path": b"a"}) + pax({b"mtime": b"1"}) + member(b"a", b""), "differ in 'path'"),
        (pax({b"path": b"a/"}) + member(b"a", b""), "of a directory"),
        (pax({b"size": b"3"}, kind=b"g") + member(b"a", b"abc"), "global PAX header"),
        (pax({b"path": b"n" * 5000}, kind=b"g") + member(b"a", b""), "'path' of at most 4096"),
        (pax({b"linkpath": b"n" * 5000}, kind=b"g") + member(b"a", b""), "'linkpath' of at most"),
        (pax({b"size": b"3"}) + negative_size(member(b"a", b"abc")), "at least 0"),
        (
            pax({b"mtime": b"1"})[:523] + b"9 path=a;".ljust(501) + member(b"a", b""),
            "continues after its end",
        ),
        (
            header(b"L", 3, kind=b"L") + b"long".ljust(512, b"\0") + member(b"a", b""),
            "continues after its end",
        ),
        *(
            (field(place, b"dos", header(b"a", 0)), "header field '")
            for place in (100, 108, 116, 136, 329, 337)
        ),
        *((member(b"x", body, kind=b"x") + member(b"a", b""), "PAX") for body in PAX_BODIES),
        *(
            (pax({b"size": size}) + member(b"a", b"abc"), "decimal digits")
            for size in (b"+1", b"1.0", b"1e3", b"0x1", b"9" * 21, b" 1")
        ),
        (
            pax({b"linkpath": b"a"}) + member(b"K", b"b\0", kind=b"K") + header(b"c", 0, kind=b"1"),
            "a PAX link path differ",
        ),
        (pax({b"a": b"b"}) * 17 + member(b"a", b""), "16 extended headers"),
        (header(b"x", 1 << 21, kind=b"x"), "at most 1048576 bytes"),
        *(
            (sized(b"a", size), "expected")
            for size in (b"-0000001000", b"+1", b"0o000000010", b"0_10", b"1 2", b"8", b"\x81\0")
        ),
        *((sized(b"a", base_256(size)), "expected") for size in (-1, -512)),
        *((sized(b"a", base_256(s)), "end of the file at byte") for s in (1 << 40, (1 << 88) - 1)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_refused(refused, content, why):
    """Damaged, ambiguous or unsupported archives are refused with offset and reason."""
    assert why in refused(content + END)


def test_what_is_no_regular_file_is_refused(tmp_path):
    """Pipes, devices and folders are refused without waiting or reading."""
    pipe = tmp_path / "pipe.tar"
    os.mkfifo(pipe)
    for path in (pipe, "/dev/zero"):
        with pytest.raises(ShardFormatError, match="expected a regular file"):
            scan_tar(path)
    with pytest.raises(IsADirectoryError):
        scan_tar(tmp_path)


@pytest.mark.parametrize(
    ("start", "kind"),
    [
        (b"\x1f\x8b\x08", "gzip data"),
        (b"\x28\xb5\x2f\xfd", "zstd"),
        (b"BZh9", "bzip2"),
        (b"\xfd7zXZ\0", "xz"),
        (b"PK\3\4", "zip"),
        (b"{", "JSON"),
        (b"<html>", "HTML"),
        (b"x", "no tar"),
    ],
)
def test_what_is_no_tar_is_named(refused, start, kind):
    """The error for a compressed file or an error page, long or short, names its type."""
    assert kind in refused(start.ljust(2048, b"z"))
    message = refused(start.ljust(100, b"z"))
    assert kind in message
    assert "100 bytes in all" in message
    assert "cut off" not in message


UNREADABLE = Path("/sys/class/net/lo/speed")  # a file of 4,096 bytes that fails to be read


@pytest.mark.skipif(not UNREADABLE.exists(), reason="needs a file that fails to be read")
def test_a_file_that_fails_to_be_read_is_an_error_of_the_shard():
    """The message names the file and what the system said."""
    with pytest.raises(ShardFormatError, match=f"{UNREADABLE}: expected to read .*argument"):
        scan_tar(UNREADABLE)


@pytest.mark.parametrize("left", [1024, 1025, 1536, 60_000, 80_000])
def test_padding_that_is_cut_off_while_it_is_read_is_an_error(tmp_path, left):
    """A scan ends with an error where a file becomes shorter within the zeros after the archive."""
    path = tmp_path / "a.tar"
    path.write_bytes(END + bytes(100_000))
    with path.open("rb") as file:
        source = TarBytes.of_file(path, file.fileno())
        os.truncate(path, left)
        with pytest.raises(ShardFormatError, match="became shorter while it was read"):
            scan_bytes(source)


@pytest.mark.parametrize("tar_format", FORMATS.values(), ids=FORMATS)
def test_every_truncation_is_an_error(tmp_path, tar_format):
    """A tar that is cut at any byte is an error that names an offset."""
    path = tmp_path / "whole.tar"
    members = [(f"{i}{'n' * 60}.txt", b"y" * 700) for i in range(3)]
    content = tar_bytes(members, tar_format, mtime=0.5)
    data_end = max(offset + size for _, offset, size in tarfiles(content)) // 512 * 512 + 512
    end = data_end + 1024  # the rest is padding, which no reader needs
    for cut in [*range(0, end, 100), *range(0, end, 512), end - 1]:
        path.write_bytes(content[:cut])
        with pytest.raises(ShardFormatError, match=r"at byte \d+"):
            scan_tar(path)


def test_very_many_global_records(scan):
    """A global path applies among tens of thousands of records, which no member goes through."""
    comments = {b"comment%d" % i: b"x" for i in range(20_000)}
    content = pax({b"path": b"g.txt"} | comments, kind=b"g") * 3 + member(b"a", b"") * 2
    own = b"".join(pax({b"path": b"m%d.txt" % i}) + member(b"b", b"") for i in range(2_000))
    names = [name for name, *_ in listed(scan(content + own + END))]
    assert names == ["g.txt", "g.txt", *(f"m{i}.txt" for i in range(2_000))]


def test_what_follows_the_end_is_reported(scan):
    """Bytes after the end are counted, zeros are ignored, and another archive is refused."""
    one, two = (member(b"%d.txt" % i, b"x") + END for i in range(2))
    assert scan(one + bytes(10_000)).trailing_nbytes == 0
    taped = scan(one + bytes(2048) + b"tape" * 128)
    assert (len(taped.spans), taped.trailing_nbytes) == (1, 512)
    place = len(one) + 2048
    with pytest.raises(ShardFormatError, match=f"at byte {place}: .* another archive") as refused:
        scan(one + bytes(2048) + two)
    assert "concatenated=True" in str(refused.value)
    assert "wids reshard --concatenated" in str(refused.value)
    assert "if not, zeros took the place of members before it" in str(refused.value)
    both = scan(one + bytes(2048) + two, concatenated=True)
    assert [name for name, *_ in listed(both)] == ["0.txt", "1.txt"]
    assert both.trailing_nbytes == 0


@pytest.mark.parametrize(
    ("end", "nbytes", "doubtful"),
    [
        (1024, 2048, False),  # no padding
        (1024, 10_240, False),
        (9728, 20_480, False),  # GNU tar's record, begun anew for the second zero block
        (1024, 1 << 20, False),  # tar --blocking-factor=2048
        (1024, 40_960, True),
        (1024, 409_600, True),
        (1 << 20, 2_100_224, True),
    ],
)
def test_zeros_that_are_no_padding_are_doubtful(end: int, nbytes: int, doubtful: bool) -> None:
    """The end of a shard that became zeros reads as an end, but goes on for too long."""
    doubt = IndexSource(nbytes=nbytes, end=end).doubt
    assert bool(doubt) == doubtful
    assert not doubt or doubt.startswith(f"{nbytes - end} zero bytes")


# Names as people have them: any bytes but zero, no slash at the end, some long.
names = st.lists(
    st.binary(min_size=1, max_size=120).map(lambda b: b.replace(b"\0", b"0").replace(b"/", b"_")),
    min_size=1, max_size=4,
).map(b"/".join)  # fmt: skip


types = st.sampled_from(
    [tarfile.REGTYPE] * 4
    + [tarfile.AREGTYPE, tarfile.CONTTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE]
    + [tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE]
)
slow = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def write_members(path, members, tar_format, mtime):
    """Write members of any type with tarfile; links point to the first member."""
    with tarfile.open(path, "w", format=tar_format, encoding="utf-8") as archive:
        for name, size, kind in members:
            info = tarfile.TarInfo(os.fsdecode(name))
            info.type, info.mtime, info.linkname = kind, mtime, os.fsdecode(members[0][0])
            info.size = size if info.isreg() else 0
            archive.addfile(info, io.BytesIO(bytes(info.size)))


@slow
@given(
    members=st.lists(
        st.tuples(names, st.integers(0, 1600) | st.integers(0, 40_000), types), max_size=12
    ),
    tar_format=st.sampled_from(list(FORMATS.values())),
    mtime=st.sampled_from([0, 1.5]),
)
def test_any_names_sizes_and_types(tmp_path, members, tar_format, mtime):
    """Members of any name, size and type that tarfile writes are found at the same offsets."""
    path = tmp_path / "any.tar"
    if tar_format == tarfile.USTAR_FORMAT:
        members = [each for each in members if len(each[0]) < 100]
    write_members(path, members, tar_format, mtime)
    assert listed(scan_tar(path)) == tarfiles(path.read_bytes())


@pytest.mark.skipif(shutil.which("tar") is None, reason="GNU tar is not installed")
@settings(slow)
@given(
    members=st.lists(st.tuples(names.filter(lambda n: b"\n" not in n), st.integers(0, 1600),
                               st.just(tarfile.REGTYPE)), max_size=8),
    tar_format=st.sampled_from([tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]),
)  # fmt: skip
def test_any_names_as_gnu_tar_lists_them(tmp_path, members, tar_format):
    """Names are byte for byte those that GNU tar lists."""
    path = tmp_path / "any.tar"
    write_members(path, members, tar_format, 0)
    command = ["tar", "--quoting-style=literal", "-P", "-tf", path]
    listing = subprocess.run(command, check=True, capture_output=True)
    found = [os.fsencode(name) for name, *_ in listed(scan_tar(path))]
    assert found == listing.stdout.split(b"\n")[:-1]


def read_of(content: bytes) -> TarBytes:
    """The bytes of a tar in memory, for a scan."""

    def read_into(buffers: list[memoryview], position: int) -> int:
        done = 0
        for buffer in buffers:
            part = content[position + done :][: len(buffer)]
            buffer[: len(part)] = part
            done += len(part)
        return done

    return TarBytes(
        path="t.tar",
        nbytes=len(content),
        mtime_ns=0,
        read=lambda nbytes, position: content[position : position + nbytes],
        read_into=read_into,
        changed=lambda: False,
    )


def found_at_once(content: bytes) -> object:
    """What a scan finds, or how it refuses the tar."""
    try:
        return listed(scan_bytes(read_of(content)))
    except ShardFormatError as error:
        return str(error)


def found_step_by_step(content: bytes) -> object:
    """The same by the scan that reads one header at a time."""
    walk = HeaderWalk(read_of(content), concatenated=False)
    position: int | None = 0
    try:
        while position is not None:
            position = walk.step(position)
    except ShardFormatError as error:
        return str(error)
    return listed(walk.members())


def altered(head: bytes, place: int, value: int, *, repaired: bool) -> bytes:
    """A header with another byte."""
    changed = head[:place] + bytes([value]) + head[place + 1 :]
    return repair_checksum(bytearray(changed)) if repaired and not 148 <= place < 156 else changed


@pytest.mark.parametrize("where", ["first", "middle", "last", "all", "all but one"])
@pytest.mark.parametrize("kind", ["tarfile", "pax", "long"])
def test_any_byte_counts_in_a_run(where: str, kind: str) -> None:
    """Headers with one other byte, in one of them or in all, are read in runs as one by one."""
    chosen = random.Random(where + kind)
    before = pax({b"mtime": b"1.5"}) if kind == "pax" else b""
    folder = b"f" * 90 if kind == "long" else b"f"
    sizes = [n * 40 if kind == "long" else n + 1 for n in range(9)]  # at equal distances or not
    heads = [header(b"%s/%05d.txt" % (folder, n), size) for n, size in enumerate(sizes)]
    numbers = {
        "first": [0],
        "middle": [4],
        "last": [8],
        "all": range(9),
        "all but one": range(1, 9),
    }
    for place in range(512):
        value = chosen.choice([0, ord(" "), ord("/"), chosen.choice(b"01234567"), 0x80, 255])
        repaired = chosen.random() < 0.7
        content = b"".join(
            before
            + (altered(head, place, value, repaired=repaired) if n in numbers[where] else head)
            + bytes(sizes[n] + -sizes[n] % 512)
            for n, head in enumerate(heads)
        )
        found = found_at_once(content + END)
        assert found == found_step_by_step(content + END), (place, value, repaired)
