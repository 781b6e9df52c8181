"""Mutants of good tars and good sidecars, and what must hold for each of them.

`python tools/fuzz_tar.py` runs millions; `test_tar_fuzz.py` runs a short form. A tar that is
accepted must read as Python's tarfile reads it (guarded against its endless loops), or, where
tarfile stands alone, as GNU tar does. A sidecar that is accepted must give the undamaged samples.
"""

import contextlib
import io
import os
import random
import re
import struct
import subprocess
import tarfile
import time
from collections import Counter
from pathlib import Path

from helpers.sidecarbytes import HEADER_NBYTES, fingerprinted, sealed
from helpers.tarbytes import END, header, member, pax, repair_checksum
from wids.errors import ShardFormatError
from wids.tar.shard import Shard
from wids.tar.tarindex import TarIndex
from wids.tar.tarscan import scan_tar

TYPES = b"0\x001234567xgLKSXMNVAD\xff "
SIZES = [0, 1, 511, 512, 513, 1024, 1 << 20, 1 << 31, (1 << 33) - 1]
LISTED = re.compile(r"(.)\S+ \S+ +(\d+) \S+ \S+ (.*)")
RECORDS = [
    {b"path": b"new.txt"}, {b"size": b"3"}, {b"size": b"600"}, {b"size": b"-512"}, {b"path": b""},
    {b"mtime": b"1.5"}, {b"path": b"a/b/"}, {b"GNU.sparse.major": b"1"}, {b"linkpath": b"0.txt"},
    {b"hdrcharset": b"BINARY", b"path": b"\xff.x"}, {b"comment": b"x" * 600},
]  # fmt: skip


class GuardedTarInfo(tarfile.TarInfo):
    """A TarInfo that raises on negative sizes, where tarfile of old goes round in circles."""

    def _block(self, count):
        if count < 0:
            raise tarfile.InvalidHeaderError("negative size")
        return super()._block(count)


def seeds(chance):
    """Return small good tars of all dialects."""
    found = []
    for tar_format in (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT) * 4:
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w", format=tar_format) as archive:
            for i in range(chance.randint(1, 7)):
                info = tarfile.TarInfo(f"{'d/' * chance.randint(0, 2)}{i}.{chance.choice('ab')}")
                if tar_format != tarfile.USTAR_FORMAT and chance.random() < 0.2:
                    info.name = "long" * 30 + info.name
                info.mtime = chance.choice([0, 1.5])
                info.type = chance.choice([b"0"] * 6 + [b"5", b"2", b"1"])
                info.linkname = "0.a" if info.type in b"12" else ""
                info.size = chance.choice([0, 3, 512, 700]) if info.type == b"0" else 0
                archive.addfile(info, io.BytesIO(chance.randbytes(info.size)))
        found.append(buffer.getvalue()[: -chance.choice([1, 8000])].rstrip(b"\0"))
    found = [content + bytes(-len(content) % 512) + END for content in found]
    v7 = b"".join(member(b"%d.x" % i, b"y" * 99, kind=b"\0", magic=b"") for i in range(3))
    return [*found, v7 + END, member(b"a.x", b"", prefix=b"dir") + member(b"b.x", b"z") + END]


