"""The JSON shard-spec: parsed, resolved, checked, held in columns, and written back.

A spec names the shards of a dataset and how many samples each holds:

    {"wids_version": 1,
     "name": "train",
     "shardlist": [{"url": "train-000.tar", "nsamples": 1000}, ...],
     "datasets": [{"source_url": "https://host/more.json"}, ...]}

`docs/spec-format.md` has it whole. Nothing here reads a file or a socket: whoever parses a spec
says how the documents that it refers to are read.
"""

import json
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from wids.errors import SpecError
from wids.specs import locations
from wids.specs.columns import BytesColumn, TextColumn
from wids.urls import is_local

__all__ = ["DatasetSpec", "ShardTable"]

MAX_NESTING = 8
MAX_COMPONENTS = 10_000
UNKNOWN = -1
_MOST_SAMPLES = 2**62

_HEX_DIGITS = {"md5sum": 32, "sha256": 64}
_CONTROL_CHARACTER = re.compile(r"[\x00-\x1f\x7f]")
# What a table keeps in columns of its own; other keys of a shard go into `extras`.
_COLUMNS = ("url", "nsamples", "filesize", "md5sum", "sha256")

Shard = dict[str, Any]
Read = Callable[[str], bytes]


class DatasetSpec:
    """A parsed shard-spec: what the dataset is called, and its table of shards.

    Attributes:
        shards: The table of shards, in order, with resolved URLs.
        name: The dataset's name, or None.
        base: What relative URLs were resolved against: a folder or URL, "" for the working
            directory.
        header: All other top-level keys of the JSON, as they were.

    >>> spec = DatasetSpec.parse('{"shardlist": [{"url": "a.tar", "nsamples": 2}]}', "/data/x.json")
    >>> spec.shards[0]
    {'url': '/data/a.tar', 'nsamples': 2}
    """

    def __init__(
        self,
        shards: Iterable[Shard],
        *,
        name: str | None = None,
        base: str = "",
        header: Mapping[str, Any] | None = None,
    ) -> None:
        self.shards = ShardTable(shards)
        self.name = name
        self.base = base
        self.header = dict(header or {})

    @classmethod
    def parse(
        cls,
        text: str | bytes,
        source: str = "",
        *,
        base: str | None = None,
        options: Mapping[str, Any] | None = None,
        read: Read | None = None,
        allow_local: bool = False,
    ) -> "DatasetSpec":
        """Parse the text of a JSON shard-spec.

        Args:
            text: The JSON.
            source: Where it came from, a path or URL; relative URLs count from its folder.
            base: Folder or URL that relative URLs count from instead; it wins over the JSON's own
                `base`.
            options: Top-level keys that replace those of the JSON.
            read: Reads the document at a URL; needed where `datasets` refer to other specs.
            allow_local: Let a spec that came from a server name files of this machine.

        Returns:
            The spec, its URLs resolved and its nested datasets laid end to end.

        Raises:
            SpecError: Anything is malformed; the message names source, shard, field and value.
        """
        parser = _Parser(read, allow_local=allow_local)
        document = _as_object(_load_json(text, source), source)
        return parser.dataset({**document, **(options or {})}, source, base)

    @classmethod
    def from_list(
        cls,
        shards: Iterable[Any],
        *,
        base: str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> "DatasetSpec":
        """Make a spec from a list of dicts, `(url, nsamples)` pairs, paths or URLs.

        Args:
            shards: `{"url": ..., "nsamples": ...}` dicts, pairs, or plain locations.
            base: Folder or URL that relative ones count from; the working directory by default.
            options: Top-level keys, as a JSON spec would have them.

        Raises:
            SpecError: One of them is malformed.

        >>> DatasetSpec.from_list([("a.tar", 3), "b.tar"]).shards[1]
        {'url': 'b.tar'}
        """
        source = "the list of shards"
        parser = _Parser(None, allow_local=True)
        rows = [_as_row(shard, source, number) for number, shard in enumerate(shards)]
        header = {key: value for key, value in (options or {}).items() if key != "name"}
        name = _checked_name(options or {}, source)
        resolved = parser.shards(rows, source, base or "")
        return cls(resolved, name=name, base=base or "", header=header)

    def to_json(self) -> str:
        """Write the spec as JSON v1, nested datasets laid out flat; `parse` reads it back.

        >>> print(DatasetSpec.from_list([("a.tar", 3)]).to_json())
        {
          "wids_version": 1,
          "shardlist": [
            {
              "url": "a.tar",
              "nsamples": 3
            }
          ]
        }
        """
        document: dict[str, Any] = {"wids_version": 1}
        if self.name is not None:
            document["name"] = self.name
        document |= {key: value for key, value in self.header.items() if key not in document}
        document["shardlist"] = list(self.shards)
        return json.dumps(document, indent=2)

    def __repr__(self) -> str:
        return f"DatasetSpec(name={self.name!r}, {len(self.shards)} shards)"


class ShardTable(Sequence[Shard]):
    """The shards of a spec: a read-only sequence of dicts, held in columns.

    A million shards take some tens of megabytes and no Python object each; a row is made when it
    is asked for.

    Attributes:
        urls: Location of each shard.
        nsamples: Samples in each; int64, shape `(len(table),)`, -1 where the spec does not say.
        filesize: Bytes of each; int64, shape `(len(table),)`, -1 where the spec does not say.

    >>> table = ShardTable([{"url": "a.tar", "nsamples": 2, "weight": 0.5}])
    >>> table[0]["weight"], table.nsamples.tolist()
    (0.5, [2])
    """

    def __init__(self, shards: Iterable[Shard]) -> None:
        rows = list(shards)
        self.urls: Sequence[str] = TextColumn(row["url"] for row in rows)
        self.nsamples = _counts(rows, "nsamples")
        self.filesize = _counts(rows, "filesize")
        self._digests = {
            field: BytesColumn(bytes.fromhex(row.get(field) or "") for row in rows)
            for field in _HEX_DIGITS
            if any(row.get(field) for row in rows)
        }
        self._extras = TextColumn(map(_extras_of, rows, range(len(rows))))

    def __len__(self) -> int:
        return len(self.urls)

    @overload
    def __getitem__(self, row: int) -> Shard: ...
    @overload
    def __getitem__(self, row: slice) -> Sequence[Shard]: ...
    def __getitem__(self, row: int | slice) -> Shard | Sequence[Shard]:
        if isinstance(row, slice):
            return [self[i] for i in range(*row.indices(len(self)))]
        shard: Shard = {"url": self.urls[row]}
        for field, column in (("nsamples", self.nsamples), ("filesize", self.filesize)):
            if (count := int(column[row])) != UNKNOWN:
                shard[field] = count
        for field, digests in self._digests.items():
            if digest := digests[row]:
                shard[field] = digest.hex()
        extras = self._extras[row]
        return {**shard, **json.loads(extras)} if extras else shard

    def __iter__(self) -> Iterator[Shard]:
        return (self[row] for row in range(len(self)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"ShardTable({len(self)} shards)"

    def with_nsamples(self, nsamples: npt.NDArray[np.int64]) -> "ShardTable":
        """Return the same table with other sample counts, once the shards have been counted."""
        table = object.__new__(ShardTable)
        table.__dict__ = {**self.__dict__, "nsamples": nsamples}
        return table


class _Parser:
    """What holds for one spec and all that it refers to."""

    def __init__(self, read: Read | None, *, allow_local: bool) -> None:
        self._read = read
        self._documents: dict[str, bytes] = {}
        self._num_components = 0
        self._total = 0
        self._allow_local = allow_local

    def dataset(
        self, document: dict[str, Any], source: str, base: str | None, depth: int = 0
    ) -> DatasetSpec:
        """Parse one document: its own shards first, then those of its `datasets`."""
        _check_version(document, source)
        if base is None:
            folder = locations.folder_of(source)
            base = self._own_base(document, folder, source) or folder
        rows = list(self._own_shards(document, source, base))
        for number, component in enumerate(_as_list(document, "datasets", source)):
            where = f"{source}: datasets[{number}]"
            rows += self._component(_as_object(component, where), where, base, depth + 1)
        if not rows:
            raise SpecError(
                f"{source}: holds no shards; expected a 'shardlist' or 'datasets' with some"
            )
        name = _checked_name(document, source)
        parsed = ("name", "shardlist", "datasets", "base", "base_path")
        header = {key: value for key, value in document.items() if key not in parsed}
        return DatasetSpec(rows, name=name, base=base, header=header)

    def _own_shards(self, document: dict[str, Any], source: str, base: str) -> Iterator[Shard]:
        rows = [
            _as_row(shard, source, number)
            for number, shard in enumerate(_as_list(document, "shardlist", source))
        ]
        inherited = _inherited(weight=document.get("weight"), name=document.get("name"))
        return (inherited | row for row in self.shards(rows, source, base))

    def _component(
        self, component: dict[str, Any], where: str, base: str, depth: int
    ) -> Iterator[Shard]:
        """Parse one entry of `datasets`: its shards inline, or the spec at its `source_url`."""
        if depth > MAX_NESTING:
            raise SpecError(f"{where}: datasets nest more than {MAX_NESTING} deep")
        self._num_components += 1
        if self._num_components > MAX_COMPONENTS:
            raise SpecError(f"{where}: more than {MAX_COMPONENTS} datasets in all")
        source_url = component.get("source_url")
        own_base = self._own_base(component, base, where)
        if source_url is None:
            spec = self.dataset(component, where, own_base or base, depth)
            name = component.get("name")
        else:
            _check_location(source_url, where, "source_url")
            source_url = locations.join(base, source_url)
            self._refuse_local(source_url, where, "source_url")
            document = _as_object(_load_json(self._fetch(source_url, where), source_url), where)
            spec = self.dataset(document, source_url, own_base, depth)
            name = component.get("name") or spec.name
        weight = component.get("weight", spec.header.get("weight"))
        inherited = _inherited(weight=weight, source_url=source_url, dataset=name)
        return (inherited | shard for shard in spec.shards)

    def shards(self, rows: list[Shard], source: str, base: str) -> Iterator[Shard]:
        """Check shards and resolve their URLs."""
        for number, row in enumerate(rows):
            _check_shard(row, source, number)
            self._total += row.get("nsamples") or 0
            if self._total >= _MOST_SAMPLES:
                raise SpecError(
                    f"{source}: shard {number}: nsamples: expected fewer than {_MOST_SAMPLES} "
                    f"samples in all, found {self._total}"
                )
            url = locations.join(base, row["url"])
            # Below a folder that the user chose, a downloaded spec may name what it likes.
            if not _lies_below(url, base, row["url"]):
                self._refuse_local(url, source, f"shard {number}: url")
            if (sidecar := row.get("index")) is not None:
                _check_location(sidecar, f"{source}: shard {number}", "index")
                row["index"] = locations.join(base, sidecar)
            yield {**row, "url": url}

    def _own_base(self, document: dict[str, Any], folder: str, where: str) -> str | None:
        """Find the base that a document names itself; None where it names none."""
        base = document.get("base")
        if base in (None, ""):
            base = document.get("base_path")
        if base in (None, ""):
            return None
        _check_location(base, where, "base")
        joined = locations.join(folder, base)
        self._refuse_local(joined, where, "base")
        return joined

    def _refuse_local(self, location: str, source: str, field: str) -> None:
        """Keep what came from a server from pointing into this machine."""
        if is_local(location) and not (is_local(source) or self._allow_local):
            raise SpecError(
                f"{source}: {field}: {location!r} is a file of this machine, which a spec from a "
                "server may not name; allow_local=True permits it"
            )

    def _fetch(self, url: str, where: str) -> bytes:
        if self._read is None:
            raise SpecError(f"{where}: source_url: {url!r} cannot be read from here")
        if url not in self._documents:
            self._documents[url] = self._read(url)
        return self._documents[url]


def _lies_below(url: str, base: str, given: str) -> bool:
    """Tell whether a relative URL stayed inside a base folder that the user chose."""
    return (
        bool(base) and not given.startswith(("/", "~")) and url.startswith(base.rstrip("/") + "/")
    )


def _load_json(text: str | bytes, source: str) -> Any:
    try:
        return json.loads(text)
    except RecursionError:
        raise SpecError(f"{source}: is nested too deeply to be a shard-spec") from None
    except ValueError as error:  # JSONDecodeError and UnicodeDecodeError
        start = text[:60]
        raise SpecError(f"{source}: is no JSON ({error}); it starts with {start!r}") from None


def _as_object(document: Any, where: str) -> dict[str, Any]:
    """Take a JSON object as it is, and a bare list of shards as the `shardlist` of one."""
    if isinstance(document, list):
        return {"shardlist": document}
    if not isinstance(document, dict):
        raise SpecError(f"{where}: expected a JSON object or list, found {document!r:.60}")
    return document


def _as_list(document: dict[str, Any], field: str, source: str) -> list[Any]:
    value = document.get(field)
    if value is None:
        return []
    if not isinstance(value, list):
        raise SpecError(f"{source}: {field}: expected a list, found {value!r:.60}")
    return value


def _as_row(shard: Any, source: str, number: int) -> Shard:
    """Take a dict as it is, a `(url, nsamples)` pair or a location as what they mean."""
    if isinstance(shard, Mapping):
        row = dict(shard)
    elif isinstance(shard, list | tuple) and len(shard) == 2:
        row = {"url": shard[0], "nsamples": shard[1]}
    elif isinstance(shard, str) or hasattr(shard, "__fspath__"):
        row = {"url": shard}
    else:
        raise SpecError(
            f"{source}: shard {number}: expected an object with 'url' and 'nsamples', "
            f"found {shard!r:.60}"
        )
    if hasattr(row.get("url"), "__fspath__"):
        row["url"] = row["url"].__fspath__()
    return row


def _checked_name(document: Mapping[str, Any], source: str) -> str | None:
    name = document.get("name")
    if name is not None and not isinstance(name, str):
        raise SpecError(f"{source}: name: expected a string, found {name!r}")
    return name


def _check_version(document: dict[str, Any], source: str) -> None:
    version = document.get("wids_version", 1)
    if version != 1 or isinstance(version, bool):
        raise SpecError(
            f"{source}: wids_version: expected 1, found {version!r}; a newer wids may read it"
        )


def _check_shard(row: Shard, source: str, number: int) -> None:
    where = f"{source}: shard {number}"
    if "url" not in row:
        raise SpecError(f"{where}: url: is missing; the shard says {row!r:.80}")
    _check_location(row["url"], where, "url")
    for field in ("nsamples", "filesize"):
        if row.get(field) is not None:
            row[field] = _checked_count(row[field], where, field)
    _check_weight(row.get("weight"), where)
    for field, ndigits in _HEX_DIGITS.items():
        digest = row.get(field)
        if digest not in (None, "") and not (
            isinstance(digest, str) and re.fullmatch(f"[0-9a-fA-F]{{{ndigits}}}", digest)
        ):
            raise SpecError(
                f"{where}: {field}: expected {ndigits} hex digits, found {digest!r:.80}"
            )


def _check_weight(weight: Any, where: str) -> None:
    number = isinstance(weight, int | float | np.number) and not isinstance(weight, bool)
    if weight is not None and not (number and 0 <= weight < float("inf")):
        raise SpecError(f"{where}: weight: expected a number from 0 on, found {weight!r:.80}")


def _check_location(location: Any, where: str, field: str) -> None:
    if not isinstance(location, str) or not location:
        raise SpecError(f"{where}: {field}: expected a path or URL, found {location!r:.80}")
    if _CONTROL_CHARACTER.search(location):
        raise SpecError(f"{where}: {field}: {location!r:.80} holds control characters")
    try:
        location.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise SpecError(f"{where}: {field}: {location!r:.80} is no text") from None


def _checked_count(count: Any, where: str, field: str) -> int:
    try:
        value = operator.index(count)  # lets NumPy integers in, keeps floats and strings out
    except TypeError:
        value = UNKNOWN
    if isinstance(count, bool) or not 0 <= value < 2**62:
        raise SpecError(f"{where}: {field}: expected a count from 0 on, found {count!r:.80}")
    return value


def _inherited(**fields: Any) -> Shard:
    return {field: value for field, value in fields.items() if value is not None}


def _counts(rows: list[Shard], field: str) -> npt.NDArray[np.int64]:
    found = map(dict.get, rows, repeat(field))
    return np.fromiter(
        (UNKNOWN if count is None else count for count in found), np.int64, len(rows)
    )


def _extras_of(row: Shard, number: int) -> str:
    extras = {key: value for key, value in row.items() if key not in _COLUMNS}
    if not extras:
        return ""
    try:
        return json.dumps(extras, default=_as_json)
    except (TypeError, ValueError) as error:
        raise SpecError(
            f"shard {number}: {row['url']!r}: expected values that JSON can hold ({error}), "
            f"found {extras!r:.80}"
        ) from None


def _as_json(value: Any) -> Any:
    """Turn what a program puts into a list of shards into what JSON has for it."""
    if hasattr(value, "__fspath__"):
        return value.__fspath__()
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"no {type(value).__name__} in JSON")
