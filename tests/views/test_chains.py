"""Random chains of all that makes views of views, held against a plain list of dicts."""

import copy
import pickle
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.server import ShardServer
from helpers.serving import serve_shard

import wids

CHAINS = 60  # of the usual run; `MANY` more in that of everything
MANY = 1000
pytestmark = pytest.mark.filterwarnings("ignore::wids.WidsWarning")


@dataclass
class Item:
    """A sample as it should be.

    Attributes:
        fields: What `view[i]` has; None for a field without a counterpart.
        stored: What columns and batches of one field have: the same without functions.
        key, shard, local: Its labels.
        name: Its `__dataset__`; None for that of its dataset.
    """

    fields: dict[str, Any]
    stored: dict[str, Any]
    key: str
    shard: str
    local: int
    name: str | None = None
    hidden: set[str] = field(default_factory=set)


@dataclass
class World:
    """Datasets with fields that only some samples have, a table, and what is in them."""

    folder: Path
    datasets: dict[str, tuple[wids.ShardListDataset, list[Item]]]
    table: dict[str, list[Any]]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    folder = tmp_path_factory.mktemp("world")
    chance = random.Random(0)

    def written(
        name: str, keys: list[str], lengths: list[int], fields: Callable[[int, str], dict[str, Any]]
    ) -> tuple[wids.ShardListDataset, list[Item]]:
        rows, items = [], []
        for shard, length in enumerate(lengths):
            path = folder / f"{name}-{shard}.tar"
            with wids.TarWriter(path) as writer:
                for local in range(length):
                    number = len(items)
                    own = fields(number, keys[number])
                    writer.write({"__key__": keys[number], **own})
                    items.append(Item(own, dict(own), keys[number], str(path), local))
            rows.append((str(path), length))
        return wids.ShardListDataset(rows, cache_dir=folder / "cache"), items

    def base(tag: str) -> Callable[[int, str], dict[str, Any]]:
        def fields(number: int, key: str) -> dict[str, Any]:
            own: dict[str, Any] = {".cls": number * 7 % 11, ".txt": f"{tag} {number}"}
            own |= {".json": {"width": number}} if number % 3 else {}
            return own | ({".opt.txt": f"opt {key}"} if number % 4 == 1 else {})

        return fields

    first = [f"a{number:02d}" for number in range(40)]
    second = [f"b{number:02d}" for number in range(25)]
    both = [*first, *second]
    chance.shuffle(both)
    part = [key for key in both if chance.random() < 0.7]

    def captions(number: int, key: str) -> dict[str, Any]:
        return {".cap.txt": f"cap {key}"} | ({".more.cls": number} if number % 2 == 0 else {})

    def new(number: int, key: str) -> dict[str, Any]:
        own: dict[str, Any] = {".txt": f"new {key}", ".d.cls": number}
        return own | ({".opt.txt": f"optd {key}"} if number % 5 == 2 else {})

    table = {
        "key": part,
        "words": [number * 3 for number in range(len(part))],
        "say": [None if number % 6 == 5 else f"say {key}" for number, key in enumerate(part)],
    }
    pq.write_table(pa.table(table), folder / "t.parquet")
    lengths = [7, 0, 12, 1, 20]
    datasets = {
        "a": written("a", first, lengths, base("A")),
        "b": written("b", second, [10, 15], base("B")),
        "captions": written("captions", both, [30, 35], captions),
        "new": written("new", part, [20, len(part) - 20], new),
        "aligned": written("aligned", first, lengths, lambda _, key: {".al.txt": f"al {key}"}),
    }
    return World(folder, datasets, table)


def by_range(world: World, folder: Path, server: ShardServer) -> World:
    """Put the shards and their sidecars on a server, which is asked for single samples."""

    def far(dataset: wids.ShardListDataset, items: list[Item]) -> tuple[Any, list[Item]]:
        urls = {}
        for path in map(Path, dataset.shards.urls):
            urls[str(path)] = serve_shard(server, path)
        rows = list(zip(urls.values(), dataset.lengths, strict=True))
        options: Any = {"remote": "range", "cache_dir": folder / "cache"}
        there = [replace(item, shard=urls[item.shard]) for item in items]
        return wids.ShardListDataset(rows, **options), there

    datasets = {name: far(*each) for name, each in world.datasets.items()}
    return replace(world, datasets=datasets)


def tagged(sample: dict[str, Any]) -> dict[str, Any]:
    return {**sample, ".len": len(str(sample.get(".txt") or ""))}


