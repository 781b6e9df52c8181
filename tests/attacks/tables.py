"""Tables of strangers: offsets and indexes that lie outside of their buffers, and damage."""

import io
import json
import random
import struct
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from helpers.shards import write_shard

from attacks.runner import RIGHT, Attack, Family, Scene, Wrong
from wids.views.opening import open as open_samples
from wids.views.table import stamp_of

ROWS = [{"__key__": f"{number}", ".txt": f"{number}"} for number in range(3)]
KEYS = [row["__key__"] for row in ROWS]
TEXT = "caption of a sample" * 5
OFFSETS = (1, 95, 4096, 1 << 20, 1 << 30, (1 << 31) - 1, -1, -(1 << 31))


def _joined(name: str, make: Callable[[random.Random], bytes]) -> Attack:
    """Return the attack by a table, which a saved view joins to a good shard."""

    def attack(scene: Scene) -> Callable[[], str]:
        write_shard(scene.folder / "a.tar", ROWS)
        data = make(scene.chance)
        stamp = stamp_of(scene.write(name, data))
        right = {
            "table": name,
            "nbytes": stamp.nbytes,
            "digest": stamp.digest,
            "fields": {".caption": "caption"},
            "on": [None, None if name.endswith(".npy") else "key"],
            "missing": 0,
        }
        left = {"shardlist": [{"url": "a.tar", "nsamples": 3}]}
        document = {"wids_version": 2, "base": {"join": [left, right]}}
        path = scene.write("v.json", json.dumps(document).encode())

        def attempt() -> str:
            view = open_samples(path, cache_dir=scene.cache)
            for sample in view:
                value = sample[".caption"]
                # What is neither in the file nor what it stands for is memory of the process.
                for text in value if isinstance(value, list) else [value]:
                    held = text.getvalue() if isinstance(text, io.BytesIO) else str(text).encode()
                    if text is not None and held not in data:
                        raise Wrong(f"a value of elsewhere: {value!r:.200}")
            return RIGHT

        return attempt

    return attack


def _stored(captions: Any, *, stream: bool = False, **options: Any) -> bytearray:
    """Return an Arrow file with one caption for each sample."""
    table = pa.table({"key": KEYS[: len(captions)], "caption": captions})
    sink = io.BytesIO()
    make = pa.ipc.new_stream if stream else pa.ipc.new_file
    with make(sink, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table)
    return bytearray(sink.getvalue())


def _replaced(data: bytearray, old: bytes, new: bytes) -> bytes:
    start = data.index(old)
    data[start : start + len(old)] = new
    return bytes(data)


def _string_view(chance: random.Random) -> bytes:
    """Let a text lie outside of its buffer, or in a buffer that there is not."""
    offset, number = chance.choice(OFFSETS), chance.choice([0, 0, 0, 1, 9, -1])
    kind = chance.choice([pa.string_view(), pa.binary_view()])
    data = _stored(pa.array([TEXT] * 3, kind), stream=chance.random() < 0.3)
    view = struct.pack("<i4sii", len(TEXT), TEXT[:4].encode(), 0, 0)
    return _replaced(
        data, view, struct.pack("<i4sii", len(TEXT), TEXT[:4].encode(), number, offset)
    )


def _offsets(chance: random.Random) -> bytes:
    """Let a list, or its texts, end outside of its values."""
    kind = chance.choice([pa.list_(pa.string()), pa.large_list(pa.large_string())])
    data = _stored(pa.array([["a"], ["b", "c"], None], kind), stream=chance.random() < 0.3)
    # The offsets of the lists are those of the texts but for the last.
    form = "<4q" if pa.types.is_large_list(kind) else "<4i"
    wrong = [0, 1, 3, 3]
    wrong[chance.randrange(4)] = chance.choice(OFFSETS)
    return _replaced(data, struct.pack(form, 0, 1, 3, 3), struct.pack(form, *wrong))


def _dictionary(chance: random.Random) -> bytes:
    """Let an index lie outside of its dictionary."""
    codes = pa.DictionaryArray.from_arrays(pa.array([1, 0, 1], pa.int32()), [TEXT, "b"])
    wrong = [1, 0, 1]
    wrong[chance.randrange(3)] = chance.choice(OFFSETS)
    return _replaced(_stored(codes), struct.pack("<3i", 1, 0, 1), struct.pack("<3i", *wrong))


def _changed_bytes(chance: random.Random) -> bytes:
    """Change some bytes of a good file."""
    kind = chance.choice([pa.string(), pa.string_view(), pa.large_string()])
    data = _stored(pa.array([TEXT] * 3, kind), stream=chance.random() < 0.3)
    for _ in range(chance.choice([1, 1, 3, 9])):
        data[chance.randrange(len(data))] = chance.choice([0, 1, 127, 128, 255])
    return bytes(data)


TABLES = Family(
    {
        "string view": _joined("t.arrow", _string_view),
        "offsets": _joined("t.arrow", _offsets),
        "dictionary": _joined("t.arrow", _dictionary),
        "bytes": _joined("t.arrow", _changed_bytes),
    },
    usual=24,
)
