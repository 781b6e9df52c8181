"""Shards that are replaced between any two uses: every answer is of one version of each shard.

A dataset of three shards is read, searched, sorted, joined, copied and saved in a random order of
steps, between which its shards are replaced, on a disk or on a real server. Each field says of
which key and version it is, so that an answer tells by itself which versions it was made of.
"""

import os
import pickle
import random
import re
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from helpers.server import ShardServer
from helpers.shards import write_shard

import wids
from wids.fetching.fetch import Fetcher, FetchPolicy
from wids.specs.sources import load_spec
from wids.tools.packing import write_pack

NUM_SHARDS = 3
PLACES = ("local", "pack", "whole", "range", "auto", "packed whole", "packed range")
REFUSED = re.compile(
    r"replaced|changed since|other keys|spec says|expected a file of|found twice|bytes, found"
    r"|server has one of|indexes? of|was fetched|no counterpart|found another of that name"
)


@dataclass
class Version:
    """One version of a shard: its keys in order, and what tells its fields from others."""

    keys: list[str]
    mark: int
    wide: bool = False

    def cls(self, key: str) -> int:
        """Return the number of a sample, of two digits."""
        return 10 + (int(key[1:]) * 7 + self.mark * 13) % 90

    def samples(self, side: str) -> list[dict[str, Any]]:
        """Return the samples of a shard of the left or the right dataset."""
        more = "x" * (600 if self.wide else 0)
        return [
            {"__key__": key, f".{side}.txt": f"{key}:{self.mark:04d}{more}"}
            | {f".{side}.cls": str(self.cls(key))}
            for key in self.keys
        ]


