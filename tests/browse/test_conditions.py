"""Conditions, picks, counts, orders and groups of the page, each against plain Python."""

import hashlib
import importlib.util
import json
import os
import random
import shlex
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from helpers.browsing import Browsing, browsing
from helpers.hostile import HOSTILE_CONDITIONS
from helpers.pictures import plain
from helpers.server import ShardServer
from helpers.serving import serve_shard
from helpers.shards import write_shard, write_shards
from helpers.specimens import tone
from helpers.waiting import when_finished

import wids
from wids.browse.catalogueclient import CatalogueError
from wids.browse.columns import column_name
from wids.browse.completion import completions
from wids.browse.fieldreader import FieldReader
from wids.browse.handlers import ApiHandlers

NAMES = {0: "cat", 1: "sea lion, old", 2: "7", 3: "dog", 4: "dog"}
SHARDS, LENGTH = 4, 50
COUNT = SHARDS * LENGTH


def document_of(number: int) -> dict[str, Any]:
    rng = random.Random(number)
    found: dict[str, Any] = {
        "width": rng.choice([320, 400, 480, 640]),
        "score": round(rng.random() * 3, 1),
        "lang": rng.choice(["de", "en, gb", "null", ""]),
        "meta": {"ok": number % 3 == 0, "image size": number % 5},
        "tags": ["a", "b"][: number % 3],
        "name": f"name {number}",
    }
    if number % 7 == 3:
        del found["lang"], found["score"]
    if number == 150:
        found["score"] = 1e300
    return found


DOCUMENTS = [document_of(number) for number in range(COUNT)]
BROKEN = {5, 60, 61}
WITHOUT_TEXT = {number for number in range(COUNT) if number % 4}
CLASSES = [number * number % 5 for number in range(COUNT)]


def value_of(number: int, *path: str) -> Any:
    """Return a value in the JSON of a sample; None where there is none that can be read."""
    value: Any = None if number in BROKEN else DOCUMENTS[number]
    for step in path:
        value = (value or {}).get(step)
    return value


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browsing]:
    """Serve samples with classes, documents of which some are damaged, pictures and texts."""
    samples = []
    for number, document in enumerate(DOCUMENTS):
        text = json.dumps(document)
        sample = {
            "__key__": f"k{number:03d}",
            ".cls": str(CLASSES[number]),
            ".png": plain(size=(8 + number % 3, 8)),
            ".json": text[:-5] if number in BROKEN else text,
        }
        if number not in WITHOUT_TEXT:
            sample[".txt"] = f"{number:03d}" + "x" * (number % 11)
        samples.append(sample)
    paths = write_shards(tmp_path_factory.mktemp("conditions"), samples, LENGTH)
    with browsing(paths, class_names=NAMES, source="photos.json") as server:
        yield server


def found_by(server: Browsing, **query: Any) -> list[int]:
    """Return the indexes of the samples that a page shows, in their order."""
    page = server.ask_until_finished("page", count=240, **query)
    return [tile["index"] for tile in page["tiles"]]


def facets_of(server: Browsing, **query: Any) -> dict[str, dict[str, Any]]:
    found = server.ask_until_finished("facets", **query)
    return {facet["name"]: facet for facet in found["facets"]}


def labelled(facet: dict[str, Any], which: str = "now") -> dict[str, int]:
    labels = [label for _, label in facet["values"]]
    counted: Counter[str] = Counter()
    for label, count in zip(labels, facet[which]["counts"], strict=True):
        counted[label] += count
    return dict(counted)


def counts_of(values: Sequence[Any]) -> dict[str, int]:
    texts = [str(each).lower() if isinstance(each, bool) else str(each) for each in values]
    return dict(Counter(texts))


def binned(facet: dict[str, Any], values: Sequence[float]) -> list[int]:
    """Count values in the bins of a facet, of which the outermost have no bound."""
    edges = list(map(float, facet["edges"]))
    inner = edges[1:-1]
    counts = [0] * (len(edges) - 1)
    for value in values:
        counts[sum(value >= edge for edge in inner)] += 1
    return counts