def is_window(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


class Chain:
    """A view that is changed at random, and the list that it should equal."""

    def __init__(self, seed: int, world: World) -> None:
        self.chance, self.world = random.Random(seed), world
        self.steps: list[str] = []
        self.can_be_saved = True
        self.view, self.items = self.dataset("a", "b")

    def dataset(self, *names: str) -> tuple[Any, list[Item]]:
        dataset, items = self.world.datasets[self.chance.choice(names)]
        return dataset, copy.deepcopy(items)

    def choose(self, view: Any, items: list[Item]) -> tuple[Any, list[Item]]:
        """Choose some samples, in some order."""
        chance, count = self.chance, len(items)
        ways = ["slice", "mask", "list", "shuffle", "sort", "filter", "split", "exclude", "sql"]
        way = chance.choice(ways)
        self.steps.append(way)
        if way == "slice":
            ends = [chance.choice([None, chance.randrange(-50, 60)]) for _ in range(2)]
            part = slice(*ends, chance.choice([None, 1, 2, -1, -3]))
            return view[part], items[part]
        if way == "mask":
            mask = [chance.random() < 0.6 for _ in range(count)]
            kept = [item for item, held in zip(items, mask, strict=True) if held]
            return view[np.array(mask, bool)], kept
        if way == "split":
            parts = view.split(seed=chance.randrange(3), x=0.6, y=0.4)
            name = chance.choice(["x", "y"])
            mine = set(parts[name].keys)
            assert not mine & set(parts["y" if name == "x" else "x"].keys)
            return parts[name], [item for item in items if item.key in mine]
        if way == "exclude":
            unwanted = {f"a{chance.randrange(40):02d}" for _ in range(5)}
            view = view.exclude(unwanted, missing="drop")
            return view, [item for item in items if item.key not in unwanted]
        if way == "sql":
            bound = f"a{chance.randrange(40):02d}"
            return view.filter(f"key > '{bound}'"), [item for item in items if item.key > bound]
        classes = [item.stored[".cls"] for item in items if item.stored.get(".cls") is not None]
        if way == "filter" and classes and all(isinstance(each, int) for each in classes):
            wanted = [item for item in items if (item.stored.get(".cls") or 0) % 3 != 1]
            return view.filter(lambda values: values % 3 != 1, ".cls", fill=0), wanted
        if way in ("sort", "filter"):
            return view.order_by("key"), sorted(items, key=lambda item: item.key)
        places = [chance.randrange(count) for _ in range(20)] if count else []
        if way == "shuffle":
            places = chance.sample(range(count), count)
        return view[places], [copy.deepcopy(items[place]) for place in places]

    def change(self) -> None:
        """Choose, join, map, narrow, or place something behind."""
        ways = ["choose", "choose", "concat", "self", "join", "join", "patch", "table", "map"]
        way = self.chance.choice([*ways, "fields", "aligned", "rename", "rename", "windows"])
        if len(self.items) > 300:
            way = "choose"
        self.steps.append(way)
        getattr(self, f"_{way}")()

    def _choose(self) -> None:
        self.view, self.items = self.choose(self.view, self.items)

    def _concat(self) -> None:
        other, items = self.choose(*self.dataset("a", "b"))
        names = self.chance.choice([None, ["l", "m"]])
        mine = [replace(item, name=names[0]) if names else item for item in self.items]
        theirs = [replace(item, name=names[1]) if names else item for item in items]
        self.view = wids.concat([self.view, other], names=names)
        self.items = [*mine, *theirs]

    def _self(self) -> None:
        cut = self.chance.randrange(len(self.items) + 1)
        self.view = self.view[:cut] + self.view[cut // 2 :]
        self.items = copy.deepcopy(self.items[:cut]) + copy.deepcopy(self.items[cut // 2 :])

    def _map(self) -> None:
        if not any(".len" in item.fields for item in self.items):
            self.can_be_saved = False
            self.view = self.view.map(tagged)
            self.items = [replace(item, fields=tagged(item.fields)) for item in self.items]

    def _fields(self) -> None:
        if not self.can_be_saved or any(item.hidden for item in self.items):
            return  # a function needs its fields
        names = sorted({name for item in self.items for name in item.stored})
        kept = [name for name in names if self.chance.random() < 0.7] or names[:1]
        if kept:
            self.view = self.view.with_options(fields=kept, missing_ok=kept)
            for item in self.items:
                item.hidden = set(names) - set(kept)
                item.fields = {n: v for n, v in item.fields.items() if n in kept}
                item.stored = {n: v for n, v in item.stored.items() if n in kept}

    def _rename(self) -> None:
        """Give one field, or the first of several, another name."""
        names = sorted({name for item in self.items for name in item.stored if name != ".len"})
        if not self.items or not names or any(item.hidden for item in self.items):
            return  # a view without samples may have any field
        taken = self.chance.sample(names, min(len(names), self.chance.randrange(1, 4)))
        new = f".r{len(self.steps)}"
        new += ".cls" if taken == [".cls"] else ".txt"
        if self.chance.random() < 0.2:
            new = taken[-1]
        self.view = self.view.rename({new: ";".join(taken)})

        def renamed(fields: dict[str, Any]) -> dict[str, Any]:
            there = [name for name in taken if name in fields]
            kept = {name: value for name, value in fields.items() if name not in taken}
            with_value = [name for name in there if fields[name] is not None]
            return kept | ({new: fields[(with_value or there)[0]]} if there else {})

        for item in self.items:
            item.fields, item.stored = renamed(item.fields), renamed(item.stored)

    def _windows(self) -> None:
        """Give each sample a list of the fields of its neighbours with the same label."""
        if not self.items or self.steps.count("windows") > 1:
            return
        before, after, stride = (self.chance.randrange(*ends) for ends in ((3,), (3,), (1, 3)))
        groups = [int(item.key[1:]) // 5 % 3 for item in self.items]
        ends = self.chance.choice(["clamp", "drop"])
        how: Any = {"within": groups, "stride": stride, "ends": ends}
        self.view = self.view.windows(before, after, **how)
        lines = {group: [i for i, g in enumerate(groups) if g == group] for group in groups}
        items = []
        for index, item in enumerate(self.items):
            line = lines[groups[index]]
            wanted = [line.index(index) + stride * k for k in range(-before, after + 1)]
            if ends == "drop" and not (wanted[0] >= 0 and wanted[-1] < len(line)):
                continue
            there = [self.items[line[min(max(0, at), len(line) - 1)]].fields for at in wanted]
            lists = {
                n: [each.get(n) for each in there] for n in {n for each in there for n in each}
            }
            fields = {n: None if set(map(id, v)) == {id(None)} else v for n, v in lists.items()}
            items.append(replace(item, fields=fields))
        self.items = copy.deepcopy(items)

    def _join(self) -> None:
        right, items = self.dataset("captions", "new")
        for _ in range(self.chance.randrange(3)):
            right, items = self.choose(right, items)
        right, items = self._once(right, items)
        if not items:
            return  # its fields are those of its dataset, which may be in both
        missing = self.chance.choice(["drop", "fill"])
        replacing = self.chance.random() < 0.3
        tag = f".j{len(self.steps)}"
        names = sorted({name for item in items for name in item.stored})
        rename = {} if replacing else {name: f"{tag}{name}" for name in names}
        self.view = self.view.join(right, missing=missing, rename=rename, replace=replacing)
        self._merge(items, rename, missing)

    def _once(self, right: Any, items: list[Item]) -> tuple[Any, list[Item]]:
        """Leave out what is several times in the right side of a join."""
        seen: dict[str, int] = {}
        for place, item in enumerate(items):
            seen.setdefault(item.key, place)
        places = list(seen.values())
        return right[places], [items[place] for place in places]

    def _merge(self, items: list[Item], rename: dict[str, str], missing: str) -> None:
        by_key = {item.key: item for item in items}
        none = dict.fromkeys(items[0].stored) if items else {}
        merged = []
        for item in self.items:
            other = by_key.get(item.key)
            if other is None and missing == "drop":
                continue
            given = none if other is None else other.stored
            new = {rename.get(name, name): value for name, value in given.items()}
            if other is None and missing == "keep":
                new = {}
            merged.append(
                replace(item, fields={**item.fields, **new}, stored={**item.stored, **new})
            )
        self.items = merged

    def _patch(self) -> None:
        right, items = self._once(*self.choose(*self.dataset("new")))
        self.view = self.view.join(right, missing="keep", replace=True)
        self._merge(items, {}, "keep")

    def _table(self) -> None:
        tag = f"{len(self.steps)}"
        rename = {"words": f".words{tag}", "say": f".say{tag}"}
        source: Any = self.world.folder / "t.parquet"
        if self.chance.random() < 0.3:
            source, self.can_be_saved = self.world.table, False
        missing = self.chance.choice(["drop", "fill"])
        self.view = self.view.join(source, missing=missing, rename=rename)
        table = self.world.table
        rows = zip(table["key"], table["words"], table["say"], strict=True)
        items = [Item({}, {"words": w, "say": s}, key, "", 0) for key, w, s in rows]
        self._merge(items, rename, missing)

    def _aligned(self) -> None:
        known = all(item.key[0] == "a" and ".al.txt" not in item.stored for item in self.items)
        # Without samples the list does not know whether the view has these fields already.
        if self.items and known and not any(".al.txt" in item.hidden for item in self.items):
            right, items = self.dataset("aligned")
            self.view = self.view.join(right)
            self._merge(items, {}, "error")

    def check(self, view: Any) -> None:
        """Compare all ways to read a view with the list."""
        items, count = self.items, len(self.items)
        assert len(view) == count
        batch = view.__getitems__(list(range(count)))
        assert list(view) == batch
        loader = wids.Loader(view, batch_size=7, num_workers=2, collate_fn=list)
        assert [sample for samples in loader for sample in samples] == batch
        for index, (sample, item) in enumerate(zip(batch, items, strict=True)):
            assert {name: sample[name] for name in sample if name[0] == "."} == item.fields
            labels = (sample["__key__"], sample["__index__"], sample["__shard__"])
            assert labels == (item.key, index, item.shard)
            assert sample["__shardindex__"] == item.local
            assert item.name in (None, sample["__dataset__"])
        assert list(view.keys) == [item.key for item in items]
        hidden = {name for item in items for name in item.hidden}
        for name in sorted({name for item in items for name in item.stored} - hidden):
            values = [item.stored.get(name) for item in items]
            found = view.column(name, fill="?")
            found = found.tolist() if isinstance(found, np.ndarray) else list(found)
            assert found == ["?" if value is None else value for value in values], name
            there = [place for place in range(count) if isinstance(values[place], str)]
            some = self.chance.sample(there, min(5, len(there)))
            wanted = [values[place] for place in some]
            if some:
                raw = view.gather_bytes(some, name)
                assert [bytes(each) for each in raw] == [each.encode() for each in wanted]
                assert [bytes(view.read_raw(at)[name]).decode() for at in some] == wanted
            if not any(isinstance(item.fields.get(name), list) for item in items):
                assert not some or list(view.gather(some, name)) == wanted
            windows = [at for at in range(count) if is_window(items[at].fields.get(name))][:5]
            if windows:
                lists = [[*each] for each in view.gather(windows, name)]
                assert lists == [items[at].fields[name] for at in windows]
        runs = np.repeat(np.arange(len(view.lengths)), view.lengths).tolist()
        shards = [view.locate(index).shard.url for index in range(count)]
        assert shards == [item.shard for item in items]
        changes = [before != after for before, after in pairwise(shards)]
        assert changes == [a != b for a, b in pairwise(runs)]


def run(seed: int, world: World, folder: Path) -> None:
    chain = Chain(seed, world)
    try:
        for _ in range(chain.chance.randrange(1, 7)):
            chain.change()
        chain.check(chain.view)
        chain.check(pickle.loads(pickle.dumps(chain.view)))
        if chain.can_be_saved:
            chain.view.save(folder / "v.json")
            opened = wids.open(folder / "v.json", cache_dir=folder / "cache", remote="range")
            if not any(item.hidden for item in chain.items):
                chain.check(opened)
    except Exception as error:
        error.add_note(f"chain {seed}: {' '.join(chain.steps)}")
        raise


@pytest.mark.parametrize("first", range(0, CHAINS, 20))
def test_a_chain_of_views_is_a_list(world: World, tmp_path: Path, first: int) -> None:
    """Samples, batches, labels, columns, raw fields and runs; also pickled, and saved."""
    for seed in range(first, first + 20):
        run(seed, world, tmp_path)


@pytest.mark.slow
def test_chains_are_read_by_range(world: World, tmp_path: Path, shard_server: ShardServer) -> None:
    """Samples and fields of all chains are requested alone, and are those of the list."""
    far = by_range(world, tmp_path, shard_server)
    for seed in range(5000, 5010):
        run(seed, far, tmp_path)
    shards = [each for each in shard_server.requests if each.path.endswith(".tar")]
    assert all("range" in map(str.lower, each.headers) for each in shards)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(CHAINS, CHAINS + MANY, 100))
def test_many_chains(world: World, tmp_path: Path, first: int) -> None:
    """The same for a thousand more."""
    for seed in range(first, first + 100):
        run(seed, world, tmp_path)