@dataclass
class Shards:
    """The shards of a dataset, and all the versions that each of them had."""

    side: str
    folder: Path
    server: ShardServer | None
    rng: random.Random
    sidecars: bool
    versions: list[list[Version]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.folder.mkdir()
        for shard in range(NUM_SHARDS):
            self.versions.append([])
            self.put(shard, Version([f"{shard}{n:02d}" for n in range(5)], 0), "with")

    def put(self, shard: int, version: Version, sidecar: str) -> None:
        """Replace a shard, with its sidecar ("with"), without one, or leaving the old one."""
        self.versions[shard].append(version)
        name = f"{self.side}-{shard}.tar"
        fresh = write_shard(self.folder / f"{name}.fresh", version.samples(self.side))
        image = None
        if sidecar == "with" and self.sidecars:
            wids.TarIndex.from_tar(fresh).save(self.folder / "made.widx")
            image = (self.folder / "made.widx").read_bytes()
        if self.server is not None:
            self.server.put(name, fresh.read_bytes())
            if image is not None:
                self.server.put(f"{name}.widx", image)
            elif sidecar == "without":
                self.server.files.pop(f"/{name}.widx", None)
        fresh.replace(self.folder / name)
        beside = self.folder / f"{name}.widx"
        if image is not None:
            (self.folder / "made.widx").replace(beside)
        elif sidecar == "without":
            beside.unlink(missing_ok=True)

    def replace(self) -> None:
        """Replace a shard by another version of a random kind."""
        rng = self.rng
        shard = rng.randrange(NUM_SHARDS)
        last = self.versions[shard][-1]
        keys, wide = list(last.keys), False
        match rng.choice(["order", "order", "swap", "bytes", "count", "sizes"]):
            case "order":
                rng.shuffle(keys)
            case "swap":
                keys[1], keys[3] = keys[3], keys[1]
            case "count":
                keys = keys[:-1] if len(keys) > 4 else [*keys, f"{shard}{rng.randrange(50, 99)}"]
            case "sizes":
                wide = not last.wide
        mark = sum(map(len, self.versions))
        self.put(shard, Version(keys, mark, wide), rng.choice(["with", "without", "stale"]))

    def rows(self) -> list[Any]:
        """Return the rows of a spec."""
        base = str(self.folder) if self.server is None else self.server.url
        return [
            (f"{base}/{self.side}-{shard}.tar", len(each[-1].keys))
            for shard, each in enumerate(self.versions)
        ]


class MixedError(AssertionError):
    """An answer that is of no single version of a shard."""


Told = Callable[[Version, int], bool | None]


@dataclass
class Oracle:
    """All that a dataset has answered.

    Read by range, a sidecar of another version is noticed at the first sample that differs, so that
    keys and fields may be of two versions until then (`apart`).
    """

    shards: Shards
    counts: list[int]
    apart: bool
    answers: dict[bool, list[Told]] = field(default_factory=lambda: {False: [], True: []})

    def narrowed(self, told: Told, what: Any, *, of_keys: bool = False) -> None:
        """Take in an answer: whether it fits a version, or None if it says nothing of a shard.

        One version of each shard must fit all answers.
        """
        kind = self.apart and of_keys
        answers = [*self.answers[kind], told]
        for shard, every in enumerate(self.shards.versions):
            if not any(self.fits(answers, version, shard) for version in every):
                raise MixedError(f"shard {shard}: {what!r} is of no version that fits the rest")
        self.answers[kind] = answers

    @staticmethod
    def fits(answers: list[Told], version: Version, shard: int) -> bool:
        """Return whether a version fits all answers."""
        return all(told(version, shard) is not False for told in answers)

    def texts(self, texts: Iterable[str], shown: Any = None) -> None:
        """Take in the texts of samples, which name their versions."""
        marks: list[set[int]] = [set() for _ in range(NUM_SHARDS)]
        for text in texts:
            marks[int(text[0])].add(int(text[4:8]))

        def told(version: Version, shard: int) -> bool | None:
            return marks[shard] == {version.mark} if marks[shard] else None

        self.narrowed(told, shown or [*texts])

    def whole(
        self, values: Sequence[Any], of: Callable[[Version, str], Any], *, of_keys: bool = False
    ) -> None:
        """Take in a value of each sample, in order."""
        ends = [sum(self.counts[: shard + 1]) for shard in range(NUM_SHARDS)]
        parts = [values[end - count : end] for end, count in zip(ends, self.counts, strict=True)]
        self.narrowed(
            lambda v, shard: [of(v, key) for key in v.keys] == parts[shard],
            parts,
            of_keys=of_keys,
        )


def text_of(sample: dict[str, Any], side: str = "l") -> str:
    """Return the text of a sample, and demand that its key and number are of the same version."""
    text = str(sample[f".{side}.txt"])[:8]
    if text[:3] != sample["__key__"]:
        raise MixedError(f"{sample['__key__']} has the text {text}")
    expected = Version([], int(text[4:])).cls(text[:3])
    if int(sample[f".{side}.cls"]) != expected:
        raise MixedError(f"{text} has the number {sample[f'.{side}.cls']}, expected {expected}")
    return text


class Walk:
    """One random walk of steps over datasets whose shards are replaced between them."""

    def __init__(self, seed: int, tmp: Path, server: ShardServer) -> None:
        self.rng = rng = random.Random(seed)
        self.place = rng.choice(PLACES)
        self.tmp = tmp
        remote = self.place not in {"local", "pack"}
        served = server if remote else None
        sidecars = rng.random() < 0.7
        self.left = Shards("l", tmp / "l", served, rng, sidecars)
        self.right = Shards("r", tmp / "r", served, rng, sidecars)
        self.cache = tmp / "cache"
        self.log: list[str] = [self.place]
        self.steps = 0
        self.refusals = 0

    def open(self, shards: Shards) -> Any:
        """Open a dataset of shards as they are now, or by a pack that was made at some time."""
        rng = self.rng
        remote = {"range": "range", "auto": "auto", "packed range": "range"}.get(
            self.place, "whole"
        )
        options: dict[str, Any] = {"lru_size": rng.choice([1, 2, 100]), "remote": remote}
        if remote != "whole":
            options["cache_size"] = rng.choice([1000, None])
        if self.place == "local" and rng.random() < 0.3:
            options["access"] = "pread"
        source: Any = shards.rows()
        if "pack" in self.place:
            pack = self.tmp / f"{shards.side}.wpack"
            if not pack.exists() or rng.random() < 0.6:
                write_pack(load_spec(source), pack, cache_dir=self.tmp / "packing")
            source = {"shardlist": source, "pack": str(pack)}
        dataset = wids.ShardListDataset(source, cache_dir=self.cache, **options)
        dataset.cache.fetcher = Fetcher(FetchPolicy(backoff_seconds=0.0, attempts=2))
        return dataset

    def reopen(self) -> None:
        """Begin anew with datasets of what is there now."""
        self.log.append("reopen")
        self.views: list[tuple[str, Any, list[str]]] = []
        self.joined: Any = None
        try:
            self.data, self.other = self.open(self.left), self.open(self.right)
        except (wids.WidsError, ValueError) as error:
            self.refused(error)
            for pack in self.tmp.glob("*.wpack"):
                pack.unlink()
            self.data, self.other = self.open(self.left), self.open(self.right)
        apart = self.place not in {"local", "pack", "whole", "packed whole"}
        self.told = {
            "l": Oracle(self.left, self.data.lengths, apart),
            "r": Oracle(self.right, self.other.lengths, apart),
        }

    def refused(self, error: Exception) -> None:
        """Demand that an error is one that explains what was replaced."""
        self.log.append(f"  {type(error).__name__}: {error}"[:300])
        self.refusals += 1
        plain = isinstance(error, wids.IntegrityError | wids.SampleCountError)
        if not (plain or REFUSED.search(str(error))):
            raise error

    def run(self, num_steps: int) -> None:
        """Take steps; after an error, begin anew."""
        for self.steps in range(num_steps):
            step = self.rng.choice(STEPS)
            self.log.append(step.__name__)
            try:
                step(self)
            except (wids.WidsError, ValueError, KeyError) as error:
                self.refused(error)
                self.reopen()

    # The steps.

    def replace(self) -> None:
        """Replace a shard or several."""
        for _ in range(self.rng.choice([1, 1, 2, 4])):
            shards = self.rng.choice([self.left, self.left, self.right])
            shards.replace()

    def evict(self) -> None:
        """Clear the cache."""
        wids.ShardCache(self.cache).clear()

    def fill(self) -> None:
        """Let another program read everything into the cache."""
        other = self.open(self.left)
        try:
            list(other)
            other.column(".l.cls")
            other.key_hashes()
        finally:
            other.close()

    def samples(self) -> None:
        """Read some samples one by one, and a batch."""
        total = len(self.data)
        self.told["l"].texts(
            [text_of(self.data[index]) for index in self.rng.sample(range(total), 4)]
        )
        batch = self.data.__getitems__(self.rng.sample(range(total), 4))
        self.told["l"].texts([text_of(sample) for sample in batch])

    def keys(self) -> None:
        """List all keys."""
        self.told["l"].whole(list(self.data.keys), lambda _, key: key, of_keys=True)

    def look_up(self) -> None:
        """Look a key up."""
        key = f"{self.rng.randrange(NUM_SHARDS)}{self.rng.randrange(3):02d}"
        absent = key not in self.data.keys
        self.told["l"].narrowed(
            lambda version, shard: (
                (key in version.keys) is not absent if key[0] == str(shard) else None
            ),
            (key, absent),
            of_keys=True,
        )
        if absent:
            return
        index = self.data.index_of(key)
        sample = self.data[index]
        if sample["__key__"] != key:
            raise MixedError(f"index_of({key!r}) is {index}, where {sample['__key__']} is")
        self.told["l"].texts([text_of(sample)])

    def column(self) -> None:
        """Read a column of all samples, or of some."""
        name, of = self.rng.choice(VALUES)
        self.told["l"].whole([str(each)[:8] for each in self.data.column(f".l{name}")], of)

    def gather(self) -> None:
        """Gather a field of all samples, in any order."""
        order = self.rng.sample(range(len(self.data)), len(self.data))
        texts = self.data.gather(order, ".l.txt")
        self.told["l"].texts([str(each)[:8] for each in texts])

    def filter(self) -> None:
        """Choose by numbers in a column, by text, or by keys."""
        rng = self.rng
        bound = rng.randrange(15, 95)
        kinds: dict[str, Callable[[Version, str], bool]] = {
            f'"l.cls" < {bound}': lambda v, key: v.cls(key) < bound,
            f"contains(\"l.txt\", '{bound % 4}:')": lambda _, key: key[-1] == str(bound % 4),
            f"key < '{bound % 3}03'": lambda _, key: key < f"{bound % 3}03",
        }
        text = rng.choice(list(kinds))
        self.chose(text, self.data.filter(text), kinds[text], of_keys=text.startswith("key"))

    def chose(
        self, how: str, view: Any, keep: Callable[[Version, str], bool], *, of_keys: bool
    ) -> None:
        """Take in what was chosen, and compare it now or later with its samples."""
        counts = self.told["l"].counts
        rows = view.slots[0].rows.array().tolist()
        ends = [sum(counts[: n + 1]) for n in range(NUM_SHARDS)]

        def told(version: Version, shard: int) -> bool:
            start = ends[shard] - counts[shard]
            chosen = [row - start for row in rows if start <= row < ends[shard]]
            expected = [n for n, key in enumerate(version.keys) if keep(version, key)]
            return sorted(chosen) == expected and len(version.keys) == counts[shard]

        self.told["l"].narrowed(told, (how, rows), of_keys=of_keys)
        self.views.append((how, view, []))

    def read_view(self) -> None:
        """Read the samples of a view, here or in a copy."""
        if not self.views:
            return
        how, view, _ = self.rng.choice(self.views)
        copied = self.rng.random() < 0.4
        if copied:
            self.log.append("  a copy")
            view = pickle.loads(pickle.dumps(view))
        if self.rng.random() < 0.5 or not len(view):
            texts = [text_of(sample) for sample in view]
        else:
            texts = [str(each)[:8] for each in view.column(".l.txt")]
        self.told["l"].texts(texts, (how, texts))

    def sort(self) -> None:
        """Sort by keys or numbers."""
        if self.rng.random() < 0.5:
            view = self.data.order_by("key")
            texts = [text_of(sample) for sample in view]
            if [text[:3] for text in texts] != sorted(text[:3] for text in texts):
                raise MixedError(f"not sorted by key: {texts}")
        else:
            view = self.data.order_by('"l.cls"')
            samples = list(view)
            texts = [text_of(sample) for sample in samples]
            numbers = [sample[".l.cls"] for sample in samples]
            if numbers != sorted(numbers):
                raise MixedError(f"not sorted by number: {texts}")
        self.told["l"].texts(texts)
        if len(set(view.slots[0].rows.array().tolist())) != len(self.data):
            raise MixedError("a sample is lost")

    def select(self) -> None:
        """Choose by a list of keys, or leave them out."""
        wanted = [f"{shard}{number:02d}" for shard in range(NUM_SHARDS) for number in (0, 2)]
        if self.rng.random() < 0.5:
            view = self.data.exclude(wanted, missing="drop")
            self.chose("exclude", view, lambda _, key: key not in wanted, of_keys=True)
        else:
            view = self.data.select_keys(wanted, missing="drop")
            self.chose("select_keys", view, lambda _, key: key in wanted, of_keys=True)

    def join(self) -> None:
        """Join the other dataset, by keys or as it lies."""
        how = self.rng.choice([{}, {"aligned": True}, {"aligned": False}, {"missing": "drop"}])
        if how == {"aligned": True} and len(self.data) != len(self.other):
            return
        self.joined = self.data.join(self.other, **how)
        self.aligned = how == {"aligned": True}
        self.log.append(f"  {how}")

    def read_join(self) -> None:
        """Read samples, a column, a gathered field or a choice of the join."""
        if self.joined is None:
            return
        joined = self.joined
        every = list(range(len(joined)))
        what = self.rng.choice(["samples", "column", "gather", "filter", "sort"])
        self.log.append(f"  {what}")
        if what in {"column", "gather"}:
            read = joined.column if what == "column" else lambda name: joined.gather(every, name)
            theirs = [str(each)[:8] for each in read(".r.txt")]
            mine = [str(each)[:8] for each in read(".l.txt")]
        else:
            view = joined
            if what == "filter":
                view = joined.filter('"r.cls" < 50')
            elif what == "sort":
                view = joined.order_by('"r.cls"')
            samples = list(view)
            mine = [text_of(sample) for sample in samples]
            theirs = [text_of(sample, "r") for sample in samples]
            numbers = [sample[".r.cls"] for sample in samples]
            if (what == "filter" and max(numbers, default=0) >= 50) or (
                what == "sort" and numbers != sorted(numbers)
            ):
                raise MixedError(f"{what}: {numbers}")
        # In columns, nobody compares the keys that aligned=True says are equal.
        is_told = self.aligned and what in {"column", "gather"}
        if not is_told and [text[:3] for text in mine] != [text[:3] for text in theirs]:
            raise MixedError(f"{what}: {mine} beside {theirs}")
        self.told["l"].texts(mine)
        self.told["r"].texts(theirs)

    def save(self) -> None:
        """Save a view and open it again."""
        if not self.views:
            return
        how, view, _ = self.rng.choice(self.views)
        path = self.tmp / "view.json"
        view.save(path)
        again = wids.open(path, cache_dir=self.cache)
        texts = [text_of(sample) for sample in again]
        # A saved view knows names and places alone, where the spec has no digests.
        marks = {text[0]: int(text[4:8]) for text in texts}

        def told(version: Version, shard: int) -> bool | None:
            read = [v for v in self.left.versions[shard] if v.mark == marks.get(str(shard))]
            alike = [(each.keys, each.wide) for each in read]
            return (version.keys, version.wide) in alike if alike else None

        self.told["l"].narrowed(told, (how, texts))
        self.reopen()

    def close(self) -> None:
        """Close everything, which may be read on."""
        self.data.close()

    def copy(self) -> None:
        """Go on with a copy, as a worker process gets."""
        self.data = pickle.loads(pickle.dumps(self.data))


VALUES: list[tuple[str, Callable[[Version, str], Any]]] = [
    (".cls", lambda v, key: str(v.cls(key))),
    (".txt", lambda v, key: f"{key}:{v.mark:04d}"),
]
STEPS: list[Callable[[Walk], None]] = [
    *[Walk.replace] * 6,
    *[Walk.read_view] * 4,
    *[Walk.filter] * 2,
    *[Walk.read_join] * 3,
    *[Walk.join] * 2,
    Walk.evict,
    Walk.fill,
    Walk.samples,
    Walk.samples,
    Walk.keys,
    Walk.look_up,
    Walk.column,
    Walk.gather,
    Walk.sort,
    Walk.select,
    Walk.save,
    Walk.close,
    Walk.copy,
]
_NUM_WALKS = 400 if os.environ.get("WIDS_LONG_TESTS") else 12


@pytest.mark.parametrize("seed", range(_NUM_WALKS))
def test_every_answer_is_of_one_version(
    seed: int, tmp_path: Path, shard_server: ShardServer
) -> None:
    """In a random walk, all that a dataset says of a shard is of one version of it."""
    walk = Walk(seed, tmp_path, shard_server)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            walk.reopen()
            walk.run(30)
    except Exception as error:
        error.add_note("\n".join([f"seed {seed}", *walk.log]))
        raise