NARROWED: list[tuple[dict[str, str], Callable[[int], bool]]] = [
    ({}, lambda n: True),
    ({"cls": "cat"}, lambda n: CLASSES[n] == 0),
    ({"where": "json.width >= 480 or cls = 1"},
     lambda n: (value_of(n, "width") or 0) >= 480 or CLASSES[n] == 1),
    ({"shard": "1-2"}, lambda n: 50 <= n < 150),
    ({"marks": "3-80", "json.score": "0.3..1.2"},
     lambda n: 3 <= n <= 80 and 0.3 <= (value_of(n, "score") or 0) < 1.2),
    ({"broken": "json"}, lambda n: n in BROKEN),
]  # fmt: skip


@pytest.mark.parametrize(("query", "holds"), NARROWED)
def test_facets_count_what_is_shown(
    served: Browsing, query: dict[str, str], holds: Callable[[int], bool]
) -> None:
    """Each count of each facet, of all samples and of those shown, is that of Python."""
    facets = facets_of(served, **query)
    everyone = list(range(COUNT))
    some = [number for number in everyone if holds(number)]
    for which, numbers in (("all", everyone), ("now", some)):
        shown = labelled(facets["cls"], which)
        assert shown == {name: sum(NAMES[CLASSES[n]] == name for n in numbers) for name in shown}
        for name, path in (("json.lang", ("lang",)), ("json.meta.ok", ("meta", "ok"))):
            values = [value_of(n, *path) for n in numbers]
            known = counts_of([each for each in values if each is not None])
            counted = {label: n for label, n in labelled(facets[name], which).items() if n}
            assert counted == known
            assert facets[name][which]["missing"] == values.count(None)
        for name, path in (
            ("json.width", ("width",)),
            ("json.score", ("score",)),
            ('json.meta."image size"', ("meta", "image size")),
        ):
            values = [value_of(n, *path) for n in numbers]
            known_numbers = [each for each in values if each is not None]
            assert facets[name][which]["counts"] == binned(facets[name], known_numbers), name
            assert facets[name][which]["missing"] == values.count(None)
        lengths = [3 + n % 11 for n in numbers if n not in WITHOUT_TEXT]
        assert facets["length(txt)"][which]["counts"] == binned(facets["length(txt)"], lengths)
        widths = [8 + n % 3 for n in numbers]
        assert facets["png.width"][which]["counts"] == binned(facets["png.width"], widths)
    assert "json.name" not in facets  # which are never repeated
    found = served.ask_until_finished("facets", **query)
    fields = {field["name"]: field for field in found["fields"]}
    assert fields.get("txt", {}).get("missing", 0) == sum(n in WITHOUT_TEXT for n in some)
    assert fields.get("json", {}).get("broken", 0) == sum(n in BROKEN for n in some)
    per_shard = [sum(n // LENGTH == shard for n in some) for shard in range(SHARDS)]
    assert facets["shard_index"]["now"]["counts"] == per_shard


def test_counts_are_of_the_samples_that_one_rank_sees(served: Browsing) -> None:
    """In the order of a sampler, facets and groups count the share of the rank."""
    order = {"order": "shards", "rank": "1", "replicas": "3", "seed": "4", "interleave": "2"}
    rank = found_by(served, **order)
    assert 60 <= len(rank) <= 70
    facets = facets_of(served, **order)
    shown = labelled(facets["cls"])
    assert shown == {name: sum(NAMES[CLASSES[n]] == name for n in rank) for name in shown}
    assert found_by(served, where="cls = 0", **order) == [n for n in rank if CLASSES[n] == 0]
    assert found_by(served, where="position < 5", **order) == rank[:5]
    by_batch = served.ask_until_finished("groups", by="position // 16", across="cls", **order)
    wanted = Counter((place // 16, CLASSES[n]) for place, n in enumerate(rank))
    assert {(int(a), b): n for (a, _), (_, b), n in by_batch["groups"]} == {
        (batch, NAMES[number]): count for (batch, number), count in wanted.items() if number < 3
    } | {
        (batch, "dog"): wanted[batch, 4]
        for batch in {batch for batch, _ in wanted}
        if wanted[batch, 4]
    }
    first = next(group for group in by_batch["groups"] if group[0][0] == "1")
    picks = {by_batch["parameters"][0]: first[0][0], by_batch["parameters"][1]: first[1][0]}
    assert len(found_by(served, **picks, **order)) == first[2]


def test_picks_choose_what_they_say(served: Browsing) -> None:
    """Every value and every bin of every facet leads to as many samples as it counts."""
    facets = facets_of(served)
    del facets["shard_index"]  # which is picked by shards
    for facet in facets.values():
        total = facet["all"]["counts"]
        entries = [value for value, _ in facet.get("values", [])]
        edges = facet.get("edges", [])
        last = len(edges) - 2
        entries += [
            f"{edges[n] if n else ''}..{edges[n + 1] if n < last else ''}"
            for n in range(len(edges) - 1)
            if total[n]
        ]
        for entry, count in zip(entries, [n for n in total if n], strict=True):
            assert len(found_by(served, **{facet["parameter"]: entry})) == count, (facet, entry)
        missing = facet["all"]["missing"]
        assert len(found_by(served, **{facet["parameter"]: "null"})) == missing
    # Several values of a column are one or the other, and columns go together.
    some = found_by(
        served, **{"json.lang": "de,en%2C gb", "cls": "cat,3", "json.width": "400..600"}
    )
    assert some == [
        n
        for n in range(COUNT)
        if value_of(n, "lang") in ("de", "en, gb")
        and CLASSES[n] in (0, 3)
        and 400 <= value_of(n, "width") < 600
    ]
    assert found_by(served, missing="txt") == sorted(WITHOUT_TEXT)
    assert found_by(served, broken="json", where="key <> 'k005'") == [60, 61]


@pytest.mark.parametrize("look", ["grid", "list", "table"])
def test_every_look_is_sorted(served: Browsing, look: str) -> None:
    """Samples are sorted by any expression, those without a value last, and are saved so."""

    def numbers(sort: str) -> list[int]:
        return found_by(served, sort=sort, look=look)

    scores = [(value_of(n, "score"), n) for n in range(COUNT)]
    least = [n for _, n in sorted(each for each in scores if each[0] is not None)]
    without = [n for score, n in scores if score is None]
    assert numbers("json.score") == least + without
    most = [n for _, n in sorted((-s, n) for s, n in scores if s is not None)]
    assert numbers("json.score desc") == most + without
    some = found_by(served, sort="length(txt) desc, key desc", where="txt is not null", look=look)
    wanted = [n for n in range(COUNT) if n not in WITHOUT_TEXT]
    assert some == sorted(wanted, key=lambda n: (-(n % 11), -n))
    if look == "grid":
        document = served.selection(sort="json.score desc", where="cls = 1")
        assert document["made"] == ["filter('cls = 1')", "order_by('json.score desc')"]


def test_groups_count_what_is_shown(served: Browsing) -> None:
    """Samples are counted by a column, by another, and by an expression."""
    found = served.ask_until_finished("groups", by="json.width", across="json.meta.ok", shard="0-1")
    wanted = Counter((value_of(n, "width"), value_of(n, "meta", "ok")) for n in range(100))
    shown = {(a[0], b[0]): count for a, b, count in found["groups"]}
    texts = {None: "null", True: "true", False: "false"}
    assert shown == {(str(w or "null"), texts[ok]): n for (w, ok), n in wanted.items()}
    assert (found["total"], found["num_groups"]) == (100, len(wanted))
    found = served.ask_until_finished("groups", by="length(key)")
    assert found["groups"] == [[["4", "4"], COUNT]]
    first = served.ask_until_finished("groups")
    assert first["parameters"] == ["cls"]


WRONG = [
    ({"where": "json.widht > 400"}, 'Candidate Entries: "width"'),
    ({"where": "cls = 3 and width > 400"}, "Perhaps: json.width, png.width"),
    ({"where": "cls == 3 and"}, "syntax error"),
    ({"where": "cls = 'cat'"}, "cls_name = 'cat'"),
    ({"where": '"dog" = cls_name'}, "a text is in single quotes ('dog')"),
    ({"sort": "json.scor"}, 'Candidate Entries: "score"'),
    ({"json.widht": "3"}, 'Candidate Entries: "width"'),
    ({"json.width": "1..x"}, "expected numbers and ranges"),
    ({"cls; drop table x": "3"}, "syntax error"),
    ({"(select 1)": "3"}, "subquery is not allowed"),
    ({"missing": "nothing"}, "nothing"),
]


@pytest.mark.parametrize(("query", "said"), WRONG)
def test_what_is_wrong_is_said(served: Browsing, query: dict[str, str], said: str) -> None:
    """A wrong condition, pick or order is refused with what may have been meant."""
    found_by(served, where="true")  # builds the catalogue
    answer = served.get("api/page", **query)
    assert (answer.status_code, said in answer.json()["error"]) == (400, True), answer.text


def test_hostile_conditions_harm_nothing(served: Browsing, tmp_path: Path) -> None:
    """They are refused or ended soon, by every way that conditions come; the server goes on."""
    found_by(served, where="true")
    before = memory_of_children()
    for text in [*filter(None, HOSTILE_CONDITIONS), "true --"]:
        for query in ({"where": text}, {"sort": text}, {text: "3"}):
            start = time.process_time()
            answer = served.get("api/page", **query)
            harmless = text == "true --" and answer.status_code == 200
            assert answer.status_code == 400 or harmless, (query, answer.text)
            assert time.process_time() - start < 2, query
    assert memory_of_children() - before < 300 << 20
    assert found_by(served, where="cls = 1") == [n for n in range(COUNT) if CLASSES[n] == 1]


def memory_of_children() -> int:
    """Return the private memory of the processes that this one has started."""
    total = 0
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            lines = dict(line.split(":", 1) for line in status.read_text().splitlines())
        except OSError:
            continue
        if int(lines.get("PPid", "0")) == os.getpid():
            total += int(lines.get("RssAnon", "0 kB").split()[0]) * 1024
    return total


def test_what_takes_too_long_is_ended(tmp_path: Path) -> None:
    """A question beyond its processor time or memory ends its process; the next one is answered."""
    text = json.dumps({"list": list(range(3000))})
    shard = write_shard(tmp_path / "a.tar", [{"__key__": f"{n}", ".json": text} for n in range(50)])
    slow = (
        "len(list_transform(json.list, lambda x: "
        "list_sum(list_transform(json.list, lambda y: hash(x + y) % 7)))) > 0"
    )
    with browsing([(str(shard), 50)], ask_seconds=1.0) as server:
        assert found_by(server, where="len(json.list) = 3000") == list(range(50))
        answer = server.get("api/page", where=slow)
        assert answer.status_code == 400
        assert "ask for less" in answer.json()["error"]
        assert found_by(server, where="json.list[2] = 1", shard="0") == list(range(50))


def test_a_result_is_given_as_code(served: Browsing) -> None:
    """What a page shows is given for Python, as SQL and as a command."""

    def copies(**query: str) -> dict[str, str] | None:
        found = served.ask_until_finished("page", **query)["copies"]
        return None if found is None else dict(found)

    picked = copies(where="json.score > 1", cls="cat", shard="0-1", sort="key desc")
    condition = "(json.score > 1) AND cls_name IN ('cat') AND shard_index BETWEEN 0 AND 1"
    query = f"select * from samples where {condition} order by key desc"
    assert picked == {
        "Python": f"wids.open('photos.json').filter({condition!r}).order_by('key desc')",
        "SQL": query,
        "Command": f"wids sql photos.json {shlex.quote(query)}",
    }
    assert copies(where="cls = 1")["Command"] == (
        "wids select photos.json --where 'cls = 1' -o chosen.json"
    )
    assert copies(marks="1,2") is None
    dataset = served.handlers.reader.dataset
    opened = wids.open(list(dataset.shards.urls))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what is damaged, if nothing is built yet
        found = opened.sql("select index from samples where cls = 1 order by index")
    assert [index for (index,) in found] == found_by(served, where="cls = 1")


def test_words_of_sql_are_columns_in_quotes() -> None:
    """All words that DuckDB takes for its own are quoted, and names of other columns are plain."""
    import duckdb

    with duckdb.connect() as con:
        query = "SELECT keyword_name, keyword_category FROM duckdb_keywords()"
        words = con.execute(query).fetchall()
    own = {word for word, kind in words if kind in ("reserved", "type_function")}
    for word, _ in words:  # some are there twice
        assert column_name(word) == (f'"{word}"' if word in own else word)
        assert column_name("json", word) == f"json.{word}"


def test_completion_offers_columns_operators_and_values(served: Browsing) -> None:
    """What comes next is offered, as it is written in SQL."""

    def offered(before: str, kind: str = "condition") -> tuple[list[str], int]:
        found = served.ask_until_finished("words", before=before, kind=kind)
        return [entry["text"] for entry in found["entries"]], found["replaces"]

    columns, _ = offered("")
    assert {"key", "cls", "cls_name", "json.meta.ok", "png.width", "sizes.txt"} <= set(columns)
    assert offered("wid") == (["json.width", "png.width"], 3)
    assert offered('cls = 1 and json.meta."im') == (['json.meta."image size"'], 13)
    assert offered("json.meta.o") == (["json.meta.ok"], 11)
    assert offered("json.width ")[0][:2] == [">=", "<"]
    assert set(offered("json.lang = ")[0]) == {"'de'", "'en, gb'", "'null'", "''"}
    assert offered("json.lang in ('de', 'en") == (["'en, gb'"], 3)
    assert offered("cls_name = 'sea") == (["'sea lion, old'"], 4)
    assert offered("json.score d", "order")[0] == ["desc"]
    assert completions({"columns": [], "sizes": []}, "x" * 2000 + "'" * 999)["entries"] == []


def test_what_is_known_of_headers_is_told_at_once(tmp_path: Path) -> None:
    """A server offers the facts of headers and counts broken fields, where others read them."""
    samples = [{"__key__": "a", ".wav": tone()}, {"__key__": "b", ".wav": b"no sound"}]
    path = str(write_shard(tmp_path / "a.tar", samples))
    with browsing([path]) as server:
        facets_of(server)
    with browsing([path]) as server:
        words = server.ask_until_finished("words", before="")
        (field,) = server.ask_until_finished("overview")["fields"]
    assert {"wav.rate", "wav.channels"} <= {entry["text"] for entry in words["entries"]}
    assert (field["name"], field["broken"]) == ("wav", 1)


def test_without_duckdb_the_page_says_what_to_install(
    served: Browsing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Samples are shown, and what needs DuckDB names the extra."""
    find = importlib.util.find_spec
    monkeypatch.setattr(
        "wids.browse.catalogueclient.find_spec",
        lambda name: None if name == "duckdb" else find(name),
    )
    assert served.ask("dataset")["install"] == "pip install 'wids[sql]'"
    page = served.ask("page", look="table")
    assert (len(page["tiles"]), page["copies"]) == (60, page["copies"])
    assert "json.width" in page["columns"]
    for question in ("api/page?where=cls=1", "api/facets", "api/groups", "api/page?q=a"):
        answer = served.get(question)
        assert answer.status_code == 400
        assert "pip install 'wids[sql]'" in answer.json()["error"]


@pytest.mark.parametrize("digests", [False, True])
def test_shards_that_are_read_by_range_are_counted(
    tmp_path: Path, shard_server: ShardServer, digests: bool
) -> None:
    """The files of remote shards are found by what their server says of them, once they are built.

    Another server of the page finds them again, and those of a shard that was replaced are new.
    """
    rows = []
    for number in range(2):
        samples = [{"__key__": f"{number}{n}", ".cls": str(n)} for n in range(3)]
        path = write_shard(tmp_path / f"{number}.tar", samples)
        row = {"url": serve_shard(shard_server, path), "nsamples": 3}
        md5 = hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()
        rows.append(row | ({"md5sum": md5} if digests else {}))
    for _ in range(2):
        with browsing(rows) as server:
            assert server.ask_until_finished("page", where="cls > 0")["total"] == 4
    path = write_shard(tmp_path / "0.tar", [{"__key__": f"x{n}", ".cls": "0"} for n in range(3)])
    serve_shard(shard_server, path)
    with browsing(rows) as server:
        assert server.ask_until_finished("page", where="cls > 0")["total"] == 2


def test_the_page_is_usable_while_the_catalogue_is_built(tmp_path: Path) -> None:
    """A first question is answered with progress, and samples are shown meanwhile."""
    samples = [{"__key__": f"{n}", ".cls": str(n % 2)} for n in range(20)]
    paths = [(str(write_shard(tmp_path / f"{n}.tar", samples)), 20) for n in range(3)]
    with browsing(paths) as server:
        page = server.ask("page", where="cls = 1")
        assert page["filtering"]["num_shards"] == 3
        assert len(server.ask("page")["tiles"]) == 60
        assert len(found_by(server, where="cls = 1")) == 30
        done = server.ask("page", where="cls = 1")["filtering"]
        assert (done["finished"], done["shards_done"]) == (True, 3)


def test_a_server_that_ends_starts_no_process(tmp_path: Path) -> None:
    """A question that is under way then is told to ask again: nobody would end its process."""
    path = write_shard(tmp_path / "0.tar", [{"__key__": "a", ".cls": "1"}])
    dataset = wids.open([str(path)], transformations="memoryview", cache_dir=tmp_path / "cache")
    handlers = ApiHandlers(FieldReader(dataset), "test")
    handlers.close()
    assert handlers.page({"where": "cls = 1"})["filtering"]["shards_done"] == 0
    assert not list((tmp_path / "cache").glob("*.parquet"))


@pytest.mark.slow
def test_building_keeps_the_bound_of_the_cache(tmp_path: Path) -> None:
    """Building trims the cache folder, and what is gone from it is built again, if it fits."""
    cache = tmp_path / "cache"

    def opened(name: str, **options: Any) -> Any:
        rows = [{"__key__": f"{n}", ".cls": f"{n % 3}", ".txt": f"{name} {n}"} for n in range(4000)]
        path = write_shard(tmp_path / f"{name}.tar", rows)
        return wids.open([str(path)], transformations="memoryview", cache_dir=cache, **options)

    def files() -> list[Path]:
        return [each for each in cache.rglob("*") if each.is_file()]

    assert len(opened("old").filter("cls = 1")) == 1333
    bound = 3 * sum(each.stat().st_size for each in files()) // 2
    handlers = ApiHandlers(FieldReader(opened("new", cache_size=bound)), "test")
    with closing(handlers):
        for number, count in ((1, 1333), (0, 1334)):
            query = {"where": f"cls = {number}"}
            page = when_finished(lambda query=query: handlers.page(query))
            assert page["filtering"]["found"] == count
            assert sum(each.stat().st_size for each in files()) <= bound
            for each in files():  # as another process may evict it
                each.unlink()
            handlers.catalogue._asker.end()
    handlers = ApiHandlers(FieldReader(opened("tiny", cache_size=1000)), "test")
    with closing(handlers), pytest.raises(CatalogueError, match="more than the 1,000 bytes"):
        when_finished(lambda: handlers.page({"where": "cls = 1"}))