def mutate(chance, content):
    """Return a mutant of a tar: bytes, fields, blocks, or its end changed."""
    content = bytearray(content)
    for _ in range(chance.choice([1, 1, 1, 2, 3])):
        block = 512 * chance.randrange(max(len(content) // 512, 1))
        kind = chance.randrange(12)
        if kind == 0 and content:
            content[chance.randrange(len(content))] = chance.randrange(256)
        elif kind == 1:
            del content[chance.randrange(len(content) + 1) :]
        elif kind == 2:
            del content[block : block + 512]
        elif kind == 3:
            content[block:block] = content[block : block + 512 * chance.choice([1, 2])]
        elif kind == 4:
            content[block:block] = bytes(512)
        elif kind == 5:
            content[block:block] = pax(chance.choice(RECORDS), kind=chance.choice([b"x", b"g"]))
        elif kind == 6:
            name = chance.choice([b"long.name\0", b"", b"0.a\0", b"x" * 600 + b"\0"])
            content[block:block] = member(b"L", name, kind=chance.choice([b"L", b"K"]))
        elif kind == 7:
            content[block:block] = header(
                b"0.a", chance.choice(SIZES), kind=chance.choice([b"0", b"1"])
            )
        else:
            change_field(chance, content, block)
    return bytes(content)


def change_field(chance, content, block):
    """Change one field of what may be a header, mostly with its checksum set right again."""
    head = content[block : block + 512]
    if len(head) < 512:
        return
    kind = chance.randrange(5)
    if kind == 0:
        head[156] = chance.choice(TYPES)
    elif kind == 1:
        head[124:136] = b"%011o\0" % chance.choice(SIZES)
    elif kind == 2:
        spellings = [b"-0000001000\0", b" 17        \0", b"\x80" + bytes(10) + b"\x07",
                     b"\xff" * 12, b"0o17\0       ", b"000000000003", bytes(12)]  # fmt: skip
        head[124:136] = chance.choice(spellings)
    elif kind == 3:
        magics = [b"ustar\x0000", b"ustar  \0", bytes(8), b"ustar 00"]
        head[257:265] = chance.choice(magics)
        head[345 : 345 + 3] = chance.choice([b"abc", bytes(3)])
    else:
        head[chance.randrange(512)] = chance.randrange(256)
    content[block : block + 512] = repair_checksum(head) if chance.random() < 0.9 else head


def ours(path):
    """Return the members that the scan finds, None if it refuses."""
    try:
        members = scan_tar(path)
    except ShardFormatError:
        return None
    names = members.names.decode("utf-8", "surrogateescape").split("\0")[:-1]
    return [(name, *span) for name, span in zip(names, members.spans.tolist(), strict=True)]


def tarfiles(content):
    """Return the members as tarfile lists them, hard links with their targets' bytes."""
    found = []
    with (
        contextlib.suppress(Exception),
        tarfile.open(fileobj=io.BytesIO(content), tarinfo=GuardedTarInfo, errorlevel=2) as archive,
    ):
        for info in archive:
            target = info
            with contextlib.suppress(KeyError, RecursionError):
                while target.islnk():
                    target = archive._find_link_target(target)
                if target.isreg() and not info.name.endswith("/"):
                    found.append((info.name, target.offset_data, target.size))
    return found


def gnu_lists(path):
    """Return names and sizes of regular files as GNU tar lists them."""
    command = ["tar", "--quoting-style=literal", "--numeric-owner", "-tvf", path]
    listing = subprocess.run(command, capture_output=True, check=False, timeout=120)
    rows = map(LISTED.fullmatch, os.fsdecode(listing.stdout).splitlines())
    files = [(row[3], int(row[2])) for row in rows if row and row[1] in "-C"]
    return [(name, size) for name, size in files if not name.endswith("/")]


def try_tar(path, content, tally):
    """Scan one mutant; return what is wrong with the outcome, None if nothing."""
    path.write_bytes(content)
    start = time.process_time()  # of this process: others may have the processor meanwhile
    try:
        found = ours(path)
    except Exception as error:  # noqa: BLE001
        return f"crash: {error!r}"
    if time.process_time() - start > 1:
        return "took over a second"
    if found is None:
        tally["refused"] += 1
        return None
    if found == tarfiles(content):
        tally["equal to tarfile"] += 1
        return None
    sizes = {(name.partition("\n")[0], size) for name, _, size in found}  # as a listing has them
    if sizes >= set(gnu_lists(path)) and len(found) >= len(gnu_lists(path)):
        tally["equal to GNU tar, not to tarfile"] += 1
        return None
    return f"differs: {found} tarfile {tarfiles(content)} GNU tar {gnu_lists(path)}"


def fuzz_tars(num_inputs, seed, folder):
    """Try mutants of tars; return the tally and the failures as `(what, content)`."""
    chance = random.Random(seed)
    tally, failures = Counter(), []
    path = Path(folder) / f"mutant-{os.getpid()}.tar"
    good = []
    for count in range(num_inputs):
        if count % 2000 == 0:
            good = seeds(chance)
        content = mutate(chance, chance.choice(good))
        wrong = try_tar(path, content, tally)
        if wrong:
            failures.append((wrong, content))
    path.unlink(missing_ok=True)
    return tally, failures


def samples_of(path, sidecar):
    """Return all samples of a shard, copied, by way of a sidecar."""
    shard = Shard(path, TarIndex.load(sidecar))
    return [shard.read(place, copy=True) for place in range(min(len(shard), 100))]


def damage(chance, image, shard):
    """Return a damaged sidecar, and whether somebody made its check fit again."""
    image = bytearray(image)
    for _ in range(chance.choice([1, 1, 2, 4])):
        kind, place = chance.randrange(5), chance.randrange(len(image))
        if kind == 0:
            image[place] = chance.randrange(256)
        elif kind == 1:
            start = place // 8 * 8
            value = chance.choice([0, 1, 511, 1 << 31, (1 << 32) - 1, (1 << 63) - 1, 1 << 63])
            image[start : start + 8] = struct.pack("<Q", value)
        elif kind == 2:
            start = 40 + 8 * chance.randrange(6)
            image[start : start + 8] = struct.pack(
                "<Q", chance.randrange(1 << chance.randrange(1, 64))
            )
        elif kind == 3:
            del image[place:]
            image += bytes(chance.choice([0, len(image)]))
        else:
            image[place : place + 16] = chance.randbytes(16)
        if len(image) < HEADER_NBYTES:
            return bytes(image), False
    hostile = chance.random() < 0.5
    return sealed(fingerprinted(image, shard)) if hostile else bytes(image), hostile


def fuzz_sidecars(num_inputs, seed, folder):
    """Try damaged sidecars; return the tally and the failures as `(what, content)`."""
    chance = random.Random(seed)
    tally, failures = Counter(), []
    path = Path(folder) / f"shard-{os.getpid()}.tar"
    sidecar = Path(folder) / f"shard-{os.getpid()}.widx"
    names = [b"README", *(b"%d.%s" % (i // 2, b"ab"[i % 2 : i % 2 + 1]) for i in range(9)), b"x.c"]
    path.write_bytes(b"".join(member(name, name * i) for i, name in enumerate(names)) + END)
    TarIndex.from_tar(path).save(sidecar)
    shard = path.read_bytes()
    good, expected = sidecar.read_bytes(), samples_of(path, sidecar)
    for _ in range(num_inputs):
        image, hostile = damage(chance, good, shard)
        sidecar.write_bytes(image)
        start = time.process_time()
        try:
            found = samples_of(path, sidecar)
        except ShardFormatError:
            tally["refused"] += 1
            continue
        except Exception as error:  # noqa: BLE001
            failures.append((f"crash: {error!r}", image))
            continue
        if time.process_time() - start > 1:
            failures.append(("took over a second", image))
        right = found == expected
        tally["right" if right else "hostile, within bounds"] += 1
        if not right and not hostile:
            failures.append((f"other samples: {found}", image))
    path.unlink()
    sidecar.unlink()
    return tally, failures
