"""A list of shards as one sequence of samples; free of torch.

`ShardList.__getitem__` is the whole story of the library: a global index becomes a shard and a
place in it, the shard is opened (and fetched and indexed before, where need be), its fields are
cut out of the memory map, and the transformations make of them what the caller wants.
"""

import operator
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Literal, Self, TypeGuard

from wids.base.threads import DaemonThreadPool
from wids.caching.cache import ShardCache
from wids.codecs.decode import Decoder, ErrorHandler, SampleDecoder
from wids.codecs.images import ImageDecoder
from wids.errors import DecodeError
from wids.log import logger, show_if_verbose
from wids.reading.display import Displayed
from wids.reading.heldshards import HeldShards
from wids.reading.locate import Locator
from wids.reading.manyfields import ManyFields
from wids.reading.oldattributes import OldAttributes
from wids.reading.openshard import OpenShard, Places, while_reading
from wids.reading.openshards import OpenShards, default_max_open_shards
from wids.reading.rangeshard import (
    MOST_SHARDS_AT_ONCE,
    read_samples,
)
from wids.reading.readahead import ReadAhead
from wids.reading.streams import note_decoded_field, wrap_in_streams
from wids.reading.travel import let_views_travel
from wids.specs.naming import name_of
from wids.specs.sources import load_spec
from wids.tar.grouping import Grouping, KeyRule
from wids.tar.sidecar import IndexRules

__all__ = ["ShardList"]

Sample = dict[str, Any]
Transformation = Callable[[Any], Any]

# 0.1.11 knew "PIL" alone; it stays the default, and what programs for it get.
IMAGE_MODES = ("PIL", "numpy", "torch")
RAW_KINDS = ("bytes", "memoryview")
_HOT = ("_copies", "_fields", "_locate", "_raw_kind", "_transformations")

let_views_travel()  # here, as a spawned worker makes no dataset but unpickles one


