"""`Viewable`: the methods of every sequence of samples that select, join, map and save samples.

A `View` has them, and reads its samples by a plan (`Planned`); a `ShardListDataset` has them, and
makes views of itself. The methods copy no samples.
"""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, Literal, Never, Self, Unpack

import numpy as np

from wids.base.arguments import (
    check_callable,
    check_choice,
    check_flag,
    check_integer,
    check_mapping,
    check_sized,
    check_text,
    checked_position,
    checked_positions,
    plain_index,
    to_list,
)
from wids.base.keyhash import common_lineage, hash_key, hash_keys, lineage_in
from wids.base.numbertext import compared_text, equal_text
from wids.base.warn import warn
from wids.errors import SpecError
from wids.reading.collate import explain_missing
from wids.reading.shardlist import ShardList
from wids.views.classes import other_classes
from wids.views.columnnames import (
    KEY_NAMES,
    MISSING,
    check_known,
    column_named,
    sql_of,
    warn_if_unknown,
)
from wids.views.plan import (
    Add,
    Call,
    Rename,
    Slot,
    Slots,
    checked_names,
    chosen,
    concatenated,
    datasets_in,
    first_names,
    joined,
    leaves_of,
    shards_of,
    slots_of,
    stored_fields,
    surrounded,
    with_options,
    with_step,
)
from wids.views.planned import Facts, Planned
from wids.views.rows import Rows

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    import numpy.typing as npt

    from wids.catalogue.origins import Side
    from wids.catalogue.samples import SampleTable, SqlResult
    from wids.display.notebook import SampleView
    from wids.ordering.batchsampler import BatchSampler
    from wids.ordering.samplers import ChunkedSampler
    from wids.reading.fieldfile import FieldFile
    from wids.reading.pipeline import ReadingOptions
    from wids.reading.ragged import Values
    from wids.reading.samplesequence import SampleLocation, SampleSequence
    from wids.views.iterable import SampleIterable, Style
    from wids.views.joining import On, Said
    from wids.views.keytable import Keys, KeyTable

    _Sequence = SampleSequence
else:
    _Sequence = object

__all__ = [
    "Classes",
    "ShardListDataset",
    "View",
    "Viewable",
    "checked_parts",
    "concat",
    "concat_plan",
]

Classes = Literal["same", "any"]

# Purpose of a key, distinct from those of the orders.
_TAKEN = 0x74616B65


