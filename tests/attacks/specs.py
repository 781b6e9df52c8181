"""Specs that name devices, cycles and millions of shards, or hold values of wrong kinds."""

import copy
import gzip
import json
import os
import random
import socket
from collections.abc import Callable
from typing import Any

from helpers.shards import write_shard

from attacks.documents import packed
from attacks.runner import BOUNDED, RIGHT, Attack, Family, Scene, Wrong
from wids.reading.shardlist import ShardList
from wids.specs.sources import expand_braces

ROWS = [{"__key__": f"{number}", ".txt": f"{number}"} for number in range(3)]
VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 1.5, 2**63, 10**400, 1e308, float("nan"), float("inf"), "", "x", "9", [],
    {}, [[]],
    {"a": 1}, "\ud800", "a\nb", "\0", "../../etc/passwd", "/dev/zero", "/dev/stdin",
    "file:///etc/passwd",
    "pipe:touch broken_into", "x" * 10_000, ["x"] * 1000, "http://[::1", "s3://b`/k",
    "~nobody-here/x", "{a,b}",
    "{1..9999999}", "%00", "a.tar\n", "//host/x.tar", "ftp://127.0.0.1:1/a.tar", "?", "#",
    "\\\\host\\x",
)  # fmt: skip


def _spec() -> dict[str, Any]:
    return {
        "wids_version": 1,
        "name": "set",
        "base": ".",
        "info": {"a": 1},
        "classes": ["cat", "dog"],
        "weight": 1,
        "shardlist": [
            {"url": "a.tar", "nsamples": 3, "weight": 1, "filesize": None, "md5sum": None}
        ],
    }


def _read(scene: Scene, source: Any) -> str:
    """Open a spec and read all samples of the good shard that it may name."""
    with ShardList(source, transformations="bytes", cache_dir=scene.cache) as dataset:
        num_read = min(len(dataset), 6)
        samples = [dataset[index] for index in range(num_read)]
    for sample in samples:
        if sample[".txt"] != sample["__key__"].encode():
            raise Wrong(f"another sample: {sample!r:.300}")
    return RIGHT if num_read else BOUNDED


def _tried(write: Callable[[Scene], Any]) -> Attack:
    """Return the attack by what `write` returns, which is opened beside a good shard."""

    def attack(scene: Scene) -> Callable[[], str]:
        write_shard(scene.folder / "a.tar", ROWS)
        source = write(scene)
        os.chdir(scene.folder)
        return lambda: _read(scene, source)

    return attack


def _text(write: Callable[[random.Random], bytes]) -> Attack:
    return _tried(lambda scene: str(scene.write("s.json", write(scene.chance))))


def _changed_value(chance: random.Random) -> bytes:
    """Exchange some values or names of a good spec, wherever they are."""
    spec = _spec()
    if chance.random() < 0.4:
        spec = {"wids_version": 1, "datasets": [spec, copy.deepcopy(spec)]}
    for _ in range(chance.choice([1, 1, 2, 4])):
        holders = [spec]
        for holder in holders:
            parts = holder.values() if isinstance(holder, dict) else holder
            holders += [part for part in parts if isinstance(part, dict | list) and part]
        holder = chance.choice([each for each in holders if each])
        key = chance.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
        way = chance.randrange(4)
        if way == 0 and isinstance(holder, dict):
            holder[
                chance.choice(
                    ["source_url", "datasets", "index", "sha256", "base_path", "x", "\ud800"]
                )
            ] = chance.choice(VALUES)
        elif way == 1:
            del holder[key]
        else:
            holder[key] = copy.deepcopy(chance.choice(VALUES))
    return json.dumps(spec, ensure_ascii=chance.random() < 0.7).encode("utf-8", "surrogatepass")


def _changed_bytes(chance: random.Random) -> bytes:
    data = bytearray(json.dumps(_spec()).encode())
    for _ in range(chance.choice([1, 2, 5])):
        data[chance.randrange(len(data))] = chance.choice([0, 255, *b'{}[]",:9e-'])
    return bytes(data)


def _deep(chance: random.Random) -> bytes:
    count = int(10 ** chance.uniform(0, 6))
    ways = [
        b'{"datasets":[' * count + b"[]" + b"]}" * count, b"[" * count,
        b'{"a":' * count + b"1" + b"}" * count,
        b'{"shardlist":' + b"[" * count + b"]" * count + b"}",
        b'{"info":' * count + b"1" + b"}" * count,
    ]  # fmt: skip
    return chance.choice(ways)


