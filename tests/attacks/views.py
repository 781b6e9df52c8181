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
from wids.views.indexlist import IndexList
from wids.views.table import stamp_of

ROWS = [{"__key__": f"{number}", ".txt": f"{number}"} for number in range(5)]
LONG = (10**12, 5 * 10**9, 2**62, 2**64, 10**30)


@contextmanager
def _quiet(_folder: Path) -> Iterator[None]:
    pyarrow.csv.read_csv(io.BytesIO(b"a\n1\n"))  # which keeps a pipe from its first use on
    # In this process, which ends with the variants: a thousand datasets take seconds.
    opening._MOST_IN_ALL.update({"documents and datasets": 50, "bases": 1000})
    yield


def _tried(write: Callable[[Scene], bytes]) -> Attack:
    """Return the attack by a saved view, beside a good shard, a table and a list of indexes."""

    def attack(scene: Scene) -> Callable[[], str]:
        write_shard(scene.folder / "a.tar", ROWS)
        scene.write("t.csv", b"key,caption\n0,a\n1,b\n2,c\n3,d\n4,e\n")
        IndexList.of(np.array([4, 0, 2])).save(scene.folder / "v.indexes")
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
    table: dict[str, Any] = {"nbytes": stamp.nbytes, "digest": stamp.digest, "missing": 0}
    table |= {"table": "t.csv", "fields": {".caption": "caption"}, "on": [None, "key"]}
    joined = {"join": [data, table], "rename": {}, "replace": False}
    filled = {"of": copy.deepcopy(data), "rows": {"list": [0, 1, 5, 5, 4]}}
    parts = [joined, {"join": [copy.deepcopy(data), filled], "replace": True}]
    return {
        "wids_version": 2,
        "name": "v",
        "nsamples": 3,
        "made": ["sample"],
        "base": {
            "base": {"concat": [*parts, copy.deepcopy(data)], "names": ["a", "b", "c"]},
            "indexes": {"range": [14, -1, -1]},
            "exclude": ["3"],
            "append": ["a.tar"],
        },
        "indexes": {"file": "v.indexes", "nsamples": 3},
    }


def _changed(scene: Scene) -> bytes:
    """Exchange, add or remove some values, wherever they are."""
    chance, document = scene.chance, _document(scene)
    names = ["patch", "exclude", "append", "indexes", "list", "tables", "spec", "options",
             "versions", "contents", "fields", "lineage", "key_rule", "index", "digest",
             "classes", "of", "rows"]  # fmt: skip
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
    """Claim more samples than any memory holds, and choose from them by each of the means."""
    chance, number = scene.chance, scene.chance.choice(LONG)
    steps: list[dict[str, Any]] = [
        {"indexes": {"range": [0, number, 1]}},
        {"indexes": {"range": [0, 10, number]}},
        {"exclude": ["1"]},
        {"patch": "a.tar"},
        {"append": ["a.tar"] * 2, "exclude": ["1"]},
    ]
    node = {"shardlist": [{"url": "a.tar", "nsamples": number}]}
    document = {"wids_version": 2, "base": node, **chance.choice(steps)}
    return json.dumps(document).encode()


def _named(scene: Scene) -> bytes:
    """Name the next of some views many times, in a circle or not."""
    chance = scene.chance
    count, times = chance.choice([(1, 1), (6, 10), (2, 400), (9, 1)]), chance.choice([10, 1])
    for number in range(count[0] + 1):
        following = {"concat": [f"{number + 1}.json"] * count[1] * times}
        node: Any = following if number < count[0] else "a.tar"
        scene.write(f"{number}.json", json.dumps({"wids_version": 2, "base": node}).encode())
    base = chance.choice(["0.json", "v.json", {"concat": ["a.tar"] * 200_000}])
    return json.dumps({"wids_version": 2, "base": base}).encode()


def _special(scene: Scene) -> bytes:
    """Name a pipe or a device wherever a location stands."""
    chance = scene.chance
    os.mkfifo(scene.folder / "p.json")
    for name in ("p.npy", "p.csv"):
        os.mkfifo(scene.folder / name)
    target = chance.choice(["/dev/zero", "p.json", "p.npy", "p.csv", "/dev/full", "."])
    node: dict[str, Any] = {"base": "a.tar"}
    node |= chance.choice(
        [
            {"base": target},
            {"base": {"spec": target}},
            {"exclude": target},
            {"patch": target},
            {"append": target},
            {"indexes": {"file": target, "nsamples": 3}},
        ]
    )
    return json.dumps({"wids_version": 2, **node}).encode()


def _nested(scene: Scene) -> bytes:
    """Nest brackets, or repeat empty objects, by the ten thousand."""
    count = int(10 ** scene.chance.uniform(1, 6.7))
    deep = scene.chance.choice([b"[" * count, b'{"base":' * count, b"[" + b"{}," * count + b"0]"])
    return b'{"wids_version": 2, "base": ' + deep + b"}"


def _indexes(scene: Scene) -> bytes:
    """Exchange a number or a word in the file of indexes."""
    chance = scene.chance
    kinds = ["range", "runs", "low", "bits", "listed"]
    about: dict[str, Any] = {"is": "wids-indexes-1", "kind": chance.choice(kinds), "count": 3}
    about["ascending"] = chance.random() < 0.5
    about[chance.choice(list(about))] = chance.choice([*VALUES[:14], *LONG, *kinds])
    numbers = [chance.choice([0, 1, 2, 4, 5, -1, 2**40, 2**62]) for _ in range(3)]
    kind = about["kind"] if isinstance(about["kind"], str) else "runs"
    names = {"range": ["bounds"], "runs": ["starts", "ends"], "low": ["low", "ends"],
             "bits": ["words", "ranks", "ends"], "listed": ["indexes"]}  # fmt: skip
    arrays: dict[str, Any] = {}
    for name in names.get(kind, ["x"]):
        narrow = name in ("low", "words", "ranks")
        arrays[name] = np.array(numbers).astype(np.uint16 if narrow else np.int64)
    write_arrays(scene.folder / "v.indexes", about, arrays)
    return json.dumps(_document(scene)).encode()


VIEWS = Family(
    {
        "values": _tried(_changed),
        "claimed": _tried(_claimed),
        "named": _tried(_named),
        "special": _tried(_special),
        "nested": _tried(_nested),
        "indexes": _tried(_indexes),
    },
    usual=18,
    setup=_quiet,
)