class Viewable(_Sequence):
    """Methods that make views of a sequence of samples.

    A view is a sequence of samples, too, which samplers, loaders and all these methods accept. It
    holds indexes, not samples, and a view of a view refers to the original sequence.
    """

    __slots__ = ()

    def __new__(cls, *_args: Any, **_options: Any) -> Self:
        """Return an instance that is a torch Dataset, too, where torch is loaded."""
        kind: type[Self] = _as_torch_dataset(cls) if "torch.utils.data" in sys.modules else cls
        return super().__new__(kind)

    def __iter__(self) -> Iterator[Any]:
        """Yield all samples in order."""
        return (self[index] for index in range(len(self)))

    def select(self, chosen: Any) -> View:
        """Return the view of some samples, in the given order.

        Args:
            chosen: Indexes: a list, an array, a range or a slice; negative ones count from the end.
                Or a mask: a list or an array with a truth value for each sample.

        Raises:
            IndexError: There is no such sample.
            ValueError: The length of a mask is not the number of samples.
            TypeError: `chosen` is none of these.

        >>> import wids
        >>> view = wids.concat([["a", "b", "c", "d"]]).select([3, 0, 0])
        >>> list(view), list(view[1:]), list(view[[True, False, True]])
        (['d', 'a', 'a'], ['a', 'a'], ['d', 'a'])
        """
        return self._selected("chosen", chosen)

    def _selected(self, name: str, chosen: Any) -> View:
        """Return the view of what the argument `name` chooses."""
        rows = _chosen_rows(name, chosen, len(self))
        words = _slice_as_written(chosen) if isinstance(chosen, slice) else ""
        return self._chosen(rows, words or f"select({len(rows)} samples)")

    def take(self, num_samples: int, seed: int = 0) -> View:
        """Return the view of some samples drawn at random, in storage order.

        Args:
            num_samples: Number of samples, at most all.
            seed: Any integer; equal seeds draw equal samples on every machine.

        Raises:
            ValueError: The sequence has fewer samples.
        """
        from wids.ordering.permute import derive_key, permute

        total = len(self)
        num_samples = check_integer("num_samples", num_samples, 0, total)
        seed = check_integer("seed", seed)
        indexes = np.arange(num_samples, dtype=np.int64)
        if num_samples < total:
            indexes = np.sort(permute(indexes, total, derive_key(seed, _TAKEN)))
        return self._chosen(Rows.of(indexes), f"take({num_samples}, seed={seed})")

    def filter(self, condition: str | Callable[..., Any], *columns: str, fill: Any = None) -> View:
        """Return the view of the samples that fulfil a condition, in their order.

        Args:
            condition: A condition of SQL over the columns that `sql` describes, such as
                `"json.width >= 512 and cls in (1, 3)"`; or a function that gets columns as arrays
                and returns an array of truth values.
            columns: For a function: names of columns such as ".cls" or ".json:size.width"; "key"
                for the keys.
            fill: For a function: value that replaces one that is missing or null.

        Raises:
            ValueError: The condition is malformed or names a column that there is not, or the
                function returns something else.
            ModuleNotFoundError: It is SQL, and DuckDB is not installed.
        """
        if isinstance(condition, str):
            if columns or fill is not None:
                raise ValueError(
                    f"columns and fill are for a function, got {columns!r:.80} and {fill!r:.80} "
                    f"with the condition {condition!r}"
                )
            try:
                indexes = self._sample_table.matching(self._sides, condition)
            except ModuleNotFoundError as error:
                raise ModuleNotFoundError(
                    f"{error}; filter(callable, *columns) and masks need nothing more"
                ) from error
            return self._chosen(Rows.of(indexes), f"filter({condition!r})")
        check_callable("condition", condition, "a condition of SQL, or a function of columns")
        if not columns:
            raise ValueError(
                "filter: columns: expected the names of the columns that the function gets as "
                'arrays, as in filter(lambda cls: cls == 3, ".cls"), got none; a function of a '
                "sample cannot be given, but SQL can: filter('cls = 3')"
            )
        values = []
        for name in columns:
            found = self._column_named(name, "columns") if fill is not None else None
            if not isinstance(found, np.ndarray):
                found = self._column_named(name, "columns", fill)
            if not isinstance(found, np.ndarray):  # whose comparisons are not elementwise
                found = np.fromiter(found, np.object_, len(found))
            values.append(found)
        try:
            held = condition(*values)
        except (TypeError, LookupError) as error:
            gaps = ", with None where a value is missing: fill= replaces it" * (fill is None)
            raise ValueError(
                f"filter: condition: the function failed: {error}; it gets "
                f"{', '.join(columns)} as arrays of all samples, not a sample{gaps}"
            ) from error
        _refuse_foreign("filter: condition", held)
        mask = np.asarray(held)
        if mask.dtype != np.bool_ or mask.shape != (len(self),):
            raise ValueError(
                f"filter: condition: expected a truth value for each of {len(self)} samples from "
                f"the function, got {mask.dtype} of shape {mask.shape}"
            )
        names = ", ".join(["function", *map(repr, columns)])
        return self._chosen(Rows.mask(mask), f"filter({names})")

    def sql(self, query: str) -> SqlResult:
        """Return the answer to a query about the samples.

        The table `samples` has a row for each: `index`, `key`, `shard`, `shard_index`, the fields
        under their extensions without the dot (`cls`, `txt`, `json.width`), what headers state
        (`jpg.width`), `cls_name`, `offsets` and `sizes`. The first query builds the catalogue, a
        Parquet file for each shard in the cache folder.

        Args:
            query: SQL as DuckDB takes it: one SELECT.

        Returns:
            A finished table: `.df()`, `.pl()` and `.arrow()` give data frames, `print` shows it.

        Raises:
            ValueError: It is no query, or names a column that there is not.
            WidsError: A shard cannot be read.
            ModuleNotFoundError: DuckDB is not installed.

        >>> import tempfile, wids
        >>> folder = tempfile.mkdtemp()
        >>> with wids.ShardWriter(f"{folder}/train-%03d.tar") as writer:
        ...     for number in range(4):
        ...         writer.write({"__key__": f"{number}", ".json": {"width": number * 100}})
        >>> wids.open(folder).sql("select count(*) as wide from samples where json.width >= 100")
        wide
           3
        """
        return self._sample_table.query(self._sides, query)

    @property
    def _sides(self) -> list[Side]:
        from wids.views.storage import sides_of  # imported here, as few programs ask in SQL

        return sides_of(self)

    @cached_property
    def _sample_table(self) -> SampleTable:
        from wids.catalogue.samples import SampleTable

        return SampleTable()

    def order_by(self, order: str) -> View:
        """Return the view of all samples in an order; equal ones keep theirs, nulls come last.

        Args:
            order: Expressions of SQL as after ORDER BY, such as `"json.score desc, key"`.

        Raises:
            ValueError: It is no order, or names a column that there is not.
            ModuleNotFoundError: DuckDB is not installed.
        """
        indexes = self._sample_table.ordered(self._sides, order)
        return self._chosen(Rows.of(indexes), f"order_by({order!r})")

    def split(
        self,
        *unnamed: Never,
        seed: int = 0,
        by: Any = "key",
        stratify: str | None = None,
        **parts: float,
    ) -> dict[str, View]:
        """Return views of disjoint parts that together have all samples.

        By key, the part of a sample depends on its key alone: it stays the same when samples are
        added or shards are reordered or rewritten. The sizes of the parts then vary by chance. A
        part can be split again, with the same seed, too.

        Args:
            seed: Another seed assigns other samples to each part.
            by: "key"; "sample" for exact shares; or, to keep groups together, the name of a column
                such as ".json:speaker" or a list with the group of each sample.
            stratify: Name of a column such as ".cls": each part gets its exact share of the samples
                of each value, and of those without one.
            parts: Share of each part, relative to the sum of all.
            unnamed: Refused, as each part has a name.

        Raises:
            TypeError: A part has no name.
            ValueError: There are fewer than two parts, a share is not above 0, both groups and
                `stratify` are given, or samples have no group.

        >>> import wids
        >>> parts = wids.concat([range(10)]).split(by="sample", train=0.8, val=0.2)
        >>> sorted([*parts["train"], *parts["val"]]) == list(range(10)), len(parts["val"])
        (True, 2)
        """
        from wids.views.splitting import part_numbers

        if unnamed:
            raise TypeError(
                "split: expected a name for each part, as in split(train=0.8, val=0.2), got "
                f"split({', '.join(map(repr, unnamed))})"
            )
        seed = check_integer("seed", seed)
        named = by if isinstance(by, str) else "groups"
        if stratify is not None and named not in ("key", "sample"):
            raise ValueError(
                "split: give either groups (by=) or stratify=, not both: a group may have samples "
                "of several classes"
            )
        classes = None if stratify is None else self._column_named(stratify, "stratify")
        groups = None if named == "sample" else self._group_hashes(by, "split: by")
        numbers, lineage = part_numbers(parts, len(self), groups, classes, seed, self.lineage)
        how = f"{seed=}, by={named!r}, {stratify=}"
        shares = ", ".join(f"{name}={share}" for name, share in parts.items())
        return {
            name: self._chosen(
                Rows.mask(numbers == part),
                f"split({how}, {shares})[{name!r}]",
                lineage,
            )
            for part, name in enumerate(parts)
        }

    def _group_hashes(self, by: Any, argument: str) -> npt.NDArray[np.uint64]:
        from wids.views.splitting import hash_values

        if isinstance(by, str) and by == "key":
            return self.key_hashes()
        values = by
        if isinstance(by, str):
            name = argument.rpartition(" ")[2]
            values = self._column_named(by, name)
            lacking = sum(value is MISSING for value in values) if isinstance(values, list) else 0
            if lacking:
                there = f"{sql_of(by)} is not null"
                raise ValueError(
                    f"{argument}: {lacking} of {len(self)} samples have no value in {by!r}, so no "
                    f"group; leave them out by filter({there!r}), or make them one group by "
                    f"{name}=dataset.column({by!r}, fill='none')"
                )
        check_sized(argument, values, "a column, or a group for each sample")
        hashes = hash_values(values)
        if len(hashes) != len(self):
            raise ValueError(
                f"{argument}: expected a group for each of {len(self)} samples, got {len(hashes)}"
            )
        return hashes

    def _column_named(self, name: str, argument: str = "column", fill: Any = MISSING) -> Values:
        """Return a column, with `MISSING` for missing values and nulls; raise if it is unknown."""
        if name not in KEY_NAMES:
            column_named(name, argument)
        values = self.column(name, fill=fill)
        if isinstance(values, list) and len(values) and all(each is MISSING for each in values):
            check_known(self, *column_named(name, argument), argument)
        return values

    def map(self, function: Callable[[Any], Any]) -> View:
        """Return the view whose samples are the results of a function.

        In the function, `wids.random_seed(sample)` returns a seed for the epoch and the sample.
        Fields and columns are read as stored, without the function.

        Args:
            function: Takes a sample and returns its replacement; picklable, for workers.
        """
        function = check_callable("function", function, "a function of a sample")
        return self._made(with_step(slots_of(self), Call(function)), f"map({_name_of(function)})")

    def rename(self, names: Mapping[str, str | Sequence[str]]) -> View:
        """Return the view whose samples have some fields under other names.

        A new name may stand for several fields: it is that of the first one which a sample has, and
        which is decoded by its own extension. So samples with `.jpg` and samples with `.png` have
        one field in batches, columns and filters. A sample that has none lacks the new field.

        Args:
            names: For each new name the old one, or several with semicolons between them or in a
                list, the preferred one first. Samples have none of these under its old name.

        Raises:
            ValueError: A name is no extension, a field is given two names, or samples have another
                field of a new name; where that takes a request to see, it is raised when samples
                are read.

        >>> import tempfile, wids
        >>> folder = tempfile.mkdtemp()
        >>> with wids.ShardWriter(f"{folder}/train-%03d.tar") as writer:
        ...     writer.write({"__key__": "a", ".txt": "a cat"})
        ...     writer.write({"__key__": "b", ".caption.txt": "a dog", ".txt": "dog.jpg"})
        >>> view = wids.open(folder).rename({".text": ".caption.txt;.txt"})
        >>> view[0][".text"], list(view.column(".text"))
        ('a cat', ['a cat', 'a dog'])
        """
        from wids.views.joining import check_new_names

        step = Rename(
            checked_names(check_mapping("names", names, "old names by new ones"), "names")
        )
        check_new_names(slots_of(self), step)
        said = ", ".join(f"{new}: {';'.join(step.names[new])}" for new in step.names)
        return self._made(with_step(slots_of(self), step), f"rename({said})")

    def windows(
        self,
        before: int = 0,
        after: int = 0,
        *,
        within: Any = None,
        stride: int = 1,
        ends: Literal["clamp", "drop"] = "clamp",
    ) -> View:
        """Return the view whose samples have, for each field, a list of those of neighbours.

        The neighbours of a sample are those before and after it in this view, of the same episode,
        video or stream. What chooses samples (`column`, `filter`, `order_by`, `split`) and raw
        fields take the sample itself.

        Args:
            before: Number of neighbours before the sample, at least 0.
            after: Number of neighbours after it, at least 0.
            within: What neighbours have in common: the name of a column such as ".json:episode", or
                a list with the episode of each sample; None for all samples.
            stride: Distance between neighbours in samples, at least 1.
            ends: "clamp" repeats the first or the last sample of an episode for neighbours beyond
                it; "drop" leaves out the samples that have any such neighbour.

        Raises:
            ValueError: An argument is out of range, no sample has the column, or some lack it.

        >>> import wids
        >>> frames = wids.concat([[{".cls": number} for number in range(5)]])
        >>> clips = frames.windows(before=1, after=1, within=[0, 0, 0, 1, 1])
        >>> [sample[".cls"] for sample in clips]
        [[0, 0, 1], [0, 1, 2], [1, 2, 2], [3, 3, 4], [3, 4, 4]]
        >>> [sample[".cls"] for sample in frames.windows(after=2, ends="drop")]
        [[0, 1, 2], [1, 2, 3], [2, 3, 4]]
        """
        from wids.views.neighbours import neighbours

        before = check_integer("before", before, 0, _MOST_NEIGHBOURS)
        after = check_integer("after", after, 0, _MOST_NEIGHBOURS - before)
        stride = check_integer("stride", stride, 1)
        check_choice("ends", ends, ("clamp", "drop"))
        groups = None if within is None else self._group_hashes(within, "windows: within")
        offsets = stride * np.array([*range(-before, 0), *range(1, after + 1)], np.int64)
        chosen_rows, places = neighbours(len(self), groups, offsets, drop=ends == "drop")
        plan = surrounded(slots_of(self), places[:before], places[before:])
        if chosen_rows is not None:
            plan = chosen(plan, chosen_rows)
        how = within if isinstance(within, str | None) else "groups"
        return self._made(plan, f"windows({before=}, {after=}, within={how!r}, {stride=}, {ends=})")

    @property
    def keys(self) -> Keys:
        """The keys of all samples, for `key in dataset.keys` and `dataset.keys[index]`."""
        from wids.views.keytable import Keys

        return Keys(self, self._find)

    def key_at(self, index: int) -> str:
        """Return the key of one sample, by its index in `[0, len)`, unchecked.

        Args:
            index: Its index.
        """
        source, row = slots_of(self)[0].place(index)
        key: str = source.leaf.key_at(row)
        return key

    def key_hashes(self) -> npt.NDArray[np.uint64]:
        """Return the hash of each sample's key, as `wids.base.keyhash` makes it."""
        slot = slots_of(self)[0]
        hashes: dict[int, npt.NDArray[np.uint64]] = {}  # of datasets with samples here alone
        found = np.empty(len(self), np.uint64)
        done = 0
        for block in slot.rows.blocks():
            at = np.arange(done, done + len(block), dtype=np.int64)
            for leaf, places, rows, _ in slot.by_leaf(at):
                if id(leaf) not in hashes:
                    hashes[id(leaf)] = leaf.key_hashes()
                found[done + places] = hashes[id(leaf)][rows]
            done += len(block)
        return found

    def locate(self, index: int) -> SampleLocation:
        """Return where a sample lies, without opening its shard; its shard counts in its dataset.

        Args:
            index: Global index; a negative one counts from the end.

        Raises:
            IndexError: There is no such sample.
        """
        position = checked_position(index, len(self))
        source, row = slots_of(self)[0].place(position)
        location: SampleLocation = source.leaf.locate(row)
        return replace(location, index=position)

    def open_field(self, index: int, extension: str) -> FieldFile:
        """Open one field of a sample as a file that can be sought in.

        Args:
            index: Global index; a negative one counts from the end.
            extension: The field, such as ".mp4".

        Returns:
            A binary file, read-only, of which only the parts that are used are read.

        Raises:
            KeyError: The sample has no such field.
        """
        fields = stored_fields(self, checked_position(index, len(self)), (extension,))
        if extension not in fields:
            there = ", ".join(self.field_sizes(index)) or "none"
            raise KeyError(
                f"sample {index}: no field {extension!r}; it has {there}, and extensions begin "
                "with a dot"
            )
        field = fields[extension]
        file: FieldFile = field.home.open_field(field.position, field.name)
        return file

    def index_of(self, key: str) -> int:
        """Return the index of the first sample that has a key.

        The first call reads all keys; later calls take some microseconds.

        Args:
            key: The key, such as `"000042"`.

        Raises:
            KeyError: No sample has the key.
        """
        found = self._find(check_text("key", key))
        if found is None:
            first = f", the first has {self.key_at(0)!r}" if len(self) else ""
            raise KeyError(f"no sample of {len(self)} has the key {key!r}{first}")
        return found

    def get(self, key: str) -> Any:
        """Return the first sample that has a key.

        Args:
            key: The key, such as `"000042"`.

        Raises:
            KeyError: No sample has the key.
        """
        return self[self.index_of(key)]

    @cached_property
    def key_table(self) -> KeyTable:
        """Table in which samples are found by the hashes of their keys."""
        from wids.views.keytable import KeyTable

        return KeyTable(self.key_hashes())

    def _find(self, key: str) -> int | None:
        indexes = self.key_table.indexes_of(hash_key(key))
        return next((index for index in indexes if self.key_at(index) == key), None)

    def select_keys(
        self, keys: Any, *, column: str = "key", missing: Literal["error", "drop"] = "error"
    ) -> View:
        """Return the view of the samples that have some keys, in the order of the keys.

        Args:
            keys: A list, or a column of pyarrow; or the path of a file: text with one key per line,
                or a `.npy` of texts or of DataComp's pairs of 64-bit numbers.
            column: Column that is compared with the keys, such as ".json:uid", where they may be
                numbers; "key" for the keys of the samples.
            missing: "drop" to leave out keys that no sample has.

        Raises:
            ValueError: A key is missing, or several samples have it.
        """
        from wids.views.keytable import read_keys

        wanted = read_keys(keys, numbers=column not in KEY_NAMES)
        rows, indexes = self._found(wanted, column, missing)
        (twice,) = np.nonzero(np.diff(rows) == 0)
        if len(twice):
            first, second = indexes[twice[0]], indexes[twice[0] + 1]
            key = wanted[rows[twice[0]]]
            cure = f"leave one out by its index, exclude([{second}])"
            if column not in KEY_NAMES:
                from wids.catalogue.structures import literal

                condition = f"{sql_of(column)} = {literal(key)}"
                cure = f"filter({condition!r}) chooses all of them"
            raise ValueError(
                f"select_keys: samples {first} and {second} both have the key {key!r}; {cure}"
            )
        return self._chosen(Rows.of(indexes), f"select_keys({len(wanted)} keys)")

    def exclude(
        self, unwanted: Any, *, column: str = "key", missing: Literal["error", "drop"] = "error"
    ) -> View:
        """Return the view of all samples except some.

        Args:
            unwanted: Keys of the samples to leave out, as for `select_keys`; a dataset or a view
                whose keys they are; or, where `column` is "key", their indexes, as for `select`. Of
                a view of the same dataset, the samples themselves are left out, and not others that
                have the same keys.
            column: As for `select_keys`.
            missing: "drop" to ignore keys that no sample has.

        Raises:
            ValueError: A key is missing.
            IndexError: An index is out of range.
        """
        from wids.views.keytable import read_keys

        lineage = common_lineage([self.lineage, getattr(unwanted, "lineage", None)])
        given = unwanted.keys if isinstance(unwanted, Viewable) else unwanted
        indexes = None
        if column in KEY_NAMES:  # in another column, numbers are values like texts, and no indexes
            if isinstance(unwanted, View):
                indexes = self._indexes_of(unwanted)
            elif not _are_keys(given):
                indexes = _chosen_rows("unwanted", given, len(self)).array()
        if indexes is None:
            wanted = read_keys(given, numbers=column not in KEY_NAMES)
            _, indexes = self._found(wanted, column, missing)
        # After the keys were read: a document may claim any number of samples.
        mask = np.ones(len(self), np.bool_)
        mask[indexes] = False
        rows = Rows.mask(mask)
        return self._chosen(rows, f"exclude({len(self) - len(rows)} samples)", lineage)

    def _indexes_of(self, view: View) -> npt.NDArray[np.int64] | None:
        """Return the indexes here of the samples of a view of the same datasets; else None."""
        mine, theirs = slots_of(self)[0], view.slots[0]
        if [each.identity for each in mine.sources] == [each.identity for each in theirs.sources]:
            # What is in the sources twice is told apart by its place there.
            return np.flatnonzero(np.isin(mine.rows.array(), theirs.rows.array()))
        # The first address of each dataset, which may be read with other options there.
        starts = {id(shards_of(each.leaf)): n << 40 for n, each in enumerate(mine.sources)}
        if any(id(shards_of(source.leaf)) not in starts for source in theirs.sources):
            return None

        def addresses(slot: Slot) -> npt.NDArray[np.int64]:
            found = np.empty(len(slot.rows), np.int64)
            for leaf, places, rows, _ in slot.by_leaf(np.arange(len(found), dtype=np.int64)):
                found[places] = rows + starts[id(shards_of(leaf))]
            return found

        return np.flatnonzero(np.isin(addresses(mine), addresses(theirs)))

    def _found(self, wanted: list[str], column: str, missing: str) -> tuple[Any, Any]:
        """Return positions of wanted keys, and the samples that have them."""
        from wids.views.keytable import KeyTable, find_all

        check_choice("missing", missing, ("error", "drop"))
        first = ""
        if column in KEY_NAMES:
            rows, indexes = find_all(wanted, self.key_table, self.keys_at)
            if len(self) and not len(rows):
                first = f"; the first sample has {self.key_at(0)!r}"
        else:
            gaps = self._column_named(column)
            values = gaps.tolist() if isinstance(gaps, np.ndarray) else list(gaps)
            having = [index for index, value in enumerate(values) if value is not MISSING]
            # Where all values are numbers, a text that is one counts as that number.
            numbers = all(isinstance(values[index], int | float) for index in having)
            asked = list(map(compared_text, wanted)) if numbers else wanted
            held = [equal_text(values[index]) for index in having]
            table = KeyTable(hash_keys(held))
            rows, places = find_all(asked, table, lambda at: [held[each] for each in at.tolist()])
            indexes = np.array(having, np.int64)[places]
        lost = np.setdiff1d(np.arange(len(wanted)), rows)
        if missing == "error" and len(lost):
            raise ValueError(
                f"{len(lost)} of {len(wanted)} keys belong to no sample, the first is "
                f'{wanted[lost[0]]!r}{first}; missing="drop" (--ignore-missing) passes over them'
            )
        if wanted and len(self) and not len(rows):
            warn(
                f"none of {len(wanted)} keys belongs to a sample, the first is {wanted[0]!r}"
                f"{first}: check the list, also for blanks at the ends of its lines"
            )
        return rows, indexes

    def join(
        self,
        right: Any,
        *,
        on: On = None,
        missing: Literal["error", "drop", "fill", "keep"] = "error",
        fields: Collection[str] | None = None,
        rename: Mapping[str, str] | None = None,
        replace: bool = False,
        aligned: bool = False,
    ) -> View:
        """Return the samples with the fields that another dataset or a table has for them.

        The samples are found by their keys, which are read now. Where both sides have the same ones
        in the same order, as shards that were made from these, the join takes no memory.

        Of a table, each column becomes a field: `caption` becomes `.caption`. Text and bytes are
        decoded by the name of the field, as in a shard; other values are those of the table, and
        None where it has none. Tables are mapped or held in memory, not parsed for each sample.

        Args:
            right: Another dataset or view. Or a table: path or URL of a `.parquet`, `.arrow`,
                `.feather`, `.csv`, `.tsv` or `.npy` file, or a list of these; a data frame of
                pandas or polars, or a table of pyarrow; a dict of columns; or an array, in the
                order of the samples.
            on: For a table, its column that holds the keys of the samples, by default "key"; or a
                field of the samples and the column that it equals: `(".json:uid", "uid")`.
            missing: "drop" to leave out samples that the right side does not have; "fill" to give
                them None for its fields; "keep" to leave them as they are: with `replace`, the
                right side corrects the fields of some samples.
            fields: The fields or columns that are wanted; None for all.
            rename: New names of fields, such as `{".txt": ".caption"}`, with a dot.
            replace: Let its fields take the place of those of the same name.
            aligned: True to take both for samples of the same keys in the same order, without
                reading the keys: they are compared as samples are read, but not in columns.

        Raises:
            ValueError: Samples are missing, two of the right side have one key, or a column is
                unknown. Both sides have a field of one name; where that takes a request to see, it
                is raised when samples are read.
            ModuleNotFoundError: A table needs pyarrow, which is not installed.

        >>> import tempfile, wids
        >>> folder = tempfile.mkdtemp()
        >>> with wids.ShardWriter(f"{folder}/train-%03d.tar") as writer:
        ...     for number in range(3):
        ...         writer.write({"__key__": f"k{number}", ".cls": number})
        >>> dataset = wids.ShardListDataset(folder)
        >>> joined = dataset.join({"key": ["k2", "k0", "k1"], "caption": ["two", "zero", "one"]})
        >>> joined[2][".cls"], joined[2][".caption"], list(joined.column(".caption"))
        (2, 'two', ['zero', 'one', 'two'])
        """
        from wids.views.joining import cache_of, counterparts, joined_rows
        from wids.views.tablefiles import is_table, open_table

        check_choice("missing", missing, ("error", "drop", "fill", "keep"))
        if rename is not None:
            check_mapping("rename", rename, "new names by extension")
        for old, new in (rename or {}).items():
            if not str(new).startswith("."):
                raise ValueError(f"rename: a field begins with a dot, got {new!r} for {old!r}")
        replace = check_flag("replace", replace)
        aligned = check_flag("aligned", aligned)
        if is_table(right):
            opened = open_table(right, cache=cache_of(self))
            how: Any = {"on": on, "fields": fields, "rename": rename, "aligned": aligned}
            found = joined_rows(self, opened, **how)
            return self._joined(*found, Add(0, {}, replace, of_table=True), missing)
        if on not in {None, "key", "__key__"}:
            raise ValueError(
                f"on: datasets are joined by their keys, got {on!r}; to join by a field, give "
                "columns of the right one as a table: join({'id': right.column('.json:id'), "
                "'text': right.column('.txt')}, on=('.json:id', 'id'))"
            )
        if not hasattr(right, "key_hashes"):
            raise TypeError(f"right must be a dataset, a view or a table; got {right!r:.80}")
        other: Any = right if fields is None else right.with_options(fields=fields)
        step = Add(0, dict(rename or {}), replace)
        return self._joined(other, *counterparts(self, other, aligned=aligned), step, missing)

    def join_tables(
        self,
        pattern: str,
        *,
        on: On = None,
        missing: Literal["error", "drop", "fill", "keep"] = "error",
        fields: Collection[str] | None = None,
        rename: Mapping[str, str] | None = None,
        replace: bool = False,
    ) -> View:
        """Return the samples with the columns of tables that lie beside their shards.

        img2dataset writes `00000.parquet` beside `00000.tar`:
        `dataset.join_tables("{shard}.parquet")`.

        Args:
            pattern: Path of a table, relative to the folder or the URL of its shard; `{shard}`
                stands for the name of the shard without `.tar`. Remote tables are fetched into the
                cache folder.
            on: As for `join`, like the following.
            missing: "drop", "fill" and "keep" also accept shards without a table.
            fields: The columns that are wanted; None for those that all tables have.
            rename: New names of their fields.
            replace: Let them take the place of fields of the same name.

        Raises:
            ValueError: A table or a row is missing, or as for `join`.
        """
        from wids.views.joining import cache_of
        from wids.views.tablefiles import open_tables, tables_beside

        locations, is_relative = tables_beside(pattern, datasets_in(self, joined=False))
        options: Any = {"missing": missing, "cache": cache_of(self), "is_relative": is_relative}
        opened = open_tables(locations, warned=fields is None, **options)
        how: Any = {"on": on, "missing": missing, "fields": fields, "rename": rename}
        return self.join(opened, replace=replace, **how)

    def _joined(
        self, right: Any, matches: npt.NDArray[np.int64], said: Said, step: Add, missing: str
    ) -> View:
        """Return the samples with the fields of their counterparts.

        Args:
            right: A dataset, a view or a table.
            matches: Index of the counterpart of each sample, -1 for none.
            said: What is said of a sample without one.
            step: How the fields are merged.
            missing: What to do with samples without a counterpart.
        """
        from wids.views.joining import check_fields

        left: Any = self
        others = slots_of(right)
        lost = np.flatnonzero(matches < 0)
        message = f"join: {len(lost)} of {len(self)} samples have no "
        if len(lost) and missing == "error":
            raise ValueError(
                f'{message}{said(int(lost[0]))}; missing="drop" leaves them out, "fill" gives them '
                "None"
            )
        if step.of_table and len(lost) == len(self) and len(self) and len(right):
            warn(f"{message}{said(int(lost[0]))}: check that on= names what is equal")
        if len(lost) and missing == "drop":
            left = self._chosen(Rows.mask(matches >= 0), "join")
            matches = matches[matches >= 0]
        elif missing == "keep" and not step.of_table:
            unused = np.setdiff1d(np.arange(len(right)), matches)
            if len(unused):
                warn(
                    f"join: {len(unused)} of {len(right)} samples change nothing, since no sample "
                    f"has their key, such as {right.key_at(int(unused[0]))!r}: check the keys"
                )
        elif len(lost) and missing == "fill":
            first = others if not len(right) else chosen(others, Rows.over(range(1)))
            step.absent = tuple(right.fields if step.of_table else first_names(first))
        check_fields(self, right, step)
        facts = left.facts
        made = (*facts.made, f"join({right!r:.80})") if left is self else facts.made
        lineage = common_lineage([facts.lineage, getattr(right, "lineage", None)])
        plan = joined(slots_of(left), others, Rows.of(matches), step)
        return View(plan, facts._replace(made=made, lineage=lineage))

    def __add__(self, other: Any) -> View:
        """Return the concatenation of both sequences; `concat` takes more, and names.

        Raises:
            TypeError: The other one is a list, whose items need not be samples.
        """
        if isinstance(other, list | tuple):
            raise TypeError(
                f"+ takes a dataset or a view, got {type(other).__name__} {other!r:.80}; of "
                "samples in a list, wids.concat([dataset, samples]) makes one sequence"
            )
        return concat([self, other])

    def column(self, extension: str, *path: str | int, fill: Any = None) -> Values:
        """Return one field of all samples, or one value in it, decoded.

        Args:
            extension: The field, such as ".cls"; or a column such as ".json:size.width" or "key".
            path: For one value inside the field: the keys and indexes that lead to it.
            fill: Value that replaces a field or value that is missing or null. A column that no
                sample has, such as a misspelt one, is warned of.

        Raises:
            DecodeError: A field is damaged, or it is missing and `fill` is not given.
        """
        if extension in KEY_NAMES:
            return list(self.keys)
        field, steps = column_named(extension, "extension")
        values = self._whole_column(field, *steps, *path, fill=fill)
        warn_if_unknown(self, values, field, (*steps, *path), fill)
        return values

    def _whole_column(self, field: str, *path: str | int, fill: Any) -> Values:
        return self.column_at(np.arange(len(self), dtype=np.int64), field, *path, fill=fill)

    def show(self, index: int = 0) -> SampleView:
        """Show one sample: in a notebook as a table with pictures, else as lines of text.

        The fields are shown as stored, without the transformations.

        Args:
            index: A negative one counts from the end.

        Returns:
            A `SampleView`, which a notebook shows as a table and `print` as lines.
        """
        from wids.reading import describe

        return describe.view_sample(self, check_integer("index", index))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _repr_html_(self) -> str:
        from wids.display.notebook import DatasetFacts
        from wids.reading import describe

        shards = int(np.count_nonzero(self.lengths))
        kind = type(self).__name__
        return describe.page_of(self, DatasetFacts(kind, repr(self), len(self), shards, None))

    def as_iterable(
        self,
        sampler: ChunkedSampler | BatchSampler,
        *,
        batch_size: int = 64,
        style: Style = "wids",
    ) -> SampleIterable:
        """Return the samples as a torch IterableDataset, exact over ranks and workers.

        Args:
            sampler: Sampler of this library or `BatchSampler`, which determines the order and the
                share of this rank.
            batch_size: Number of samples that a worker reads at a time. With that of the
                DataLoader, its batches are those of the sampler.
            style: "wids" for the samples as they are; "webdataset" for samples in the form that
                webdataset's pipeline stages take: raw fields under names without the leading dot.

        Returns:
            A `SampleIterable`; call its `set_epoch` or that of the sampler before each epoch.

        >>> import tempfile, wids
        >>> folder = tempfile.mkdtemp()
        >>> with wids.ShardWriter(f"{folder}/train-%03d.tar") as writer:
        ...     for number in range(3):
        ...         writer.write({"__key__": f"{number}", ".cls": number})
        >>> dataset = wids.ShardListDataset(folder)
        >>> sampler = wids.ShardListSampler(dataset, shuffle=False)
        >>> [sample["cls"] for sample in dataset.as_iterable(sampler, style="webdataset")]
        [b'0', b'1', b'2']
        """
        # Imported here, because torch takes seconds to import and nothing else here needs it.
        from wids.views.iterable import SampleIterable

        return SampleIterable(self, sampler, batch_size=batch_size, style=style)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the view to a JSON document, which names the dataset and the chosen indexes.

        `wids.open` opens it, also on another machine, and checks that the dataset has not
        changed. The document takes some kilobytes. Long lists of rows are written to a file in the
        same folder: mostly less than 2 bytes per sample, or 4 if they are not ascending.

        Args:
            path: Path of the document, which ends in `.json`.

        Raises:
            ValueError: The path does not end in `.json`.
            TypeError: The view has a function or weights.
            OSError: A file cannot be written.
        """
        from wids.views.saved import save_view  # which opening a dataset does not need

        save_view(self, path)

    @property
    def facts(self) -> Facts:
        """What is known of the samples besides how they are read."""
        return Facts()

    @property
    def lineage(self) -> str | None:
        """Key of the splits by hash that the samples are a part of; None if there are none."""
        return self.facts.lineage

    def _chosen(self, rows: Rows, made: str, lineage: str | None = None) -> View:
        return self._made(chosen(slots_of(self), rows), made, lineage)

    def _made(self, plan: Slots, made: str, lineage: str | None = None) -> View:
        facts = self.facts
        known = facts._replace(made=(*facts.made, made), lineage=lineage or facts.lineage)
        return View(plan, known)


@cache
def _as_torch_dataset(kind: Any) -> Any:
    """Return the subclass of a class of sequences that is a torch Dataset, too.

    Some programs ask `isinstance(samples, Dataset)`. If the classes here inherited from torch's,
    each program would wait for `import torch`, which takes seconds.
    """
    from torch.utils.data import Dataset

    if issubclass(kind, Dataset):
        return kind

    def reduce(self: Any, protocol: Any) -> Any:
        # Pickled as the class itself, so that the reader needs torch only if it uses torch.
        how, arguments, *state = kind.__reduce_ex__(self, protocol)
        if issubclass(kind, View):
            how = kind if how is type(self) else how
            arguments = tuple(kind if each is type(self) else each for each in arguments)
        elif arguments and arguments[0] is type(self):
            how, arguments = _made_empty, (kind,)
        return (how, arguments, *state)

    names = {"__module__": kind.__module__, "__doc__": kind.__doc__, "__reduce_ex__": reduce}
    return type(kind.__name__, (kind, Dataset), names)


def _made_empty(kind: Any) -> Any:
    return kind.__new__(kind)


class ShardListDataset(ShardList, Viewable):
    """A `ShardList` with the methods that make views; it does not need torch.

    `wids.ShardListDataset` describes the arguments; it is this class, and a torch `Dataset`.
    """

    def _view(self, chosen: Any) -> Any:
        return self._selected("index", chosen)

    @property
    def facts(self) -> Facts:
        """What is known of the samples: the lineage that the spec gives."""
        return Facts(lineage=lineage_in(self.header))

    def _find(self, key: str) -> int | None:
        packed = self.packed_keys()
        if packed is None:
            return super()._find(key)
        indexes = packed.indexes_of(hash_key(key))
        return next((index for index in indexes if self.key_at(index) == key), None)

    def __getstate__(self) -> dict[str, Any]:
        # A pickled copy makes a table of its own, as the present one may be large.
        return {name: each for name, each in super().__getstate__().items() if name != "key_table"}

    def drop_if_changed(self, shard_index: int) -> bool:
        """Drop a shard that was replaced, and the table of keys; see `ShardList`.

        Args:
            shard_index: Number of the shard in the dataset.

        Returns:
            Whether it was replaced.
        """
        changed = super().drop_if_changed(shard_index)
        if changed:
            self.__dict__.pop("key_table", None)
        return changed

    column = Viewable.column  # which takes names of columns, too

    def _whole_column(self, field: str, *path: str | int, fill: Any) -> Values:
        return ShardList.column(self, field, *path, fill=fill)


class View(Planned, Viewable):
    """Samples of any datasets, in any order and with repetitions, with the fields of joins.

    The methods of a dataset make views, and `wids.concat`. `view[i]` is the sample number `i` of
    the view, and its `__index__` is `i`.

    Attributes:
        made: Description of each step that made the view.
        lineage: Key of the splits by hash that the samples are a part of; None if there are none.
    """

    __slots__ = ()

    def __getitem__(self, index: Any) -> Any:
        """Return the sample with an index, or the view of a slice, a list or a mask.

        Raises:
            IndexError: There is no such sample.
        """
        if type(index) is not int or not 0 <= index < self._count:
            try:
                index = checked_position(plain_index(index), self._count)
            except TypeError:
                return self._selected("index", index)
        read = self._read
        if read is not None:
            # Two local names, because calling an attribute directly looks it up as a method, which
            # takes longer.
            at = self._at
            return read(at(index), index)
        return self._sample(self.slots[0], index, index)

    def __getitems__(self, indexes: Sequence[int]) -> list[Any]:
        """Return the samples of a batch; torch's DataLoader calls this.

        Raises:
            IndexError: One of them is out of range.
        """
        from wids.ordering.randomseeds import reading_batch

        numbers = checked_positions(indexes, self._count)
        if self.facts.draws is not None:
            self.facts.draws.note_batch(indexes)
        with reading_batch(indexes, self._count):
            return explain_missing(self._samples(self.slots[0], numbers, numbers.tolist()))

    def with_options(self, **options: Unpack[ReadingOptions]) -> View:
        """Return the same view of samples that are read with other options.

        With `fields`, each side of a join is asked for those alone with which it was joined. Where
        the first shard of the right one is remote, that fetches it, or its index.

        Args:
            options: `transformations`, `fields`, `decoders` and `on_error`, as
                `ShardListDataset` takes them; others stay as they are.
        """
        return View(with_options(self.slots, options), self.facts)

    @property
    def made(self) -> tuple[str, ...]:
        """Description of each step that made the view."""
        return self.facts.made

    def __repr__(self) -> str:
        base = leaves_of(self, joined=False)
        others = [leaf for leaf in leaves_of(self) if not any(leaf is each for each in base)]
        named = f"{type(self).__name__}({self._count} samples of {_listed(base)}"
        more = f", joined with {_listed(others)}" if others else ""
        calls = (step for source in self.slots[0].sources for step in source.steps)
        names = [_name_of(step.function) for step in calls if isinstance(step, Call)]
        mapped = f", mapped by {', '.join(dict.fromkeys(names))}" if names else ""
        return f"{named}{more}{mapped})"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.slots, self.facts)


_MOST_NEIGHBOURS = 500  # each takes a read, and a list of rows
_MOST_SHOWN = 3  # datasets in a representation


def _name_of(function: Any) -> str:
    name: str = getattr(function, "__qualname__", type(function).__name__)
    return name


def _listed(leaves: list[Any]) -> str:
    more = f" and {len(leaves) - _MOST_SHOWN} more" if len(leaves) > _MOST_SHOWN else ""
    return ", ".join(map(repr, leaves[:_MOST_SHOWN])) + more


def concat(
    parts: Sequence[Any], names: Sequence[str] | None = None, *, classes: Classes = "same"
) -> View:
    """Return the samples of several sequences, one after the other.

    Args:
        parts: Datasets, views, or anything with `len` and `[index]`, which gives single samples
            only.
        names: Name of each part, which is the `__dataset__` of its samples.
        classes: "any" for parts whose specs number their classes differently, where the numbers do
            not matter, or `__dataset__` tells what they mean.

    Raises:
        TypeError: The parts are no list of sequences.
        ValueError: There are no parts, or the number of names differs from that of the parts.
        SpecError: The specs of two parts number their classes differently.

    >>> both = concat([["a", "b"], ["c"]])
    >>> len(both), both[2], list(both[::2])
    (3, 'c', ['a', 'c'])
    """
    return View(*concat_plan(parts, names, classes))


def concat_plan(
    parts: Sequence[Any], names: Sequence[str] | None, classes: Classes
) -> tuple[Slots, Facts]:
    """Return the plan of several sequences, one after the other, and what is known of it."""
    given = checked_parts(parts)
    if not given:
        raise ValueError("parts: expected at least one sequence of samples, got none")
    labels = None if names is None else to_list("names", names, "a name for each part")
    for name in labels or ():
        check_text("each of names", name)
    if labels is not None and len(labels) != len(given):
        raise ValueError(f"names: expected one for each of {len(given)} parts, got {names!r}")
    check_choice("classes", classes, ("same", "any"))
    if classes == "same" and (message := other_classes(given)):
        raise SpecError(
            f'{message}; map() gives a part other numbers, and classes="any" of wids.concat '
            "and Mixture takes the parts as they are"
        )
    known = [part.facts if isinstance(part, Viewable) else Facts() for part in given]
    facts = Facts(
        made=(f"concat({len(given)} parts)",),
        lineage=common_lineage(each.lineage for each in known),
        any_classes=classes == "any" or any(each.any_classes for each in known),
        draws=next((each.draws for each in known if each.draws is not None), None),
    )
    return concatenated([*map(slots_of, given)], labels or [None] * len(given)), facts


def checked_parts(parts: Any) -> list[Any]:
    """Return sequences of samples as a list; raise TypeError for anything else.

    >>> checked_parts(([1, 2], [3]))
    [[1, 2], [3]]
    """
    # A dataset in place of a list would count each of its samples as a dataset.
    if isinstance(parts, Viewable):
        raise TypeError(f"parts must be datasets in a list; got one dataset: {parts!r:.80}")
    for number, part in enumerate(listed := to_list("parts", parts, "datasets")):
        sequence = hasattr(part, "__len__") and hasattr(part, "__getitem__")
        if not sequence or isinstance(part, str | bytes | dict):
            raise TypeError(
                f"parts[{number}] must be a dataset, or another sequence of samples; got "
                f"{part!r:.80}"
            )
    return listed


def _slice_as_written(chosen: slice) -> str:
    """Return a slice in the syntax of Python.

    >>> _slice_as_written(slice(None, None, 2)), _slice_as_written(slice(3, None))
    ('[::2]', '[3:]')
    """
    parts = ["" if part is None else str(part) for part in (chosen.start, chosen.stop, chosen.step)]
    return f"[{':'.join(parts if parts[2] else parts[:2])}]"


def _are_keys(given: Any) -> bool:
    """Return whether texts, or the path of a file of keys, were given, and no indexes."""
    if isinstance(given, str | os.PathLike | set | frozenset):
        return True
    first: Any = next(iter(given), None) if hasattr(given, "__len__") else None
    return isinstance(first.as_py() if hasattr(first, "as_py") else first, str)  # of pyarrow


def _chosen_rows(name: str, chosen: Any, total: int) -> Rows:
    """Return the indexes that the argument `name` chooses among `total` samples."""
    if isinstance(chosen, slice):
        return Rows.over(range(*chosen.indices(total)))
    if isinstance(chosen, range):
        ends = (chosen[0], chosen[-1]) if len(chosen) else ()
        if all(0 <= end < total for end in ends):
            return Rows.over(chosen)
    kinds = set(map(type, chosen)) if isinstance(chosen, list | tuple) else set()
    if bool in kinds and not kinds <= {bool, np.bool_}:
        raise TypeError(f"{name}: expected indexes or truth values, got both in {chosen!r:.80}")
    _refuse_foreign(name, chosen)
    array: npt.NDArray[Any] = np.asarray(chosen)
    # A mask is told from indexes first: as integers, it would choose samples 0 and 1.
    if array.dtype == np.bool_ and array.ndim == 1:
        if len(array) != total:
            raise ValueError(
                f"{name}: a mask has a truth value for each of {total} samples, got {len(array)}"
            )
        return Rows.mask(array)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise TypeError(
            f"{name}: expected indexes of samples or a truth value for each, in one dimension, got "
            f"{type(chosen).__name__} {chosen!r:.80}; get(key) and select_keys(keys) take keys, "
            "and numpy.load reads the indexes in a .npy file"
        )
    # Unsigned ones that int64 lacks would become negative.
    checked_positions(array[array >= total][:1], total)
    return Rows.of(checked_positions(array.astype(np.int64), total))


def _refuse_foreign(name: str, values: Any) -> None:
    """Raise TypeError for a view, or an array with masked values, which numpy would read."""
    if isinstance(values, Viewable):
        raise TypeError(
            f"{name}: expected indexes of samples, got a {type(values).__name__}; "
            "select_keys(view.keys) chooses the samples that have its keys"
        )
    if np.ma.is_masked(values):
        raise TypeError(
            f"{name}: expected an array without masked values, got {values!r:.80}; replace them, "
            "as by filled(False) in a mask, or leave them out by compressed()"
        )