def _long(chance: random.Random) -> bytes:
    """Make long lists, names, numbers and bases, each many times."""
    count = int(10 ** (5.3 if chance.random() < 0.05 else chance.uniform(0, 5)))
    value = chance.choice(
        [b"[]", b"{}", b'{"url":"a.tar","nsamples":3}', b'"a.tar"', b"9" * 40, b'["a.tar",3]']
    )
    long = b'"' + b"x" * count + b'"'
    part = b',"shardlist":["a"]},'
    name = chance.choice([b"name", b"base", b"info", b"wids_version", b"weight", b"classes"])
    ways = [
        b'{"shardlist":[' + (value + b",") * count + b'"a.tar"]}',
        b"[" + (value + b",") * count + b"0]",
        b'{"shardlist":[{"url":"a.tar","nsamples":3}],"' + name + b'":' + long + b"}",
        b'{"shardlist":[{"url":"a.tar","nsamples":' + b"9" * count + b"}]}",
        b'{"datasets":[' + (b'{"' + name + b'":' + long[:9000] + part) * 200 + b"{}]}",
        b'{"shardlist":["a.tar"]' + b',"name":"a"' * count + b"}",
    ]  # fmt: skip
    return chance.choice(ways)


def _named(scene: Scene) -> str:
    """Write specs that name others: in circles, thousands of times, many levels deep."""
    chance = scene.chance
    count = chance.choice([1, 2, 9, 60])
    for number in range(count):
        step = chance.choice([0, 1, 1, 1, -1])
        times = chance.choice([1, 1, 2, 40])
        rows: dict[str, Any] = {
            "datasets": [{"source_url": f"{(number + step) % (count + 1)}.json"}] * times
        }
        scene.write(f"{number}.json", json.dumps(rows).encode())
    shards: list[Any] = [{"url": "a.tar", "nsamples": 3}] * chance.choice([1, 1, 100_000])
    scene.write(f"{count}.json", json.dumps({"shardlist": shards}).encode())
    return str(scene.folder / "0.json")


def _device(scene: Scene) -> str:
    """Name, as a spec, sidecar or shard, what is no file."""
    chance, name = scene.chance, scene.folder / "d.json"
    way = chance.randrange(5)
    if way == 0:
        name.symlink_to(
            chance.choice(["/dev/zero", "/dev/urandom", "/dev/tty", "/proc/kmsg", "d.json"])
        )
    elif way == 1:
        os.mkfifo(name)
    elif way == 2:
        name.mkdir()
    elif way == 3:
        with socket.socket(socket.AF_UNIX) as server:
            os.chdir(scene.folder)
            server.bind(name.name)
    target = chance.choice(["d.json", "d.json", "/dev/zero", "/dev/full", "/proc/self/mem"])
    spec = chance.choice(
        [
            {"datasets": [{"source_url": target}]},
            {"shardlist": [{"url": target}]},
            {"shardlist": [{"url": "a.tar", "nsamples": 3, "index": target}]},
            {"shardlist": [{"url": target, "nsamples": 3}]},
            {"datasets": [{"datasets": [{"source_url": target}]}]},
        ]
    )
    return str(scene.write("s.json", json.dumps(spec).encode()))


def _packed(scene: Scene) -> str:
    """Write a spec that is compressed: a bomb, or an honest one under a wrong name."""
    data = scene.chance.choice([_long, _changed_value, _changed_bytes])(scene.chance)
    extension, content = packed(scene.chance, ".json", data)
    name = scene.chance.choice([f"s{extension}", "s.json"])
    if scene.chance.random() < 0.2:
        named = scene.write("inner.json.gz", gzip.compress(bytes(300 << 20), 1))
        spec = {"datasets": [{"source_url": named.name}]}
        return str(scene.write("s.json", json.dumps(spec).encode()))
    return str(scene.write(name, content))


def _pattern(scene: Scene) -> Callable[[], str]:
    """Expand a brace pattern of random pieces."""
    chance = scene.chance
    pieces = [
        "{", "}", ",", "..", "{1..9}", "{0..1000000000}", "{a..z}", "{1..9..0}", "{9..1..-3}",
        "{a,b}", "${x}", "\\",
        "{{a,b},{c,d}}", "{001..999}", "a", ".tar", "*", "?", "[!a]", "{" * 50, "{,}" * 20, "\n",
        "\0", "{-9..9}",
        "{1.5..2}", "{😀..😂}", "{a,b" * 9,
    ]  # fmt: skip
    pattern = "".join(chance.choices(pieces, k=chance.randrange(1, 9))) * chance.choice(
        [1, 1, 1, 30]
    )
    expanded = chance.random() < 0.5
    write_shard(scene.folder / "a.tar", ROWS)
    os.chdir(scene.folder)

    def attempt() -> str:
        if expanded:
            expand_braces(pattern)
            return BOUNDED
        return _read(scene, pattern)

    return attempt


SPECS = Family(
    {
        "values": _text(_changed_value),
        "bytes": _text(_changed_bytes),
        "deep": _text(_deep),
        "long": _text(_long),
        "named": _tried(_named),
        "device": _tried(_device),
        "packed": _tried(_packed),
        "pattern": _pattern,
    },
    usual=12,
)
