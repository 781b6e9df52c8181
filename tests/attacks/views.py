"""Saved views with values of wrong kinds, devices, endless claims, and views that name views."""

import copy
import io
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.csv
from helpers.shards import write_shard

from attacks.runner import BOUNDED, RIGHT, Attack, Family, Scene
from attacks.specs import VALUES
from wids.base.arrayfile import write_arrays
from wids.views import opening
from wids.views.rows import Rows
from wids.views.saved import ROWS_OF_A_VIEW, file_digest
from wids.views.tables import stamp_of

ROWS = [{"__key__": f"{number}", ".txt": f"{number}"} for number in range(5)]
LONG = (10**12, 5 * 10**9, 2**62, 2**64, 10**30)


@contextmanager
def _quiet(_folder: Path) -> Iterator[None]:
    pyarrow.csv.read_csv(io.BytesIO(b"a\n1\n"))  # which keeps a pipe from its first use on
    # In this process, which ends with the variants: a thousand datasets take seconds.
    opening._MOST.update({"datasets": 50, "sources": 1000})
    yield


def _tried(write: Callable[[Scene], bytes]) -> Attack:
    """Return the attack by a saved view, beside a good shard, a table and a list of indexes."""

    def attack(scene: Scene) -> Callable[[], str]:
        write_shard(scene.folder / "a.tar", ROWS)
        scene.write("t.csv", b"key,caption\n0,a\n1,b\n2,c\n3,d\n4,e\n")
        arrays: dict[str, np.ndarray] = {}
        Rows.of(np.array([4, 0, 2])).add_to(arrays)
        write_arrays(scene.folder / "v.rows", {"is": ROWS_OF_A_VIEW}, arrays)
        os.chdir(scene.folder)
        path = scene.write("v.json", write(scene))

        def attempt() -> str:
            view = opening.open(path, cache_dir=scene.cache)
            for index in range(min(len(view), 5)):
                view[index]
            return RIGHT if len(view) else BOUNDED

        return attempt

    return attack


def _document(scene: Scene) -> dict[str, Any]:
    """Return a good view, with all kinds of objects."""
    stamp = stamp_of(scene.folder / "t.csv")
    data: dict[str, Any] = {"shardlist": [{"url": "a.tar", "nsamples": 5}], "nsamples": 5}
    table: dict[str, Any] = {"nbytes": stamp.nbytes, "digest": stamp.digest}
    table |= {"table": "t.csv", "fields": {".caption": "caption"}, "key": "key"}
    other = copy.deepcopy(data) | {"fields": [".txt"]}
    tabled = {"join": 1, "of_table": True, "none": [".caption"]}
    filled = {"join": 2, "replace": True, "rename": {".txt": ".new.txt"}, "none": [".txt"]}
    about = {"kind": "listed", "count": 3, "ascending": False, "arrays": "rows0"}
    return {
        "wids_version": 3,
        "name": "v",
        "nsamples": 3,
        "made": ["sample"],
        "datasets": [data, table, other],
        "slots": [
            {
                "sources": [
                    {"dataset": 0, "name": "a", "steps": [tabled, filled]},
                    {"dataset": 2, "name": "b", "steps": [filled]},
                ],
                "rows": about,
            },
            {"sources": [{"dataset": 1}], "rows": {"list": [4, 0, -1]}},
            {"sources": [{"dataset": 2}], "rows": {"list": [4, -1, 2]}},
        ],
        "arrays": {"file": "v.rows", "digest": file_digest(scene.folder / "v.rows")},
    }


def _changed(scene: Scene) -> bytes:
    """Exchange, add or remove some values, wherever they are."""
    chance, document = scene.chance, _document(scene)
    names = ["base", "list", "range", "starts", "lengths", "tables", "spec", "options", "versions",
             "contents", "fields", "lineage", "key_rule", "index", "digest", "beside", "classes",
             "steps", "rows", "aligned"]  # fmt: skip
    values = [*VALUES, *LONG, -5, {"range": [0, 5, 1]}, ["a.tar"], [[0]], {".a": 1}, [None, 3]]
    for _ in range(chance.choice([1, 1, 1, 2, 4])):
        holders: list[Any] = [document]
        for holder in holders:
            each = holder.values() if isinstance(holder, dict) else holder
            holders += [part for part in each if isinstance(part, dict | list) and part]
        holder = chance.choice([each for each in holders if each])
        key = chance.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
        way = chance.randrange(4)
        if way == 0 and isinstance(holder, dict):
            holder[chance.choice(names)] = copy.deepcopy(chance.choice(values))
        elif way == 1:
            del holder[key]
        else:
            holder[key] = copy.deepcopy(chance.choice(values))
    return json.dumps(document).encode()


