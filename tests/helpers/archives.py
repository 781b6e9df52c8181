"""Tar archives of every kind: packed by the tar programs of this machine, and built by hand.

`pack_all` packs one folder with each program and dialect there is. `GOOD` has odd headers that no
program writes, each with the members that a reader must give, `BAD` those that must be refused.
`installed_readers` gives the readers to compare with: Python's tarfile, GNU tar and bsdtar.
"""

import bz2
import contextlib
import gzip
import lzma
import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

from helpers.tarbytes import END, header, member, pax, repair_checksum
from helpers.tarfuzz import GuardedTarInfo

# One locale for all programs: libarchive drops names that it cannot convert.
ENVIRONMENT = {**os.environ, "LC_ALL": "C.UTF-8"}

Members = list[tuple[bytes, bytes]]


def run(*command: str | os.PathLike[str], folder: Path, names: bytes = b"") -> int:
    """Run a program in a folder with names on its standard input; return its exit status."""
    return subprocess.run(
        command, cwd=folder, input=names, capture_output=True, env=ENVIRONMENT, check=False
    ).returncode


# What is packed.


def content_of(name: bytes, nbytes: int) -> bytes:
    """Return bytes that are different for each file."""
    return (name * (nbytes // len(name) + 1))[:nbytes]


NAMES = {
    b"a.jpg": 1000,
    b"a.cls": 1,
    b"empty.txt": 0,
    b"sub/block.bin": 512,
    b"sub/blocks.bin": 1024,
    b"sub/large.bin": 300_000,
    b"sub/.hidden.txt": 3,
    b"noextension": 20,
    b"two  blanks .txt": 5,
    b"quote'\"\\.txt": 5,
    b"line\nbreak.txt": 5,
    "ä €.txt".encode(): 6,
    b"\xe4\xff.txt": 7,
    b"n" * 95 + b".text": 100,  # 100 bytes, which every header holds
    b"n" * 96 + b".text": 101,
    b"d" * 90 + b"/" + b"f" * 90 + b".txt": 185,  # fits prefix and name of ustar
    b"D" * 120 + b"/" + b"F" * 120 + b".txt": 245,
    b"/".join([b"deep" * 20] * 5) + b"/x.txt": 400,  # longer than all of a ustar header
    b"tail.txt": 3,
}
TREE = {name: content_of(name, nbytes) for name, nbytes in NAMES.items()}


def make_tree(folder: Path) -> None:
    """Write the files of `TREE`, a symbolic link, a hard link and an empty folder."""
    for name, content in TREE.items():
        path = folder / os.fsdecode(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        os.utime(path, ns=(0, 1_700_000_000_123_456_789))
    (folder / "zz-hard.jpg").hardlink_to(folder / "a.jpg")
    (folder / "soft.jpg").symlink_to("a.jpg")
    (folder / "hollow").mkdir()


# The names that programs are given; folders come into being as files are put there.
PACKED = [*TREE, b"zz-hard.jpg", b"soft.jpg", b"hollow"]

# How each program packs: its arguments, in which "{out}" is the archive. The names follow.
_GNU = "tar -cf {out} --format="
_BSD = "bsdtar -cf {out} --format="
WRITERS = {
    "gnu v7": f"{_GNU}v7",
    "gnu oldgnu": f"{_GNU}oldgnu",
    "gnu gnu": f"{_GNU}gnu",
    "gnu ustar": f"{_GNU}ustar",
    "gnu posix": f"{_GNU}posix",
    "gnu small blocks": f"{_GNU}gnu -b 1",
    "gnu large blocks": f"{_GNU}gnu -b 512",
    "gnu large numbers": f"{_GNU}gnu --owner=:3000000 --group=:4000000 --mtime=@-5",
    "gnu posix large numbers": f"{_GNU}posix --owner=:99999999 --mtime=@9999999999",
    "gnu label": f"{_GNU}gnu --label=volume",
    "gnu posix label": f"{_GNU}posix --label=volume",
    "gnu posix incremental": f"{_GNU}posix --incremental",
    "gnu posix global": f"{_GNU}posix --pax-option=globexthdr.name=g,comment=all",
    "gnu posix options": f"{_GNU}posix --pax-option=exthdr.name=%d/x/%f,delete=atime",
    "gnu posix attributes": f"{_GNU}posix --xattrs --acls --selinux",
    "gnu posix renamed": f"{_GNU}posix --transform=s,^,./some/prefix/,",
    "gnu no links": f"{_GNU}gnu --hard-dereference --dereference",
    "bsdtar v7": f"{_BSD}v7tar",
    "bsdtar ustar": f"{_BSD}ustar",
    "bsdtar gnu": f"{_BSD}gnutar",
    "bsdtar pax": f"{_BSD}pax",
    "bsdtar restricted pax": "bsdtar -cf {out}",
    "busybox": "busybox tar -cf {out}",
    "pax ustar": "pax -wd -x ustar -f {out}",
    "pax v7": "pax -wd -x tar -f {out}",
}  # fmt: skip
# These read the names from their standard input.
FILTERS = {
    "cpio v7": "cpio --quiet -o0 -H tar -O {out}",
    "cpio ustar": "cpio --quiet -o0 -H ustar -O {out}",
    "bsdcpio pax": "bsdcpio --quiet -o0 -H pax -O {out}",
    "bsdcpio ustar": "bsdcpio --quiet -o0 -H ustar -O {out}",
}
PYTHONS = {
    "tarfile ustar": tarfile.USTAR_FORMAT,
    "tarfile gnu": tarfile.GNU_FORMAT,
    "tarfile pax": tarfile.PAX_FORMAT,
}


def is_installed(command: str) -> bool:
    """Return whether this machine has the program of a command."""
    program = command.split(maxsplit=1)[0]
    if shutil.which(program) is None:
        return False
    return program != "tar" or _tar_is_gnu()


@cache
def _tar_is_gnu() -> bool:
    # On other systems than Linux, libarchive's goes by that name.
    return (
        b"GNU tar" in subprocess.run(["tar", "--version"], capture_output=True, check=True).stdout
    )


def installed_writers() -> list[str]:
    """Return the installed programs and dialects for packing."""
    commands = {**WRITERS, **FILTERS}
    return [*PYTHONS, *(name for name, command in commands.items() if is_installed(command))]


def pack(writer: str, folder: Path, archive: Path) -> None:
    """Pack the tree in one dialect, without files that it cannot store."""
    if writer in PYTHONS:
        pack_by_tarfile(folder, archive, PYTHONS[writer])
        return
    command = (WRITERS | FILTERS)[writer].replace("{out}", str(archive)).split()
    if writer in WRITERS:
        run(*command, *map(os.fsdecode, PACKED), folder=folder)
    else:
        run(*command, folder=folder, names=b"".join(name + b"\0" for name in PACKED))


def pack_by_tarfile(folder: Path, archive: Path, dialect: int) -> None:
    """Pack the tree by Python's tarfile."""
    with tarfile.open(archive, "w", format=dialect) as tar:
        for name in map(os.fsdecode, PACKED):
            with contextlib.suppress(ValueError):  # too long for the dialect
                tar.add(folder / name, name, recursive=False)


# What others read.


def read_by_tarfile(archive: Path) -> Members | None:
    """Return the files that Python's tarfile reads; None where it reports an error."""
    try:
        with tarfile.open(archive, "r:", tarinfo=GuardedTarInfo) as tar:
            return [
                (os.fsencode(entry.name), tar.extractfile(entry).read())
                for entry in tar
                if entry.isreg() or entry.islnk()
            ]
    except (tarfile.TarError, ValueError, OSError, KeyError, OverflowError, MemoryError):
        return None


def read_by_program(program: str, archive: Path) -> Members | None:
    """Return the files that a program extracts; None where it reports an error."""
    with tempfile.TemporaryDirectory() as folder:
        status = run(program, "-xf", archive, "--no-same-owner", folder=Path(folder))
        files = [path for path in Path(folder).rglob("*") if path.is_file()]
        found = [
            (os.fsencode(path.relative_to(folder)), path.read_bytes())
            for path in files
            if not path.is_symlink()
        ]
        return found if status == 0 else None


def installed_readers() -> dict[str, Callable[[Path], Members | None]]:
    """Return the installed readers of archives, by name."""
    programs = [name for name in ("tar", "bsdtar") if is_installed(name)]
    return {"tarfile": read_by_tarfile} | {p: partial(read_by_program, p) for p in programs}


# What no program writes.


def field(start: int, value: bytes, block: bytes) -> bytes:
    """Return a header with changed bytes in one field and a valid checksum."""
    return repair_checksum(block[:start] + value + block[start + len(value) :])


def sized(name: bytes, size: bytes) -> bytes:
    """Return a header with the given size field."""
    return field(124, size.ljust(12, b"\0"), header(name, 0))


def base_256(number: int) -> bytes:
    """Return a number as GNU tar writes large and negative ones."""
    return number.to_bytes(12, "big", signed=True) if number < 0 else b"\x80" + number.to_bytes(11)


def padded(content: bytes) -> bytes:
    """Return data padded to whole blocks."""
    return content + bytes(-len(content) % 512)


def link(name: bytes, target: bytes, kind: bytes = b"1", size: int = 0) -> bytes:
    """Return the header of a link."""
    return field(157, target, header(name, size, kind=kind))


A = member(b"a.txt", b"alpha")
B = member(b"b.txt", b"beta")
ALPHA = padded(b"alpha")
GNU = b"ustar  \0"
LONG = b"long/" * 60 + b"x.txt"
HUGE = b"/".join([b"h" * 200] * 15) + b"/x.txt"
ODD = bytes(range(1, 47)) + bytes(range(48, 101))  # all bytes below 101 but the slash
HIGH = bytes(range(128, 224))

# Archives that must be read, each with its files in order.
ONE = [(b"a.txt", b"alpha")]
TWO = [(b"a.txt", b"alpha"), (b"b.txt", b"beta")]
GOOD: dict[str, tuple[bytes, Members]] = {
    "plain": (A + B + END, TWO),
    "no members": (END, []),
    "much padding": (A + bytes(1 << 16), ONE),
    # Sizes and other numbers.
    "size in base 256": (sized(b"a.txt", base_256(5)) + ALPHA + B + END, TWO),
    "size with blanks": (sized(b"a.txt", b"         5  ") + ALPHA + B + END, TWO),
    "size without an end": (sized(b"a.txt", b"000000000005") + ALPHA + B + END, TWO),
    "no size": (sized(b"a.txt", b"") + B + END, [(b"a.txt", b""), (b"b.txt", b"beta")]),
    "negative time": (field(136, base_256(-7), header(b"a.txt", 5)) + ALPHA + END, ONE),
    "large owner": (field(108, b"\x80\0\0\0\x40\0\0\0", header(b"a.txt", 5)) + ALPHA + END, ONE),
    # Names.
    "100 bytes": (member(b"n" * 96 + b".txt", b"alpha") + END, [(b"n" * 96 + b".txt", b"alpha")]),
    "full prefix": (
        member(b"n" * 96 + b".txt", b"alpha", prefix=b"p" * 155) + END,
        [(b"p" * 155 + b"/" + b"n" * 96 + b".txt", b"alpha")],
    ),
    "odd bytes": (member(ODD, b"alpha") + END, [(ODD, b"alpha")]),
    "high bytes": (member(HIGH, b"alpha") + END, [(HIGH, b"alpha")]),
    "blanks at the end": (member(b"a.txt  ", b"alpha") + END, [(b"a.txt  ", b"alpha")]),
    "absolute": (member(b"/abs/a.txt", b"alpha") + END, [(b"/abs/a.txt", b"alpha")]),
    "dots and slashes": (
        member(b"./a.txt", b"alpha") + member(b"d//b.txt", b"beta") + END,
        [(b"./a.txt", b"alpha"), (b"d//b.txt", b"beta")],
    ),
    "one name twice": (A + member(b"a.txt", b"again") + END, [*ONE, (b"a.txt", b"again")]),
    # PAX.
    "PAX path": (pax({b"path": LONG}) + A + B + END, [(LONG, b"alpha"), (b"b.txt", b"beta")]),
    "long PAX path": (pax({b"path": HUGE}) + A + END, [(HUGE, b"alpha")]),
    "PAX size": (pax({b"size": b"5"}) + header(b"a.txt", 0) + ALPHA + B + END, TWO),
    "many PAX records": (
        pax({b"mtime": b"1.5", b"path": LONG, b"comment": b"x" * 3000, b"size": b"5"})
        + header(b"a.txt", 0) + ALPHA + END,
        [(LONG, b"alpha")],
    ),
    "PAX path twice": (
        member(b"x", b"15 path=no.txt\n16 path=yes.txt\n", kind=b"x") + A + END,
        [(b"yes.txt", b"alpha")],
    ),
    "PAX path of any bytes": (
        pax({b"hdrcharset": b"BINARY", b"path": HIGH}) + A + END,
        [(HIGH, b"alpha")],
    ),
    "PAX path with a line break": (
        pax({b"path": b"line\nbreak=1.txt"}) + A + END,
        [(b"line\nbreak=1.txt", b"alpha")],
    ),
    "no PAX records": (header(b"x", 0, kind=b"x") + A + END, ONE),
    "global comment": (pax({b"comment": b"all"}, kind=b"g") + A + B + END, TWO),
    "many global headers": (
        b"".join(pax({b"comment": b"%d" % i}, b"g") + member(b"%d.txt" % i, b"") for i in range(9))
        + END,
        [(b"%d.txt" % i, b"") for i in range(9)],
    ),
    # GNU.
    "GNU long name": (
        member(b"././@LongLink", LONG + b"\0", kind=b"L", magic=GNU)
        + member(b"l", b"alpha", magic=GNU) + END,
        [(LONG, b"alpha")],
    ),
    "GNU very long name": (
        member(b"././@LongLink", HUGE + b"\0", kind=b"L", magic=GNU)
        + member(b"l", b"alpha", magic=GNU) + END,
        [(HUGE, b"alpha")],
    ),
    "GNU long name without its zero": (
        member(b"././@LongLink", LONG, kind=b"L", magic=GNU)
        + member(b"l", b"alpha", magic=GNU) + END,
        [(LONG, b"alpha")],
    ),
    "GNU volume label": (header(b"label", 0, kind=b"V", magic=GNU) + A + END, ONE),
    # Kinds of entries.
    "hard link": (A + link(b"l.txt", b"a.txt") + B + END, [*ONE, (b"l.txt", b"alpha"), TWO[1]]),
    "hard link by PAX": (
        pax({b"path": LONG}) + A + pax({b"linkpath": LONG}) + link(b"l.txt", b"x") + END,
        [(LONG, b"alpha"), (b"l.txt", b"alpha")],
    ),
    "entries without data": (
        header(b"d/", 0, kind=b"5") + link(b"s.txt", b"a.txt", b"2") + header(b"f", 0, kind=b"6")
        + A + END,
        ONE,
    ),
    "contiguous file": (member(b"a.txt", b"alpha", kind=b"7") + END, ONE),
    "zero for a kind": (member(b"a.txt", b"alpha", kind=b"\0") + END, ONE),
    "without magic": (member(b"a.txt", b"alpha", kind=b"\0", magic=b"") + END, ONE),
    "mixed dialects": (
        A + member(b"o.txt", b"1", magic=GNU) + member(b"v.txt", b"2", kind=b"\0", magic=b"")
        + pax({b"path": LONG}) + B + END,
        [*ONE, (b"o.txt", b"1"), (b"v.txt", b"2"), (LONG, b"beta")],
    ),
    # Data that look like an archive.
    "tar in a tar": (member(b"in.tar", A + B + END) + B + END, [(b"in.tar", A + B + END), TWO[1]]),
    "data like a header": (member(b"h.txt", A[:512]) + B + END, [(b"h.txt", A[:512]), TWO[1]]),
}  # fmt: skip

# Archives that must be refused: other readers report an error, too, or they read different things.
BAD = {
    "empty file": b"",
    "one byte": b"x",
    "a page": b"<html><body>Please log in</body></html>" * 40,
    "gzip": gzip.compress(A + END, mtime=0),
    "xz": lzma.compress(A + END),
    "bzip2": bz2.compress(A + END),
    "header cut off": A[:300],
    "data cut off": A[:515],
    "padding cut off": A[:700],
    "cut in a long name": member(b"././@LongLink", HUGE + b"\0", kind=b"L")[:1024],
    "cut after a PAX header": pax({b"path": LONG}),
    "end after a PAX header": pax({b"path": LONG}) + END,
    "end after a global header": A + pax({b"comment": b"all"}, kind=b"g") + END,
    "garbage for a header": A + b"\1" * 512 + B + END,
    "wrong checksum": A[:148] + b"000000\0 " + A[156:] + B + END,
    "wrong checksum later": A + B[:148] + b"000001\0 " + B[156:] + A + END,
    "size beyond the end": header(b"a.txt", 1 << 30) + ALPHA + END,
    "size beyond all": sized(b"a.txt", base_256((1 << 88) - 1)) + END,
    "negative size": sized(b"a.txt", base_256(-512)) + END,
    "negative octal size": sized(b"a.txt", b"-0000000512") + END,
    "size of letters": sized(b"a.txt", b"five") + END,
    "size of a link": A + link(b"l.txt", b"a.txt", size=5) + ALPHA + END,
    "size of a folder": header(b"d/", 5, kind=b"5") + ALPHA + A + END,
    "negative PAX size": pax({b"size": b"-1"}) + A + END,
    "PAX size of letters": pax({b"size": b"five"}) + B + END,
    "PAX size beyond the end": pax({b"size": b"99999"}) + A + END,
    "PAX record too long": member(b"x", b"99 path=a.txt\n", kind=b"x") + A + END,
    "PAX record too short": member(b"x", b"5 path=a.txt\n", kind=b"x") + A + END,
    "PAX record without a number": member(b"x", b"path=a.txt\n", kind=b"x") + A + END,
    "PAX path with a zero": pax({b"path": b"a\0b.txt"}) + A + END,
    "PAX header of a gigabyte": header(b"x", 1 << 30, kind=b"x") + END,
    "long name of a gigabyte": header(b"././@LongLink", 1 << 30, kind=b"L") + END,
    "old sparse file": member(b"a.txt", b"alpha", kind=b"S", magic=GNU) + END,
    "sparse file 0.1": pax({b"GNU.sparse.size": b"5", b"GNU.sparse.map": b"0,5"}) + A + END,
    "rest of another volume": member(b"a.txt", b"alpha", kind=b"M", magic=GNU) + END,
    "prefix of an old header": member(b"a.txt", b"1", magic=GNU, prefix=b"14000000000") + END,
}  # fmt: skip

# Archives that must be refused though others read them, all alike.
STRICT = {
    # Whoever fetched them may have lost the rest.
    "no end": A + B,
    "half an end": A + bytes(512),
    "zero block between members": A + bytes(512) + B + END,
    # Their data are no range of bytes of the archive.
    "sparse file 0.0": (
        pax({b"GNU.sparse.size": b"5", b"GNU.sparse.numblocks": b"1"}
            | {b"GNU.sparse.offset": b"0", b"GNU.sparse.numbytes": b"5"}) + A + END
    ),
    "sparse file 1.0": (
        pax({b"GNU.sparse.major": b"1", b"GNU.sparse.minor": b"0"}
            | {b"GNU.sparse.name": b"s.txt", b"GNU.sparse.realsize": b"5"})
        + member(b"a.txt", padded(b"1\n0\n5\n") + b"alpha") + END
    ),
}  # fmt: skip
