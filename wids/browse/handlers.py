"""API handlers of the page, each a function from the parameters of a request to JSON."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from wids.base.urls import hide_credentials
from wids.browse.catalogueclient import INSTALL, CatalogueClient
from wids.browse.columns import PARAMETERS, has_classes, number_of
from wids.browse.completion import completions, copies
from wids.browse.decoders import LARGE, DecoderLimits, Decoders
from wids.browse.failures import message_of
from wids.browse.looks import Looks, add_contents, find_looks, look_named
from wids.browse.maps import map_of
from wids.browse.orders import Grid, OrderQuery, Shown, parse_indexes
from wids.browse.overview import dataset_facts, shard_row
from wids.browse.samplepages import Describer, tiles
from wids.browse.scans import NotReadyError, Scans
from wids.display.conversation import read_turns
from wids.display.fieldview import class_name, is_packed, label_names
from wids.errors import WidsError
from wids.views.plan import slots_of
from wids.views.saved import view_document
from wids.views.viewable import View

if TYPE_CHECKING:
    from wids.browse.fieldreader import FieldReader, LocatedSample
    from wids.ordering.permute import Integers

__all__ = ["ApiHandlers"]

Query = Mapping[str, str]

# Bounds of one response, whatever the request asks for.
_MOST_TILES = 240
_MOST_ROWS = 500
_MOST_MESSAGE = 1000
_MOST_TURNS_NBYTES = 8 << 20  # part of a document whose turns can be paged through
_MOST_COPIES = 2000  # that are marked at once; more do not fit a link
_MOST_SAVED = 1_000_000  # indexes that are saved as JSON
_PICTURE_SECONDS = 0.5  # wait for the pictures of a sample


@dataclass
class ApiHandlers:
    """JSON API over one dataset; each public method is one endpoint.

    Attributes:
        reader: The dataset.
        title: Title of the page.
        chosen: Indexes of the samples to show, of a saved view; None for all.
        limits: Limits of the processes that decode fields.
        ask_seconds: Processor time of a question to the catalogue; more of a large dataset.
        source: What was opened, for code that opens it again; the title by default.
        view_seconds: Longest wait of the page of a sample for descriptions of its fields; the page
            requests later ones by itself.
    """

    reader: FieldReader
    title: str
    chosen: Integers | None = None
    limits: DecoderLimits = field(default_factory=DecoderLimits)
    ask_seconds: float = 2.0
    source: str = ""
    view_seconds: float = 1.0

    def __post_init__(self) -> None:
        self.class_names = self.reader.samples.class_names
        self.scans = Scans(self.reader)
        self.decoders = Decoders(self.limits)
        self.catalogue = CatalogueClient(self.reader, self.ask_seconds)
        self.describer = Describer(self.reader, self.decoders, self.class_names, self.view_seconds)
        self._grid = Grid(self.reader, self.catalogue, self.scans, self.chosen)
        self._found_looks: Looks | None = None

    def close(self) -> None:
        """Stop all background work."""
        self.scans.clear()
        self.decoders.close()
        self.catalogue.close()

    def dataset(self, _query: Query) -> dict[str, Any]:
        """Return the facts of the dataset."""
        return {
            **dataset_facts(self.reader),
            "num_chosen": None if self.chosen is None else len(self.chosen),
            "title": hide_credentials(self.title),
            "install": "" if self.catalogue.is_installed else INSTALL,
        }

    def page(self, query: Query) -> dict[str, Any]:
        """Describe `count` samples from position `at` on, in an order, perhaps with a filter."""
        start = max(0, number_of(query, "at"))
        count = min(number_of(query, "count", 60), _MOST_TILES)
        try:
            shown = self._grid.shown(query)
        except NotReadyError as error:
            shown = Shown(OrderQuery().between(0, 0), error.progress)
        indexes = shown.order.slice(start, count)
        located = tiles(self.reader, enumerate(indexes, start), self.class_names)
        page = [tile for tile, _ in located]
        # After the tiles, whose small fields are at hand now.
        looks = self._looks(any(tile["key"] is not None for tile in page))
        look = look_named(query.get("look", ""), looks)
        columns = add_contents(self.reader, located, look)
        return {
            "total": shown.order.size,
            "look": look,
            "looks": looks._asdict(),
            "filtering": shown.filtering,
            "comparing": _compared(shown, page),
            "columns": columns,
            "copies": self._copies(query, shown),
            "tiles": page,
            "fetched_whole": len(self.reader.fetched_whole),
            "finished": shown.filtering is None or shown.filtering["finished"],
        }

    def _copies(self, query: Query, shown: Shown) -> list[list[str]] | None:
        """Return the code that gives what is shown; None if none does."""
        filtering = shown.filtering or {"finished": True, "condition": ""}
        by_hand = any(query.get(name) for name in ("marks", "inside", "near", "far", "order"))
        if by_hand or not filtering["finished"]:
            return None
        condition = filtering["condition"]
        shards = self._grid.shards_of(query)
        if len(shards) < self.reader.num_shards:
            within = f"shard_index BETWEEN {shards[0]} AND {shards[-1]}"
            condition = f"{condition} AND {within}" if condition else within
        return copies(hide_credentials(self.source or self.title), condition, query.get("sort", ""))

    def map(self, query: Query) -> dict[str, Any]:
        """Return the map of field `field`, coloured by column `colour`.

        `chosen` says which of the points a filter, marks, or shards leave; None where all are.
        """
        looks = self._looks(True)
        field = query.get("field") or next(iter(looks.vectors), "")
        if not field:
            raise LookupError("map: the first samples have no field that is a vector, such as .npy")
        found = map_of(self.scans, self.catalogue, field, query.get("colour", ""))
        shown = self._grid.shown({**query, "sort": ""})
        chosen = None
        if shown.order.size < len(self.reader):
            chosen = np.isin(found["indexes"], self._grid.rows(shown.order)).astype(int).tolist()
        told = {"looks": looks._asdict(), "field": field, "chosen": chosen, "finished": True}
        return {**found, **told}

    def field_of(self, query: Query) -> tuple[LocatedSample, int]:
        """Return the located sample `i` and the number `f` of its field that a request names.

        Raises:
            LookupError: There is no such sample or field.
        """
        located = self.reader.locate(number_of(query, "i"))
        number = number_of(query, "f")
        located.field(number)
        return located, number

    def turns(self, query: Query) -> dict[str, Any]:
        """Return turns of the conversation in field `f` of sample `i`, from turn `from` on.

        Raises:
            LookupError: The field is no conversation, or is compressed.
        """
        located, number = self.field_of(query)
        field, found = located.fields[number], None
        start = max(0, number_of(query, "from"))
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
        order, filtering, _ = self._grid.shown(query, patient=True)
        if filtering is None and not any(
            query.get(name) for name in ("marks", "inside", "near", "far", "without", "shard")
        ):
            raise ValueError(
                "where: expected a condition, q=, marks=, inside=, near=, far= or without=, to "
                "save samples by"
            )
        if filtering is not None and filtering["full"]:
            raise ValueError("where: found too many samples; narrow the condition")
        unwanted = np.empty(0, np.int64)
        if query.get("without"):
            unwanted = parse_indexes("without", query["without"], len(self.reader))
        joined = self.reader.joined
        chosen = View(slots_of(self.reader.dataset if joined is None else joined.samples))
        if order.is_whole and joined is None and query.get("order", "stored") == "stored":
            # However many: the rest are few runs of adjacent samples.
            chosen = chosen.exclude(unwanted)
        elif order.size > _MOST_SAVED:
            raise ValueError(
                f"where: found {order.size} samples, and a document of the page holds "
                f"{_MOST_SAVED}; wids select --where saves more"
            )
        else:
            rows = self._grid.rows(order)
            rows = rows[~np.isin(rows, unwanted)]
            chosen = chosen.select(rows if joined is None else joined.at(rows))
        return view_document(chosen, self.title, _steps_of(query))

    def sample(self, query: Query) -> dict[str, Any]:
        """Describe one sample: number `i` of the dataset, or the one at position `p` of an order.

        For a sample with very many fields, describe those from field `from` on. One that cannot be
        read has an `error`, and no fields.

        Raises:
            LookupError: There is no such sample.
        """
        position, total = None, len(self.reader)
        if query.get("p"):
            position = number_of(query, "p")
            order = self._grid.shown(query, patient=True).order
            total = order.size
            if not 0 <= position < total:
                raise LookupError(f"position {position} lies outside the {total} samples")
            index = order.slice(position, 1)[0]
        else:
            index = number_of(query, "i")
        from_front = index % max(total, 1) if position is None else index
        where = {"index": from_front, "position": position, "total": total}
        try:
            located = self.reader.locate(index)
            page = self.describer.page(located, number_of(query, "from"))
        except (WidsError, OSError) as error:
            # The position of an unreadable sample is known, so the page can link its neighbours.
            return {**where, "key": None, "error": message_of(error), "fields": []}
        self._try_pictures(located, page["fields"])
        whole = located.shard_index in self.reader.fetched_whole
        return {**page, **where, "fetched_whole": int(whole)}

    def _try_pictures(self, located: LocatedSample, fields: list[dict[str, Any]]) -> None:
        """Start drawing the pictures of a sample, and add the facts of those that are ready soon.

        Views read headers only. Whether the pixels are complete is known once they are drawn. What
        is drawn later has None for its facts, and the page asks again.
        """
        drawn = [
            (row, self.describer.drawn(located, row["number"], LARGE).result)
            for row in fields
            if row["error"] is None
            and not row["late"]
            and (row["kind"] == "image" or row["summary"].get("picture"))
        ]
        end = time.monotonic() + _PICTURE_SECONDS
        names = label_names(self.class_names, (each.extension for each in located.fields))
        for row, waiting in drawn:
            try:
                found = waiting.result(max(end - time.monotonic(), 0))
            except TimeoutError:
                row["picture"] = None
            except (WidsError, OSError, ImportError) as error:
                row["error"] = message_of(error, _MOST_MESSAGE)
            else:
                labels = [[*label, class_name(names, label.value)] for label in found.labels]
                told = {"value_range": found.value_range, "is_cut": found.is_cut}
                row["picture"] = {"labels": labels, **told}

    def shards(self, query: Query) -> dict[str, Any]:
        """List some shards."""
        start = max(0, number_of(query, "from"))
        stop = start + min(number_of(query, "count", 100), _MOST_ROWS)
        shown = range(start, min(stop, self.reader.num_shards))
        rows = [shard_row(self.reader, number) for number in shown]
        return {"num_shards": self.reader.num_shards, "shards": rows}

    def facets(self, query: Query) -> dict[str, Any]:
        """Count the values of columns, of all samples and of those that a request shows."""
        shown = self._grid.shown({**query, "sort": ""})
        answer, _ = self.catalogue.ask("facets", self._grid.asked_of(shown.order))
        told = {"shown": shown.order.size, "finished": not answer["needs"]}
        return {**answer, **self.catalogue.progress(), **told}

    def groups(self, query: Query) -> dict[str, Any]:
        """Count the samples that a request shows by a column `by`, and by another one `across`."""
        texts = {name: query[name] for name in ("by", "across") if query.get(name)}
        shown = self._grid.shown({**query, "sort": ""})
        rows = self._grid.asked_of(shown.order, *texts.values())
        answer, _ = self.catalogue.ask("groups", rows, **texts)
        return {**answer, **self.catalogue.progress(), "total": shown.order.size}

    def overview(self, _query: Query) -> dict[str, Any]:
        """Return what is missing, how large fields are, and how many samples the classes have."""
        answer, _ = self.catalogue.ask("facets", headers=False)
        *facets, shards = answer["facets"]
        found = {
            "fields": answer["fields"],
            "num_fields": answer["num_fields"],
            "total": sum(shards["all"]["counts"]),
            "classes": next((each for each in facets if has_classes(each["name"])), None),
            # All samples are counted, also those that a view leaves out.
            "beyond_view": self.chosen is not None and self.reader.joined is None,
        }
        return {**self.catalogue.progress(), **found}

    def words(self, query: Query) -> dict[str, Any]:
        """Return what may come behind the text `before` of a condition, or of an order."""
        answer, _ = self.catalogue.ask("words")
        found = completions(answer, query.get("before", ""), query.get("kind", "condition"))
        return {**found, "finished": True}

    def _looks(self, is_readable: bool) -> Looks:
        """Return the ways to look at the dataset, once a sample of it can be read."""
        if self._found_looks is None and is_readable:
            self._found_looks = find_looks(self.reader)
        return self._found_looks or Looks()


def _compared(shown: Shown, page: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Return what was compared for a page, and add to its tiles why they were singled out.

    `copies` are the samples of the order that have another one of their group before them; None
    if there are too many to be marked.
    """
    singled = shown.singled
    if singled is None:
        return None
    for tile in page:
        tile["singled"] = singled.notes.get(tile["index"])
    seen: set[int] = set()
    copies = []
    for index in shown.order.slice(0, shown.order.size):
        group = singled.notes[index][0]
        copies += [index] if group in seen else []
        seen |= {group} - {-1}
    about = {**singled.about, "num_shown": shown.order.size, "groups_shown": len(seen)}
    return {"about": about, "copies": copies if len(copies) <= _MOST_COPIES else None}


def _steps_of(query: Query) -> list[str]:
    """Return the steps by which samples were chosen, for the document of a view."""
    steps = {"where": "filter", "q": "search", "shard": "shards", "sort": "order_by"}
    others = [
        name for name in query if name not in PARAMETERS
    ]  # columns of which values are wanted
    others += ["missing", "broken", "marks", "inside", "near", "far", "without"]
    given = {name: query.get(name, "").strip() for name in [*steps, *others]}
    return [f"{steps.get(name, name)}({text[:2000]!r})" for name, text in given.items() if text]
