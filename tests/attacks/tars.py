"""Shards that would take memory or hours, or that lie about sizes, names and links."""

import gzip
import random
import zlib
from collections import Counter
from collections.abc import Callable
from functools import partial

import zstandard
from helpers.tarbytes import END, header, member, numbered, pax, repair_checksum
from helpers.tarfuzz import mutate, seeds, try_tar

from attacks.runner import BOUNDED, RIGHT, Attack, Family, Scene, Wrong
from wids.reading.shardlist import ShardList

SMALL = 300_000  # bytes of a shard that is compared with tarfile and GNU tar
MOST_READ = 300  # samples of a shard that are read
FEW, MANY, HUGE = 40, 3000, 20_000

Make = Callable[[random.Random], bytes]


def _size(chance: random.Random) -> int:
    """Draw a number with any number of digits up to a million, small ones most often."""
    return int(10 ** (6 * chance.random() ** 2)) + chance.randrange(2)


def _many(chance: random.Random) -> int:
    return chance.choice([1, FEW, FEW, MANY])


def read_all(scene: Scene, source: object, **options: object) -> list[dict[str, object]]:
    """Open shards and read the first and the last samples, singly and as a batch."""
    with ShardList(source, transformations="bytes", cache_dir=scene.cache, **options) as dataset:
        indexes = range(len(dataset))
        chosen = [*indexes[: MOST_READ // 2], *indexes[MOST_READ // 2 :][-MOST_READ // 2 :]]
        batch = dataset.__getitems__(chosen)
        if chosen and dataset[chosen[-1]] != batch[-1]:
            raise Wrong("a sample differs from itself in a batch")
    return batch


def _options(chance: random.Random) -> dict[str, object]:
    return {
        "grouping": chance.choice(["adjacent", "adjacent", "shard"]),
        "key_rule": chance.choice(["first_dot", "last_dot"]),
        "concatenated": chance.random() < 0.3,
    }


def _tar(make: Make) -> Attack:
    """Return the attack by a shard, whose members are compared with those that others find."""

    def attack(scene: Scene) -> Callable[[], str]:
        content = make(scene.chance)
        path = scene.write("a.tar", content)
        options = _options(scene.chance)

        def attempt() -> str:
            if len(content) <= SMALL:
                wrong = try_tar(path, content, Counter())
                if wrong:
                    raise Wrong(wrong)
            read_all(scene, [str(path)], **options)
            return RIGHT if len(content) <= SMALL else BOUNDED

        return attempt

    return attack


def _global_record(name: bytes, chance: random.Random) -> bytes:
    value = chance.choice([b"d", b"d/", b"d.", "ä".encode()]) * _size(chance)
    kinds = [b"0", b"1", b"2"] if name == b"linkpath" else [b"0"]
    head = pax({name: value + b".txt"}, kind=b"g")
    one = header(b"0.txt", 0, kind=chance.choice(kinds))
    return head * chance.choice([1, 1, 3]) + one * _many(chance) + END


def _hard_links(chance: random.Random) -> bytes:
    target = chance.choice([b"0.txt", b"0.txt", b"x" * 90, b"none.txt"])
    first = member(b"0.txt", chance.randbytes(_size(chance) % 9000))
    link = bytearray(header(b"", 0, kind=b"1"))
    links = []
    for number in range(chance.choice([FEW, MANY, HUGE])):
        link[:9] = b"%05d.txt" % (number + 1)
        link[157 : 157 + len(target)] = target
        links.append(repair_checksum(link))
    return first + b"".join(links) + END


def _chain_of_links(chance: random.Random) -> bytes:
    """Make links to links: in order, backwards, or in a circle."""
    count = chance.choice([3, FEW, MANY])
    step = chance.choice([-1, -1, 1, 2])
    links = []
    for number in range(1, count):
        link = bytearray(header(b"%05d.txt" % number, 0, kind=chance.choice([b"1", b"1", b"2"])))
        link[157:166] = b"%05d.txt" % ((number + step) % count)
        links.append(repair_checksum(link))
    if chance.random() < 0.3:
        chance.shuffle(links)
    return member(b"00000.txt", b"first") + b"".join(links) + END


def _long_names(chance: random.Random) -> bytes:
    kind = chance.choice([b"L", b"K", b"x"])
    parts = []
    for number in range(chance.choice([1, 3, FEW])):
        name = b"%d" % number + b"n" * _size(chance) + b".txt"
        parts.append(
            pax({b"path": name})
            if kind == b"x"
            else member(b"././@LongLink", name + b"\0", kind=kind)
        )
        parts += parts[-1:] * chance.choice([0, 0, 3])
        parts.append(member(b"%d.txt" % number, b"abc"))
    return b"".join(parts) + END


def _sparse(chance: random.Random) -> bytes:
    if chance.random() < 0.5:
        records = {
            b"GNU.sparse.major": chance.choice([b"0", b"1", b"9" * 30]),
            b"GNU.sparse.minor": b"0",
            b"GNU.sparse.name": b"real.txt",
            b"GNU.sparse.realsize": b"%d" % (1 << chance.randrange(70)),
            b"GNU.sparse.map": b"0,1," * _size(chance) + b"9,9",
        }
        kept = chance.sample(list(records), chance.randrange(1, 6))
        return pax({name: records[name] for name in kept}) + member(b"0.txt", b"abc") + END
    block = bytearray(header(b"0.txt", 512, kind=b"S", magic=b"ustar  \0"))
    block[386:410] = b"%011o\0%011o\0" % (chance.randrange(1 << 33), chance.randrange(1 << 33))
    block[482:495] = bytes([chance.randrange(2)]) + b"%011o\0" % chance.randrange(1 << 33)
    return repair_checksum(block) + bytes(512) * chance.choice([1, 2, FEW]) + END


def _size_field(chance: random.Random) -> bytes:
    """Return a size field: octal or base-256, negative, or beyond any disk."""
    number = chance.choice([-1, 1]) * chance.getrandbits(chance.choice([8, 12, 33, 40, 63, 64, 90]))
    if chance.random() < 0.6:
        return (number % (1 << 96) | (0 if number < 0 else 1 << 95)).to_bytes(12, "big")
    return b"%011o\0" % (number % (1 << 33))


def _stated_sizes(chance: random.Random) -> bytes:
    parts = []
    for number in range(chance.randrange(1, 6)):
        block = bytearray(header(b"%d.txt" % number, 700))
        if chance.random() < 0.6:
            block[124:136] = _size_field(chance)
        if chance.random() < 0.5:
            sizes = [b"700", b"3", b"1200", b"-512", b"99999999999999999999", b"0700", b" 7", b""]
            parts.append(
                pax({b"size": chance.choice(sizes)}, kind=chance.choice([b"x", b"x", b"g"]))
            )
        parts += [repair_checksum(block), bytes(1024)]
    return b"".join(parts) + END


def _records_that_lie(chance: random.Random) -> bytes:
    """Make a PAX header whose lengths and texts are not what the standard says."""
    pieces = [
        b"9" * _size(chance) + b" path=x\n", b"-5 path=x\n", b"0 path=x\n", b"12 path=a.txt\n",
        b"999999 path=a.txt\n", b"9 size=-1\n", b"11 path=\0a.b\n", b"3 =\n", b"8 path=\n",
        b"16 path=\xff\xfe.bin\n", b" 14 path=a.txt\n", b"+14 path=a.txt\n", b"\n" * 50,
        b"7 =a=b\n",
        b"14 path=b.txt\n" * _size(chance), b"20 hdrcharset=BINARY\n", b"12 SCHILY.x\n",
    ]  # fmt: skip
    body = b"".join(chance.choices(pieces, k=chance.randrange(1, 5)))
    kind = chance.choice([b"x", b"g", b"X"])
    stated = header(b"PaxHeader", chance.choice([len(body)] * 3 + [1 << 32, 7]), kind=kind)
    return stated + body + bytes(-len(body) % 512) + member(b"0.txt", b"abc") + END


def _concatenated(chance: random.Random) -> bytes:
    archives = chance.choices(seeds(chance), k=chance.choice([2, 3, FEW]))
    between = [b"", bytes(512), bytes(10_240), b"x" * 512, b"<html>", bytes(_size(chance))]
    return b"".join(archive + chance.choice(between) for archive in archives)


def _many_globals(chance: random.Random) -> bytes:
    """Make thousands of global headers, each of which changes all that follows."""
    one = [
        pax({chance.choice([b"path", b"linkpath", b"comment",
        b"size"]): b"7" * chance.randrange(900)},
            kind=b"g") + header(b"%d.txt" % number, 0)
        for number in range(FEW)
    ]  # fmt: skip
    return b"".join(one) * chance.choice([1, 10, 100]) + END


def _odd_names(chance: random.Random) -> bytes:
    names = [
        b"../../etc/passwd.txt", b"/etc/passwd.txt", b"a/../b.txt", b".", b"..", b".hidden", b"a.",
        b"\xff\xfe.txt", b"a\nb.txt", b"a\x1b[31m.txt", b"\x01.txt", b"", b"a" * 100, b"/" * 99,
        b"a.txt/", b"d/.txt", b"__key__.txt", b"a.__key__", b"a.jpg", b"a.jpg", b"C:\\a.txt",
    ]  # fmt: skip
    chosen = chance.choices(names, k=chance.randrange(1, 30))
    kinds = b"00000\x00125347D"
    return b"".join(
        member(name, b"abc", kind=bytes([chance.choice(kinds)])) for name in chosen
    ) + END  # fmt: skip


def _mutated(chance: random.Random) -> bytes:
    return mutate(chance, chance.choice(seeds(chance)))


def _compressed(scene: Scene) -> Callable[[], str]:
    """Make a compressed shard that is a bomb, damaged, or says another size."""
    chance = scene.chance
    suffix = chance.choice([".tar.gz", ".tgz", ".tar.zst"])
    size = chance.choice([1 << 10, 10 << 20, 90 << 20, 90 << 20, 200 << 20])
    members, fill = chance.choice([(0, b"\0"), (_many(chance), b"\0"), (0, b"\xff")])
    content = (numbered(0, members) if members else b"") + fill * size
    if suffix == ".tar.zst":
        packed = zstandard.ZstdCompressor(1).compress(content)
    else:
        packed = gzip.compress(content, 1, mtime=0)
    if chance.random() < 0.3:
        packed = gzip.compress(packed, 1) if suffix != ".tar.zst" else zstandard.compress(packed)
    damaged = bytearray(packed)
    if chance.random() < 0.4:
        damaged[chance.randrange(len(packed))] ^= 1 << chance.randrange(8)
    if chance.random() < 0.3:
        del damaged[chance.randrange(len(packed)) :]
    path = scene.write(f"a{suffix}", bytes(damaged))
    honest = zlib.crc32(damaged) == zlib.crc32(packed) and content.endswith(bytes(1024))
    del content

    def attempt() -> str:
        read_all(scene, [str(path)])
        return RIGHT if honest else BOUNDED

    return attempt


KINDS: dict[str, Attack] = {
    "global path": _tar(partial(_global_record, b"path")),
    "global linkpath": _tar(partial(_global_record, b"linkpath")),
    "hard links": _tar(_hard_links),
    "chain of links": _tar(_chain_of_links),
    "long names": _tar(_long_names),
    "sparse": _tar(_sparse),
    "stated sizes": _tar(_stated_sizes),
    "records that lie": _tar(_records_that_lie),
    "concatenated": _tar(_concatenated),
    "many globals": _tar(_many_globals),
    "odd names": _tar(_odd_names),
    "mutated": _tar(_mutated),
}
TARS = Family(KINDS, usual=24)
COMPRESSED_TARS = Family({"compressed": _compressed}, usual=3)
