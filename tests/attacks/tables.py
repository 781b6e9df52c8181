"""Tables of strangers: offsets outside of their buffers, damage, and gigabytes in kilobytes."""

import io
import json
import random
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from helpers.shards import write_shard
from pyarrow import parquet as pq

from attacks.runner import RIGHT, Attack, Family, Scene, Wrong
from wids.views.opening import open as open_samples
from wids.views.tables import stamp_of

ROWS = [{"__key__": f"{number}", ".txt": f"{number}"} for number in range(3)]
KEYS = [row["__key__"] for row in ROWS]
TEXT = "caption of a sample" * 5
OFFSETS = (1, 95, 4096, 1 << 20, 1 << 30, (1 << 31) - 1, -1, -(1 << 31))


def _joined(
    name: str,
    make: Callable[[random.Random], bytes],
    *,
    plain: bool = True,
    column: str = "caption",
) -> Attack:
    """Return the attack by a table, which a saved view joins to a good shard."""

    def attack(scene: Scene) -> Callable[[], str]:
        write_shard(scene.folder / "a.tar", ROWS)
        data = make(scene.chance)
        pa.default_memory_pool().release_unused()
        stamp = stamp_of(scene.write(name, data))
        table = {
            "table": name,
            "nbytes": stamp.nbytes,
            "digest": stamp.digest,
            "fields": {".caption": column},
            "key": None if name.endswith(".npy") else "key",
        }
        base = {"shardlist": [{"url": "a.tar", "nsamples": 3}]}
        rows = {"range": [0, 3, 1]}
        steps = [{"join": 1, "of_table": True}]
        slots = [
            {"sources": [{"dataset": 0, "steps": steps}], "rows": rows},
            {"sources": [{"dataset": 1}], "rows": rows},
        ]
        document = {"wids_version": 3, "datasets": [base, table], "slots": slots}
        path = scene.write("v.json", json.dumps(document).encode())

        def attempt() -> str:
            view = open_samples(path, cache_dir=scene.cache)
            for sample in view:
                value = sample[".caption"]
                # What is neither in the file nor what it stands for is memory of the process.
                for text in value if isinstance(value, list) else [value]:
                    held = text.getvalue() if isinstance(text, io.BytesIO) else str(text).encode()
                    if text is not None and held not in data and plain:
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


def _changed_bytes(chance: random.Random) -> bytes:
    """Change some bytes of a good file."""
    kind = chance.choice([pa.string(), pa.string_view(), pa.large_string()])
    data = _stored(pa.array([TEXT] * 3, kind), stream=chance.random() < 0.3)
    for _ in range(chance.choice([1, 1, 3, 9])):
        data[chance.randrange(len(data))] = chance.choice([0, 1, 127, 128, 255])
    return bytes(data)


def _compressed(chance: random.Random) -> bytes:
    """Compress gigabytes, or state a size that a buffer does not have."""
    nbytes = 50 << 20
    zeros = pa.py_buffer(bytes(nbytes))
    offsets = pa.py_buffer(np.array([0, nbytes // 2, nbytes - 1, nbytes], np.int64))
    captions = pa.Array.from_buffers(pa.large_binary(), 3, [None, offsets, zeros])
    batch = pa.record_batch({"key": KEYS, "caption": captions})
    make = chance.choice([pa.ipc.new_stream, pa.ipc.new_file])
    options = pa.ipc.IpcWriteOptions(compression=chance.choice(["zstd", "lz4"]))
    is_lie = chance.random() < 0.3
    sink = io.BytesIO()
    with make(sink, batch.schema, options=options) as writer:
        for _ in range(1 if is_lie else 24):
            writer.write_batch(batch)
    data = sink.getvalue()
    return data.replace(struct.pack("<q", nbytes), struct.pack("<q", 2**50)) if is_lie else data


def _many_rows(chance: random.Random) -> bytes:
    """State a number of rows that take no bytes."""
    batch = pa.record_batch({"key": pa.nulls(7777), "caption": pa.nulls(7777)})
    sink = io.BytesIO()
    with chance.choice([pa.ipc.new_stream, pa.ipc.new_file])(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue().replace(struct.pack("<q", 7777), struct.pack("<q", 2**40))


def _coded(chance: random.Random) -> Any:
    count = chance.choice([4000, 100_000])
    codes = pa.array(np.zeros(count, np.int32))
    captions: Any = pa.DictionaryArray.from_arrays(codes, [TEXT * chance.choice([1, 10_000])])
    if chance.random() < 0.5:
        ends = pa.array(np.arange(count + 1, dtype=np.int32))
        captions = pa.ListArray.from_arrays(ends, captions)
    return pa.table({"key": [f"{n}" for n in range(count)], "caption": captions})


def _repeated(chance: random.Random) -> bytes:
    """Let one value stand for many rows: one of the dictionary, or that of the row before."""
    sink, table, times = io.BytesIO(), _coded(chance), 1
    options: dict[str, Any] = {"compression": chance.choice(["zstd", "snappy"])}
    if chance.random() < 0.3:
        table, times = pa.table({"key": KEYS * 10, "caption": [TEXT * 10_000] * 30}), 50
        options |= {"use_dictionary": False, "column_encoding": {"caption": "DELTA_BYTE_ARRAY"}}
    with pq.ParquetWriter(sink, table.schema, store_schema=False, **options) as writer:
        for _ in range(times):
            writer.write_table(table)
    return sink.getvalue()


def _dotted(chance: random.Random) -> bytes:
    """Give the column of many rows a name with a dot, as a column in a struct has."""
    sink = io.BytesIO()
    pq.write_table(_coded(chance).rename_columns(["key", "cap.tion"]), sink, store_schema=False)
    return sink.getvalue()


def _paged(_chance: random.Random) -> bytes:
    """Compress pages of gigabytes."""
    table = pa.table({"key": [f"{n}" for n in range(50)], "caption": ["x" * 1_000_000] * 50})
    sink = io.BytesIO()
    options: dict[str, Any] = {"use_dictionary": False, "write_statistics": False}
    with pq.ParquetWriter(sink, table.schema, compression="zstd", **options) as writer:
        for _ in range(24):
            writer.write_table(table)
    return sink.getvalue()


def _changed_parquet(chance: random.Random) -> bytes:
    """Change some bytes of a good Parquet file, most of them of its metadata."""
    table = pa.table({"key": KEYS, "caption": [TEXT] * 3})
    sink = io.BytesIO()
    pq.write_table(table, sink, use_dictionary=chance.random() < 0.5)
    data = bytearray(sink.getvalue())
    for _ in range(chance.choice([1, 1, 3, 9])):
        first = chance.choice([0, len(data) - 400])
        data[chance.randrange(first, len(data))] = chance.choice([0, 1, 127, 128, 255])
    return bytes(data)


TABLES = Family(
    {
        "string view": _joined("t.arrow", _string_view),
        "offsets": _joined("t.arrow", _offsets),
        "bytes": _joined("t.arrow", _changed_bytes),
        "compressed": _joined("t.arrow", _compressed, plain=False),
        "rows": _joined("t.arrow", _many_rows),
        "repeated": _joined("t.parquet", _repeated, plain=False),
        "dotted": _joined("t.parquet", _dotted, plain=False, column="cap.tion"),
        "pages": _joined("t.parquet", _paged, plain=False),
        "parquet": _joined("t.parquet", _changed_parquet, plain=False),
    },
    usual=9,
)
