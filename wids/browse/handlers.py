"""API handlers of the page, each a function from the parameters of a request to JSON."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice, zip_longest
from typing import TYPE_CHECKING, Any

import numpy as np

from wids.base.urls import hide_credentials
from wids.browse.decoders import DecoderLimits, Decoders
from wids.browse.facets import (
    ChosenMasks,
    ColumnValues,
    FacetVisitor,
    classes_by_number,
    field_names,
    find_columns,
)
from wids.browse.failures import message_of
from wids.browse.looks import Looks, add_contents, find_looks, look_named
from wids.browse.maps import Maps, VectorVisitor
from wids.browse.neighbours import Neighbours
from wids.browse.orders import Grid, Order, parse_indexes
from wids.browse.overview import (
    CheckReport,
    FigureVisitor,
    StatisticsVisitor,
    dataset_facts,
    shard_rows,
    spread,
)
from wids.browse.samplepages import FieldViews, sample_page, tiles
from wids.browse.scans import Scans
from wids.browse.thumbnailpool import LARGE, Thumbnails
from wids.codecs.formats import is_class
from wids.display.conversation import read_turns
from wids.display.fieldview import class_name, is_packed, label_names
from wids.display.safejson import safe_text
from wids.errors import WidsError
from wids.views.filtering import plain_value
from wids.views.plan import slots_of
from wids.views.saved import VERSION, view_document
from wids.views.viewable import View

if TYPE_CHECKING:
    from collections.abc import Sequence
    from concurrent.futures import Future

    from wids.browse.fieldreader import FieldReader, LocatedSample
    from wids.browse.scans import Scan
    from wids.display.thumbnails import Thumbnail
    from wids.ordering.permute import Integers

__all__ = ["ApiHandlers", "UnreadableSampleError", "check_parameters"]

Query = Mapping[str, str]

# Bounds of one response, whatever the request asks for.
_MOST_TILES = 240
_MOST_ROWS = 500
_MOST_MESSAGE = 1000
_MOST_WAITS = 3
_MOST_TRIES = 3  # if shards are replaced while a page is made
_MOST_TURNS_NBYTES = 8 << 20  # part of a document whose turns can be paged through
_MOST_COPIES = 2000  # that are marked at once; more do not fit a link
_MOST_SAVED = 1_000_000  # indexes that are saved as JSON
_PICTURE_SECONDS = 0.5  # wait for the pictures of a sample; the page requests later ones by itself
# Number of shards for statistics: enough for an estimate, few enough to be read while the user
# waits.
_FIRST_LOOK_SHARDS = 32
# For the values that complete a filter while it is typed.
_WORD_SHARDS = 3
_MOST_WORDS = 5000  # names of classes


class UnreadableSampleError(Exception):
    """The shard of a sample cannot be read.

    Args:
        message: Message of the error.
        where: `index`, `position` and `total`, as in the response for a readable sample.
    """

    def __init__(self, message: str, where: Mapping[str, Any]) -> None:
        super().__init__(message)
        self.where = where


# Parameters of each endpoint. Others are an error, because they would silently have no effect.
_CHOSEN = ("where", "q", "whole", "marks", "inside", "near", "far")
_CHOICE = f"{' '.join(_CHOSEN)} shard"
_ORDER = f"order seed epoch rank replicas interleave lanes chunksize {_CHOICE} sort"
PARAMETERS = {
    "dataset": "",
    "facets": _CHOICE,
    "faults": "from",
    "map": f"field colour {_ORDER}",
    "page": f"at count look {_ORDER}",
    "picture": "i f",
    "raw": "i f save v",
    "sample": f"i p from {_ORDER}",
    "selection": f"without {_ORDER}",
    "shards": "from count",
    "statistics": "all",
    "thumb": "i f s v strip soon",
    "turns": "i f from",
    "waiting": "",
    "words": "",
}


def check_parameters(question: str, query: Query) -> None:
    """Raise ValueError for a parameter that an endpoint does not know.

    Raises:
        ValueError: There is one; the message lists the known ones.

    >>> check_parameters("picture", {"i": "3", "field": "0"})
    Traceback (most recent call last):
    ...
    ValueError: unknown parameter 'field'; 'picture' takes f, i
    """
    known = {*PARAMETERS[question].split(), "token"}
    for name in query:
        if name not in known:
            takes = ", ".join(sorted(known - {"token"})) or "none"
            raise ValueError(f"unknown parameter {name[:40]!r}; {question!r} takes {takes}")


@dataclass
class ApiHandlers:
    """JSON API over one dataset; each public method is one endpoint.

    Attributes:
        reader: The dataset.
        title: Title of the page.
        class_names: Names of classes, by number.
        report: Report of `wids check`, if there is one.
        chosen: Indexes of the samples to show, of a saved view; None for all.
        limits: Limits of the processes that decode fields.
        view_seconds: Longest wait of the page of a sample for descriptions of its fields; the page
            requests later ones by itself.
    """

    reader: FieldReader
    title: str
    class_names: Mapping[int, str] = field(default_factory=dict)
    report: CheckReport | None = None
    chosen: Integers | None = None
    limits: DecoderLimits = field(default_factory=DecoderLimits)
    view_seconds: float = 1.0

    def __post_init__(self) -> None:
        self.scans = Scans()
        self.decoders = Decoders(self.limits)
        self.thumbnails = Thumbnails(self.reader, self.decoders)
        self._views = FieldViews(self.reader, self.decoders, self.class_names, self.view_seconds)
        self._maps = Maps(self.reader, self.scans, self._columns, self.class_names)
        self._neighbours = Neighbours(
            self.scans, functools.partial(VectorVisitor, self.reader), self.reader.num_shards
        )
        self._grid = Grid(
            self.reader,
            self.scans,
            self.class_names,
            self._columns,
            inside=self._maps.inside,
            neighbours=self._neighbours,
            chosen=self.chosen,
        )
        self._facet_values: ColumnValues | None = None
        self._facet_lock = threading.Lock()
        self._found_looks: Looks | None = None
        self._generation = self.reader.generation
        self._faults: dict[str, list[dict[str, str]]] = {}
        for fault in (self.report or {}).get("faults", []):
            self._faults.setdefault(fault["shard"], []).append(fault)

    def _refresh(self, *, at_all: bool = False) -> None:
        """Forget what was found in shards that were replaced meanwhile; look at some or all."""
        self.reader.look_for_changes(at_all=at_all)
        with self._facet_lock:
            if self._generation != self.reader.generation:
                self._generation = self.reader.generation
                self._facet_values = self._found_looks = None
                self.scans.clear()

    def close(self) -> None:
        """Stop all background work."""
        self.scans.close()
        self.decoders.close()

    def dataset(self, _query: Query) -> dict[str, Any]:
        """Return the facts of the dataset."""
        checked = None
        if self.report is not None:
            checked = {name: self.report[name] for name in ("num_shards", "num_errors")}
        return {
            **dataset_facts(self.reader),
            "num_chosen": None if self.chosen is None else len(self.chosen),
            "title": hide_credentials(self.title),
            "checked": checked,
        }

    def waiting(self, _query: Query) -> dict[str, Any]:
        """List the shards that requests wait for, the longest wait first."""
        waits = sorted(self.reader.waits().items(), key=lambda wait: -wait[1])
        shards = [
            {
                **shard_rows(self.reader, number, 1, {})[0],
                "seconds": round(seconds, 1),
                "arrived": self.reader.arrived_nbytes(number),
            }
            for number, seconds in waits[:_MOST_WAITS]
        ]
        return {"shards": shards}

    def page(self, query: Query) -> dict[str, Any]:
        """Describe `count` samples from position `at` on, in an order, perhaps with a filter."""
        for _ in range(_MOST_TRIES):
            self._refresh()
            start = max(0, _number(query, "at", 0))
            count = min(_number(query, "count", 60), _MOST_TILES)
            order, filtering, sorting, comparing = self._grid.shown(query)
            indexes = order.slice(start, count)
            shown = tiles(self.reader, enumerate(indexes, start), self.class_names)
            # After the tiles, whose small fields are at hand now.
            looks = self._looks(any(tile["key"] is not None for tile in shown))
            look = look_named(query.get("look", ""), looks)
            columns = self._columns().columns if look in ("list", "table") else ()
            add_contents(self.reader, shown, look, columns)
            described = {
                "total": order.size,
                "look": look,
                "looks": looks._asdict(),
                "filtering": filtering,
                "sorting": sorting,
                "comparing": comparing or self._compared(query, order, shown),
                "columns": [safe_text(column.name, 200) for column in columns],
                "tiles": shown,
                "fetched_whole": len(self.reader.fetched_whole),
            }
            # Reading a tile may have shown that its shard was replaced after the filter had run.
            if self._generation == self.reader.generation:
                break
        return described

    def _compared(
        self, query: Query, order: Order, shown: list[dict[str, Any]]
    ) -> dict[str, Any] | None:
        """Return what was compared for a page, and add to its tiles why they were singled out.

        `copies` are the samples of the order that have another one of their group before them; None
        if there are too many to be marked.
        """
        singled, progress = self._neighbours.asked(query) or (None, {})
        if singled is None:
            return None
        for tile in shown:
            tile["singled"] = singled.notes.get(tile["index"])
        seen: set[int] = set()
        copies = []
        indexes = order.slice(0, order.size)
        for index in indexes:
            group = singled.notes[index][0]
            copies += [index] if group in seen else []
            seen |= {group} - {-1}
        few = copies if len(copies) <= _MOST_COPIES else None
        about = {**singled.about, "num_shown": len(indexes), "groups_shown": len(seen)}
        return {**progress, "about": about, "copies": few}

    def map(self, query: Query) -> dict[str, Any]:
        """Return the map of field `field`, coloured by column `colour`, or the progress of it.

        `chosen` says which of the points a filter, marks, or shards leave; None where all are.
        """
        self._refresh()
        looks = self._looks(True)
        field = query.get("field") or next(iter(looks.vectors), "")
        if not field:
            raise LookupError("map: the first samples have no field that is a vector, such as .npy")
        found: dict[str, Any] = {"looks": looks._asdict(), "field": field, "chosen": None}
        found |= self._maps.as_dict(field, query.get("colour", ""))
        shown = self._grid.shown({name: query[name] for name in query if name != "sort"})
        waits = shown.comparing or shown.filtering
        if found["finished"] and waits is not None and not waits["finished"]:
            return {**found, **waits}
        if found["finished"] and (shown.order.size < len(self.reader)):
            chosen = np.array(shown.order.slice(0, shown.order.size), np.int64)
            found["chosen"] = np.isin(found["indexes"], chosen).astype(int).tolist()
        return found

    def turns(self, query: Query) -> dict[str, Any]:
        """Return turns of the conversation in field `f` of sample `i`, from turn `from` on.

        Raises:
            LookupError: The field is no conversation, or is compressed.
        """
        located = self.reader.locate(_number(query, "i", 0))
        number = _number(query, "f", 0)
        field = located.field(number)
        start = max(0, _number(query, "from", 0))
        found = None
        if not is_packed(field.extension):
            data = self.reader.read(located, number, 0, _MOST_TURNS_NBYTES)
            found = read_turns(data, start=start, whole=len(data) == field.nbytes)
        if found is None:
            raise LookupError(f"field {number} of sample {located.index} is no conversation")
        return found.as_dict()

    def selection(self, query: Query) -> dict[str, Any]:
        """Return what a filter found or marks name as the document of a saved view, as shown.

        With `without`, the samples that it names are left out.

        Raises:
            ValueError: Nothing is chosen, a filter still runs, or found more than a document holds.
        """
        self._refresh(at_all=True)
        order, filtering, sorting, _ = self._grid.shown(query, patient=True)
        if sorting is not None and not sorting["finished"]:
            raise ValueError("sort: not all values are read yet; ask again")
        if filtering is None and not any(
            query.get(name) for name in ("marks", "inside", "near", "far", "without", "shard")
        ):
            raise ValueError(
                "where: expected a filter, q=, marks=, inside=, near=, far= or without=, to save "
                "samples by"
            )
        if filtering is not None and (not filtering["finished"] or filtering["full"]):
            raise ValueError("where: the filter is not finished yet, or found too many samples")
        unwanted = np.empty(0, np.int64)
        if query.get("without"):
            unwanted = parse_indexes("without", query["without"], len(self.reader))
        samples: Any = self.reader.dataset
        has_order = any(query.get(name) for name in ("sort", "near", "far"))
        as_stored = not has_order and query.get("order", "stored") == "stored"
        is_whole = order.size == len(self.reader) and filtering is None and self.chosen is None
        if is_whole and as_stored and self.reader.joined is None and query.get("without"):
            keys = self._keys_left_out(unwanted)
            if keys is not None:
                # What is left out is a short list, what is left is not.
                base = view_document(samples, self.title)
                count = len(self.reader) - len(unwanted)
                named = {"wids_version": VERSION, "name": self.title, "nsamples": count}
                return {**named, "made": _steps_of(query), "base": base, "exclude": keys}
        if order.size > _MOST_SAVED:
            raise ValueError(
                f"where: found {order.size} samples, and a document of the page holds "
                f"{_MOST_SAVED}; wids select --where saves more"
            )
        rows = np.array(order.slice(0, order.size), np.int64)
        rows = rows[~np.isin(rows, unwanted)]
        if self.reader.joined is not None:
            samples, rows = self.reader.joined.samples, self.reader.joined.at(rows)
        chosen = View(slots_of(samples)).select(rows)
        return view_document(chosen, self.title, _steps_of(query))

    def _keys_left_out(self, unwanted: Integers) -> list[str] | None:
        """Return the keys of unwanted samples; None if the document should list the wanted ones.

        It should if many samples are left out, or if other samples have the same keys. If the
        dataset has more samples than a document lists, the keys are returned in any case: when the
        document is opened, their number shows whether other samples have them, too.
        """
        total = len(self.reader)
        if total <= _MOST_SAVED and 2 * len(unwanted) > total:
            return None
        keys = [self.reader.locate(index).key for index in unwanted.tolist()]
        if total > _MOST_SAVED:
            return keys
        wanted, found = set(keys), 0
        for shard_index in range(self.reader.num_shards):
            try:
                index = self.reader.tar_index(shard_index)
            except (WidsError, OSError):
                return None
            if index is None and self.reader.num_samples(shard_index):
                return None
            found += 0 if index is None else sum(key in wanted for key in index.keys)
        return keys if found == len(keys) else None

    def sample(self, query: Query) -> dict[str, Any]:
        """Describe one sample: number `i` of the dataset, or the one at position `p` of an order.

        For a sample with very many fields, describe those from field `from` on.

        Raises:
            LookupError: There is no such sample.
        """
        self._refresh()
        position, total = None, len(self.reader)
        if query.get("p"):
            position = _number(query, "p", 0)
            order, filtering, *_ = self._grid.shown(query, patient=True)
            total = order.size
            if not 0 <= position < total:
                more = "" if filtering is None or filtering["finished"] else " found so far"
                raise LookupError(f"position {position} lies outside the {total} samples{more}")
            index = order.slice(position, 1)[0]
        else:
            index = _number(query, "i", 0)
        from_front = index % max(total, 1) if position is None else index
        where = {"index": from_front, "position": position, "total": total}
        try:
            located = self.reader.locate(index)
            page = sample_page(self.reader, located, self._views, _number(query, "from", 0))
        except (WidsError, OSError) as error:
            # The position of an unreadable sample is known, so the page can link its neighbours.
            raise UnreadableSampleError(message_of(error), where) from error
        self._try_pictures(located, page["fields"])
        whole = located.shard_index in self.reader.fetched_whole
        return {**page, **where, "fetched_whole": int(whole)}

    def picture(self, query: Query) -> dict[str, Any]:
        """Wait for the picture of field `f` of sample `i`, and describe it.

        Returns:
            `error`, None if the field could be drawn; `labels` and `value_range`, as
            `wids.display.pixels.ArrayDrawing` has them, with the names of classes.
        """
        located = self.reader.locate(_number(query, "i", 0))
        number = _number(query, "f", 0)
        located.field(number)
        return self._picture_facts(located, self.thumbnails.get(located, number, LARGE).result)

    def _try_pictures(self, located: LocatedSample, fields: list[dict[str, Any]]) -> None:
        """Start drawing the pictures of a sample, and add the facts of those that are ready soon.

        Views read headers only. Whether the pixels are complete is known once they are drawn.
        """
        drawn = [
            (row, self.thumbnails.get(located, row["number"], LARGE).result)
            for row in fields
            if row["error"] is None
            and not row["late"]
            and (row["kind"] == "image" or row["summary"].get("picture"))
        ]
        end = time.monotonic() + _PICTURE_SECONDS
        for row, picture in drawn:
            row["picture"] = None
            with suppress(TimeoutError):
                left = max(end - time.monotonic(), 0)
                row["picture"] = self._picture_facts(located, picture, left)
                row["error"] = row["picture"]["error"]

    def _picture_facts(
        self,
        located: LocatedSample,
        picture: Future[Thumbnail],
        timeout: float | None = None,
    ) -> dict[str, Any]:
        try:
            drawn = picture.result(timeout)
        except TimeoutError:
            raise
        except (WidsError, OSError, ImportError) as error:
            return {"error": message_of(error, _MOST_MESSAGE)}
        names = label_names(self.class_names, (each.extension for each in located.fields))
        labels = [[*label, class_name(names, label.value)] for label in drawn.labels]
        return {"error": None, "labels": labels, "value_range": drawn.value_range}

    def shards(self, query: Query) -> dict[str, Any]:
        """List some shards."""
        count = min(_number(query, "count", 100), _MOST_ROWS)
        rows = shard_rows(self.reader, _number(query, "from", 0), count, self._faults)
        return {"num_shards": self.reader.num_shards, "shards": rows}

    def statistics(self, query: Query) -> dict[str, Any]:
        """Return statistics of fields and classes over some shards, or with `all=1` over all."""
        self._refresh()
        every = query.get("all") == "1"
        count = self.reader.num_shards
        shards = list(range(count)) if every else spread(count, _FIRST_LOOK_SHARDS)
        scan = self.scans.get(
            ("statistics", len(shards)),
            lambda: StatisticsVisitor(self.reader, self.class_names),
            shards,
        )
        values = self._columns()
        # A pass of its own, so that the counts do not wait for the headers of all images.
        figures = self.scans.get(
            ("figures", len(shards)), lambda: FigureVisitor(self.reader, values), shards
        )
        # Progress is read before the results, so that those of a finished scan are complete.
        progress, drawing = scan.progress(), figures.progress()
        found = {**scan.visitor.as_dict(), **progress, "all_shards": count}
        found["finished"] = progress["finished"] and drawing["finished"]
        found["figures"] = figures.visitor.as_list()
        # Sizes and classes are counted shard by shard, with samples that the view leaves out.
        return found | {"beyond_view": self.chosen is not None}

    def facets(self, query: Query) -> dict[str, Any]:
        """Count the values of columns among the samples that a filter leaves, shard by shard.

        Numbers are counted in the bins of all samples, so that the two can be shown together.
        """
        self._refresh()
        chosen = tuple(query.get(name, "") for name in _CHOSEN)
        # Before the scan is asked for, since an outline of a map has a scan of its own.
        selectors = self._grid.selectors(query)
        shards, every = self._grid.shards_of(query), range(self.reader.num_shards)
        scans = self._facet_scans(chosen, shards, selectors)
        if not any(chosen) and shards == every:
            return self._counted(scans)
        nothing = ("",) * len(chosen)
        return self._counted(scans, self._facet_scans(nothing, every, self._grid.selectors({})))

    def words(self, _query: Query) -> dict[str, Any]:
        """Return what filters are written with: fields, columns, and values of these.

        Values are those of a few shards; of classes, all that have a name.
        """
        self._refresh()
        shards = spread(self.reader.num_shards, _WORD_SHARDS)
        scans = self._facet_scans(("words",), tuple(shards), self._grid.selectors({}))
        counted = self._counted(scans)
        columns = []
        for facet in counted["facets"]:
            values = facet.get("values", [])
            if is_class(facet["name"]):
                seen = {value for value, *_ in values}
                others = [number for number in self.class_names if number not in seen]
                names = ((each, class_name(self.class_names, each)) for each in others)
                values += [[number, 0, name] for number, name in islice(names, _MOST_WORDS)]
            column = {"name": facet["name"], "kind": facet["kind"], "values": values}
            if is_class(facet["name"]):
                unclear = classes_by_number(self.class_names)
                column["by_number"] = [value for value, *_ in values if value in unclear]
            columns.append(column)
        fields = [safe_text(name, 200) for name in field_names(self.reader)]
        return {"fields": fields, "columns": columns, "finished": counted["finished"]}

    def _facet_scans(
        self, chosen: tuple[str, ...], shards: Sequence[int], selectors: list[Any]
    ) -> list[Scan[FacetVisitor]]:
        """Return the scans that count columns: those that are quick to read, and then JSON.

        Args:
            chosen: What identifies the selectors.
            shards: The shards.
            selectors: What chooses the samples that are counted.
        """
        values = self._columns()

        def scan_of(masks: ChosenMasks, *, in_json: bool) -> Scan[FacetVisitor]:
            make = functools.partial(
                FacetVisitor, values, masks, self.class_names, shards, in_json=in_json
            )
            scan = self.scans.get(("facets", in_json, chosen, shards), make, shards)
            scan.join()
            return scan

        first = scan_of(ChosenMasks(self.reader, selectors), in_json=False)
        # Documents take long to parse, so that they are counted after all else.
        if not values.group(in_json=True) or not first.progress()["finished"]:
            return [first]
        return [first, scan_of(first.visitor.masks, in_json=True)]

    def _counted(
        self, scans: Sequence[Scan[FacetVisitor]], whole: Sequence[Scan[FacetVisitor]] = ()
    ) -> dict[str, Any]:
        """Return what scans have counted, as JSON.

        Args:
            scans: As `_facet_scans` returns them.
            whole: Those of all samples, in whose bins numbers are counted.
        """
        count = 1 + bool(self._columns().group(in_json=True))
        # Progress is read before the counts, so that those of finished scans are complete.
        progress = [scan.progress() for scan in scans]
        is_complete = all(
            len(some) == count and all(scan.progress()["finished"] for scan in some)
            for some in (scans, whole or scans)
        )
        every = [scan.visitor for scan in whole[: len(scans)]]
        told = [scan.visitor.as_dict(everything) for scan, everything in zip_longest(scans, every)]
        facets = [facet for each in told for facet in each["facets"]]
        found = {**told[0], "facets": facets, **progress[-1], "finished": is_complete}
        return found | {"generation": self._generation}

    def _columns(self) -> ColumnValues:
        """Return the columns of the dataset, which are found when they are first asked for."""
        with self._facet_lock:
            if self._facet_values is None:
                columns = find_columns(self.reader)
                self._facet_values = ColumnValues(self.reader, columns, plain_value)
            return self._facet_values

    def _looks(self, is_readable: bool) -> Looks:
        """Return the ways to look at the dataset, once a sample of it can be read."""
        if self._found_looks is None and is_readable:
            self._found_looks = find_looks(self.reader)
        return self._found_looks or Looks()

    def faults(self, query: Query) -> dict[str, Any]:
        """List the faults that `wids check` found."""
        start = max(0, _number(query, "from", 0))
        faults = [] if self.report is None else self.report["faults"]
        shown = [
            {name: hide_credentials(text) for name, text in fault.items()}
            for fault in faults[start : start + _MOST_ROWS]
        ]
        return {"num_faults": len(faults), "faults": shown}


def _steps_of(query: Query) -> list[str]:
    """Return the steps by which samples were chosen, for the document of a view."""
    names = {"filter": "where", "search": "q", "shards": "shard"}
    steps = [(step, query.get(name, "").strip()) for step, name in names.items()]
    made = [f"{step}({text!r})" for step, text in steps if text]
    marked = [
        f"{name}({query[name][:200]})"
        for name in ("marks", "inside", "near", "far", "without")
        if query.get(name)
    ]
    return made + marked


def _number(query: Query, name: str, default: int) -> int:
    text = query.get(name, "")
    # Long texts are refused first, since int() takes seconds for millions of digits.
    if not text:
        return default
    # 64 bits have 20 digits.
    if len(text) > 20 or not text.removeprefix("-").isdecimal():
        raise ValueError(f"{name}: expected a whole number, got {text[:40]!r}")
    return int(text)