def _claimed(scene: Scene) -> bytes:
    """Claim more samples than any memory holds."""
    chance, number = scene.chance, scene.chance.choice(LONG)
    node = {"shardlist": [{"url": "a.tar", "nsamples": number}]}
    rows = chance.choice(
        [
            {"range": [0, number, 1]},
            {"range": [0, 10, number]},
            {"starts": [0], "lengths": [number]},
            {"starts": [0] * 100, "lengths": [number // 50] * 100},
        ]
    )
    plan = {"datasets": [node], "slots": [{"sources": [{"dataset": 0}], "rows": rows}]}
    return json.dumps({"wids_version": 3, **plan}).encode()


def _named(scene: Scene) -> bytes:
    """Name slots that each join the next one twice, or very many datasets, or a view itself."""
    slots = [
        {"sources": [{"dataset": 0, "steps": [{"join": n + 1}] * 2 * (n < 60)}]} for n in range(61)
    ]
    whole = [slot | {"rows": {"range": [0, 5, 1]}} for slot in slots]
    data = {"shardlist": [{"url": "a.tar", "nsamples": 5}]}
    made: list[dict[str, Any]] = [
        {"datasets": [{"spec": "v.json"}], "slots": whole[-1:]},
        {"datasets": [data | {"nbytes": n} for n in range(200_000)], "slots": whole[-1:]},
        {"datasets": [data], "slots": whole},
    ]
    return json.dumps({"wids_version": 3, **scene.chance.choice(made)}).encode()


def _special(scene: Scene) -> bytes:
    """Name a pipe or a device wherever a location stands."""
    chance = scene.chance
    os.mkfifo(scene.folder / "p.json")
    for name in ("p.npy", "p.csv"):
        os.mkfifo(scene.folder / name)
    target = chance.choice(["/dev/zero", "p.json", "p.npy", "p.csv", "/dev/full", "."])
    node: dict[str, Any] = {"datasets": [{"spec": "a.tar"}]}
    node["slots"] = [{"sources": [{"dataset": 0}], "rows": {"range": [0, 5, 1]}}]
    node |= chance.choice(
        [
            {"datasets": [{"spec": target}]},
            {"datasets": [{"shardlist": [{"url": target, "nsamples": 5}]}]},
            {"arrays": {"file": target}},
        ]
    )
    return json.dumps({"wids_version": 3, **node}).encode()


def _nested(scene: Scene) -> bytes:
    """Nest brackets, or repeat empty objects, by the ten thousand."""
    count = int(10 ** scene.chance.uniform(1, 6.7))
    deep = scene.chance.choice([b"[" * count, b'{"slots":' * count, b"[" + b"{}," * count + b"0]"])
    return b'{"wids_version": 3, "slots": ' + deep + b"}"


def _rows(scene: Scene) -> bytes:
    """Exchange a number or a word in the file of rows, or in what the document says of them."""
    chance = scene.chance
    names: dict[str, list[str]] = {
        "range": ["bounds"], "runs": ["starts", "ends"], "low": ["low", "ends"],
        "bits": ["words", "ranks", "ends"], "listed": ["numbers"],
    }  # fmt: skip
    about: dict[str, Any] = {"kind": chance.choice(list(names)), "count": 3}
    about |= {"ascending": chance.random() < 0.5, "arrays": "rows0"}
    about[chance.choice(list(about))] = chance.choice([*VALUES[:14], *LONG, *names])
    numbers = [chance.choice([0, 1, 2, 4, 5, -1, 2**40, 2**62]) for _ in range(3)]
    kind = about["kind"] if isinstance(about["kind"], str) else "runs"
    arrays: dict[str, Any] = {}
    for name in names.get(kind, ["x"]):
        wide = {"low": np.uint16, "ranks": np.uint16, "words": np.uint64}.get(name, np.int64)
        arrays[f"rows0.{name}"] = np.array(numbers).astype(wide)
    write_arrays(scene.folder / "v.rows", {"is": ROWS_OF_A_VIEW}, arrays)
    document = _document(scene)
    document["slots"][chance.randrange(3)]["rows"] = about
    return json.dumps(document).encode()


VIEWS = Family(
    {
        "values": _tried(_changed),
        "claimed": _tried(_claimed),
        "named": _tried(_named),
        "special": _tried(_special),
        "nested": _tried(_nested),
        "rows": _tried(_rows),
    },
    usual=12,
    setup=_quiet,
)