class ShardList(HeldShards, ManyFields, OldAttributes, Displayed):
    """A sequence of samples over a list of tar shards, read at random.

    A sample is a dict of fields by extension (`.jpg`, `.cls`), plus `__key__`, `__index__` (its
    global number), `__shard__` (the shard's URL), `__shardindex__` (its place in the shard) and
    `__dataset__`.

    Args:
        shards: Path or URL of a JSON spec, or an open file that holds one; a folder, glob, brace
            pattern or single shard; or a list of `{"url", "nsamples"}` dicts, `(url, nsamples)`
            pairs, paths and URLs. Shards without `nsamples` are fetched and counted first.
        cache_size: Bound of the cache folder in bytes; None for none.
        shared: Trust everyone who can write to the cache folder; without, a folder that another
            user could write to is refused.
        cache_dir: Cache folder; by default `WIDS_CACHE`, else the user's cache folder.
        lru_size: Shards to keep open (mapped) at most; by default as many as the limit of
            descriptors allows.
        dataset_name: Name to use instead of the spec's, or that of the file or folder where it
            has none.
        localname: Maps a URL to the path where its shard lies, or is to be put, instead of the
            cache folder.
        transformations: What makes the sample of the raw fields. "PIL", "numpy" and "torch" decode
            every field by its extension, images to PIL images, arrays or tensors; so does an
            `ImageDecoder`, for images at a size. "bytes" and "memoryview" leave fields raw, copied
            or not. A callable or a list of them gets the sample dict with fields as binary
            streams, and what the last returns is the sample; with [] they stay streams. (After one
            in a list that decodes come decoded fields.)
        decoders: Where fields are decoded: other functions for some extensions, as for
            `SampleDecoder`.
        on_error: Where fields are decoded: what answers one that cannot be, as for `SampleDecoder`:
            "raise", "collect", placeholders by extension, or a function.
        keep: Never evict the shards of this dataset from the cache.
        base: Folder or URL that relative URLs count from; by default the spec's own base, then
            the folder it lies in.
        options: Top-level keys that replace those of the JSON.
        fields: Extensions to read; all by default. Others are not touched.
        key_rule: "first_dot" (`a.seg.png` is field `.seg.png` of `a`) or "last_dot".
        grouping: "adjacent" (members of a sample follow each other) or "shard" (they may lie
            anywhere in it).
        concatenated: Read the archives that follow behind the end of the first in a shard; without,
            they are an error.
        allow_pipe: Permit `pipe:` URLs, which run a command.
        allow_pickle: Permit fields that run code when decoded (`.pkl`, pickled `.pth`).
        allow_local: Permit a spec from a server to name files of this machine.
        remote: "whole" fetches a shard when its first sample is read. "range" reads samples of
            remote shards where they lie, by byte range, through the sidecar beside each (or at
            the URL that the spec gives as `index`): for looking into a dataset. A shard without
            sidecar, or on a server without byte ranges, is fetched whole all the same.

    Raises:
        SpecError: The spec is missing or malformed.
        FetchError: A URL could not be fetched.

    See `wids.ShardListDataset` for an example: it is this class, and a torch `Dataset`.
    """

    # What the hot path looks up. In a class with cached properties Python 3.11 takes far longer to
    # find attributes that are not in slots.
    __slots__ = (*_HOT, "_opened")

    def __init__(
        self,
        shards: Any,
        *,
        cache_size: int | None = None,
        cache_dir: str | os.PathLike[str] | None = None,
        lru_size: int | None = None,
        dataset_name: str | None = None,
        localname: Callable[[str], str | os.PathLike[str]] | None = None,
        transformations: str | Transformation | Sequence[str | Transformation] = "PIL",
        decoders: Mapping[str, Decoder | None] | None = None,
        on_error: str | Mapping[str, Any] | ErrorHandler = "raise",
        keep: bool = False,
        base: str | os.PathLike[str] | None = None,
        options: Mapping[str, Any] | None = None,
        fields: Collection[str] | None = None,
        key_rule: KeyRule = "first_dot",
        grouping: Grouping = "adjacent",
        concatenated: bool = False,
        allow_pipe: bool = False,
        allow_pickle: bool = False,
        allow_local: bool = False,
        shared: bool = False,
        remote: Literal["whole", "range"] = "whole",
    ) -> None:
        show_if_verbose()
        if remote not in ("whole", "range"):  # a set would ask for a hash
            raise ValueError(f'remote: expected "whole" or "range", got {remote!r}')
        spec = load_spec(
            shards, base=base, options=options, allow_local=allow_local, cache_dir=cache_dir
        )
        self.base = spec.base
        self.dataset_name = dataset_name or spec.name or name_of(shards, spec.shards.urls)
        self.cache = ShardCache(
            cache_dir,
            cache_size=cache_size,
            keep=keep,
            allow_pipe=allow_pipe,
            localname=localname,
            shared=shared,
        )
        self._header = spec.header | {"name": spec.name}
        self._index_rules = IndexRules(
            key_rule=key_rule, grouping=grouping, concatenated=concatenated
        )
        # Made at once, so that a slip in the settings is found when the dataset is opened.
        self._decoder = SampleDecoder(
            allow_pickle=allow_pickle, decoders=decoders, on_error=on_error
        )
        self._by_range = remote == "range" and localname is None
        self._fields = _checked_fields(fields)
        self.transformations = transformations
        if not self._decodes and (decoders or on_error != "raise"):
            raise ValueError(
                "decoders and on_error are for fields that the dataset decodes, got "
                f"transformations={transformations!r}; give them to the SampleDecoder in it, or "
                'decode by "PIL", "numpy", "torch" or an ImageDecoder'
            )
        # For 0, too: a dataset that may keep no shard open could not read one.
        self.lru_size = lru_size or default_max_open_shards()
        self._opened = OpenShards(self.lru_size, self._open_shard)
        self._ahead = None
        self._read_ahead = ReadAhead()
        # Last but one: to count means to open shards, for which all else must stand.
        self.shards = self._counted(spec.shards)
        self._locate = Locator(self.shards.nsamples)
        logger.info("%s", self.data_info)

    # What a sample is.

    def __getitem__(self, index: int) -> Any:
        """Return the sample with a global index; a negative one counts from the end.

        Raises:
            IndexError: There is no such sample; the message names index and length.
            SampleCountError: The shard holds another number of samples than the spec says.
            ShardFormatError: The shard is no tar, or breaks off.
            FetchError: The shard could not be fetched, or is not what the spec promised.
            DecodeError: A field could not be decoded.
        """
        # The hot path: a call less is worth a few lines twice.
        locate = self._locate
        if type(index) is not int or not 0 <= index < locate.total:
            index = locate.position(operator.index(index))
        shard_of = locate.shard_of  # in two steps: what is called at once is looked up as a method
        opened = self._opened[shard_of(index)]
        opened.uses += 1
        local_index = index - opened.start
        sample = opened.shard.read(local_index, self._fields, self._copies)
        sample["__dataset__"] = opened.dataset
        sample["__index__"] = index
        sample["__shard__"] = opened.url
        sample["__shardindex__"] = local_index
        if self._transformations or self._raw_kind is None:
            return self._transformed(sample)
        return sample

    def _finished(self, sample: Sample, opened: OpenShard, local_index: int) -> Any:
        """Make of raw fields what the caller wants."""
        sample["__dataset__"] = opened.dataset
        sample["__index__"] = opened.start + local_index
        sample["__shard__"] = opened.url
        sample["__shardindex__"] = local_index
        return self._transformed(sample)

    def _transformed(self, sample: Any) -> Any:
        transformations = self._transformations
        if self._raw_kind is None and not _takes_views(transformations):
            wrap_in_streams(sample)
        label = sample["__index__"], sample["__key__"], sample["__shard__"]
        try:
            for transformation in transformations:
                sample = transformation(sample)
        except DecodeError:  # says so itself
            raise
        except Exception as error:
            error.add_note(while_reading(*label))
            note_decoded_field(error)
            raise
        return sample

    def __getitems__(self, indexes: Sequence[int]) -> list[Any]:
        """Return the samples of a batch, in the order asked for; torch's DataLoader calls this.

        They are read in the order in which they lie on disk, so that a batch drawn from few
        shards opens each of them once. Every sample is what `self[index]` gives, in a subclass
        that overrides `__getitem__` too.

        Raises:
            IndexError: One of them is out of range.
        """
        # All of them first, so that an index out of range fails before anything is fetched.
        wanted = [self._locate.position(operator.index(index)) for index in indexes]
        places = sorted(range(len(wanted)), key=wanted.__getitem__)
        samples: list[Any] = [None] * len(wanted)
        # A subclass that overrides one method must see its effect in batches, too.
        if type(self).__getitem__ is ShardList.__getitem__:
            for place, sample in zip(places, self._read_sorted(sorted(wanted)), strict=True):
                samples[place] = sample
        else:
            for place in places:
                samples[place] = self[wanted[place]]
        return samples

    def _read_sorted(self, indexes: list[int]) -> Iterator[Any]:
        """Read a batch that is in the order of storage, shard by shard."""
        if self._by_range:
            self._open_side_by_side(indexes)
        for groups in self._by_shard(indexes):
            if self._by_range or self._spares:
                yield from self._read_by_range(groups)
                continue
            copies = self._copies
            with self._read_ahead.batch(groups, self._fields):
                for opened, places in groups:
                    read = opened.shard.read
                    for place in places:
                        yield self._finished(read(place, self._fields, copies), opened, place)

    def _open_side_by_side(self, indexes: list[int]) -> None:
        """Open the shards of a batch: each needs a sidecar, and to fetch one takes a round trip."""
        shard_indexes = set(map(self._locate.shard_of, indexes))
        closed = [number for number in sorted(shard_indexes) if number not in self._opened]
        # More than may be open at once would only close each other again.
        if len(closed) > 1:
            with DaemonThreadPool(MOST_SHARDS_AT_ONCE, "wids-shards") as crew:
                list(crew.map(self._opened.__getitem__, closed[: self._opened.limit]))

    def _by_shard(self, indexes: list[int]) -> Iterator[list[Places]]:
        """Yield the shards that hold ascending indexes, with the places in each.

        They come as a list of as many as may be open at once; mostly that is all of them.
        """
        groups: list[Places] = []
        stop = 0
        for index in indexes:
            if index >= stop:
                if len(groups) == self._opened.limit:
                    yield groups
                    groups = []
                shard_index = self._locate.shard_of(index)
                stop = int(self._locate.ends[shard_index])
                opened = self._opened[shard_index]
                opened.uses += 1
                groups.append((opened, []))
            groups[-1][1].append(index - opened.start)
        yield groups

    def _read_by_range(self, groups: list[Places]) -> Iterator[Any]:
        """Read a batch with the requests to remote shards running side by side."""
        flat = [(opened, place) for opened, places in groups for place in places]
        requests = [(opened.shard, place) for opened, place in flat]
        raw = read_samples(requests, self._fields, copy=self._copies)
        for sample, (opened, place) in zip(raw, flat, strict=True):
            yield self._finished(sample, opened, place)

    @property
    def wanted_fields(self) -> tuple[str, ...] | None:
        """The extensions that are read; None for all."""
        return self._fields

    @property
    def serves_fields(self) -> bool:
        """Whether a batch may be read field by field, and is the same as sample by sample.

        It may where fields stay raw or are decoded and nothing else is done to a sample.
        """
        own = type(self).__getitem__ is ShardList.__getitem__ and not self._by_range
        if self._raw_kind is not None:
            return own and not self._transformations
        decoders = [t for t in self._transformations if isinstance(t, SampleDecoder)]
        # What a decoder collects of errors belongs to the whole sample.
        alone = len(self._transformations) == 1 == len(decoders)
        return own and alone and decoders[0].on_error != "collect"

    def __len__(self) -> int:
        return self._locate.total

    def __iter__(self) -> Iterator[Any]:
        # Not inherited from the sequence protocol, which would ask for one sample beyond the end.
        return (self[index] for index in range(len(self)))

    @property
    def transformations(self) -> list[Transformation]:
        """The callables that a raw sample passes through, in order; may be assigned to."""
        return self._transformations

    @transformations.setter
    def transformations(
        self, transformations: str | Transformation | Sequence[str | Transformation]
    ) -> None:
        self._raw_kind: str | None = None
        if isinstance(transformations, str) and transformations in RAW_KINDS:
            self._raw_kind, transformations = transformations, []
        elif isinstance(transformations, str) or not isinstance(transformations, Sequence):
            transformations = [transformations]
        self._copies = self._raw_kind == "bytes"
        self._decodes = any(_is_decoding(each) for each in transformations)
        self._transformations = [self._transformation(each) for each in transformations]

    def add_transform(self, transformation: Transformation) -> Self:
        """Append a callable to the transformations; returns the dataset, so that calls chain."""
        self._transformations.append(transformation)
        return self

    def _transformation(self, transformation: str | Transformation) -> Transformation:
        if _is_decoding(transformation):
            return self._decoder.replace(images=transformation)
        if not callable(transformation):
            raise TypeError(
                f"transformations: expected a callable or one of {IMAGE_MODES + RAW_KINDS}, "
                f"got {transformation!r}"
            )
        return transformation

    @property
    def header(self) -> dict[str, Any]:
        """The top-level keys of the spec besides its shards; `name` is None where it has none."""
        return dict(self._header)

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in _HOT} | super().__getstate__()

    def __setstate__(self, state: dict[str, Any]) -> None:
        rest = dict(state)
        for name in _HOT:
            setattr(self, name, rest.pop(name))
        super().__setstate__(rest)


def _takes_views(transformations: Sequence[Transformation]) -> bool:
    """Tell whether the first of them reads memoryviews; whatever users wrote expects streams."""
    return bool(transformations) and isinstance(transformations[0], SampleDecoder)


def _is_decoding(transformation: Any) -> TypeGuard[str | ImageDecoder]:
    """Tell whether a transformation names a way to decode fields, with the dataset's settings."""
    if isinstance(transformation, str):
        return transformation in IMAGE_MODES
    return isinstance(transformation, ImageDecoder)


def _checked_fields(fields: Collection[str] | None) -> tuple[str, ...] | None:
    if fields is None:
        return None
    fields = (fields,) if isinstance(fields, str) else tuple(fields)
    for extension in fields:
        if not extension.startswith("."):
            raise ValueError(f"fields: an extension starts with a dot, got {extension!r}")
    return fields
