"""`ShardListDataset` as programs import it: a `torch.utils.data.Dataset` if torch is installed.

It imports torch, which takes seconds. `wids.open` and the command line never wait for that: they
use the class in `viewable`, which does all that this one does.
"""

from typing import TYPE_CHECKING, Any

import wids.tar.shard  # noqa: F401 (else each forked worker imports it for its first sample)
from wids.views import viewable

__all__ = ["ShardListDataset"]

if TYPE_CHECKING:
    from torch.utils.data import Dataset
else:
    try:
        from torch.utils.data import Dataset
    except ImportError:

        class Dataset:
            """Replacement for torch's class where torch is not installed."""

            def __class_getitem__(cls, _item: Any) -> type:
                return cls


class ShardListDataset(viewable.ShardListDataset, Dataset[Any]):  # type: ignore[misc]  # the `+` of views
    """A map-style dataset over tar shards: `len(dataset)`, `dataset[index]`.

    `wids.open` gives one, too, without importing torch, and also opens saved views.

    A slice, a list of indexes or a mask in place of the index gives a view; so do the methods
    `select`, `take` and the others of a `View`.

    A sample is a dict of fields by extension (`.jpg`, `.cls`), plus `__key__`, `__index__` (its
    global number), `__shard__` (the shard's URL), `__shardindex__` (its index in the shard) and
    `__dataset__`.

    Args:
        shards: Path or URL of a JSON spec or a pack, an open file that holds a spec, the dict that
            it was parsed to, or a `DatasetSpec`; a folder, glob, brace pattern or single shard; a
            list of `{"url", "nsamples"}` dicts, `(url, nsamples)` pairs, paths and URLs; or a list
            of specs. Shards without `nsamples` are fetched and counted first.
        cache_size: Bound of the cache folder in bytes; None for none.
        shared: Trust everyone who can write to the cache folder. Otherwise, a folder to which
            another user could write is refused.
        cache_dir: Cache folder; by default `WIDS_CACHE`, else the user's cache folder.
        lru_size: Largest number of shards to keep open (mapped); by default as many as the limit of
            descriptors allows.
        dataset_name: Name of the dataset; by default that of the spec, or of its file or folder.
        localname: Function from a URL to the path at which its shard is stored, in place of the
            cache folder.
        transformations: How a sample is made from its raw fields. "PIL", "numpy" and "torch" decode
            every field by its extension, images to PIL images, arrays or tensors; so does an
            `ImageDecoder`, with images at a size. "bytes" and "memoryview" leave fields raw, with
            or without a copy. A callable gets the sample dict with fields as binary streams and
            returns the sample; a list of callables is applied in order, and [] leaves streams. The
            names and an `ImageDecoder` may be in a list, too.
        decoders: Functions that decode some extensions, as for `SampleDecoder`.
        on_error: Handling of fields that cannot be decoded, as for `SampleDecoder`: "raise",
            "collect", placeholders by extension, or a function.
        keep: Never evict the shards of this dataset from the cache.
        base: Folder or URL against which relative URLs are resolved; by default the spec's own
            base, then its folder.
        options: Top-level keys that replace those of the JSON.
        fields: Extensions to read; all by default. Other fields are not read.
        key_rule: "first_dot" (`a.seg.png` is field `.seg.png` of `a`) or "last_dot"; by default
            that of the spec, else "first_dot".
        grouping: "adjacent" (members of a sample follow each other) or "shard" (they may be
            anywhere in the shard); by default that of the spec, else "adjacent".
        concatenated: Read archives that follow the first one in a shard, which otherwise are an
            error; by default as the spec says, else False.
        allow_pipe: Permit `pipe:` URLs, which run a command.
        allow_pickle: Permit fields that run code when decoded (`.pkl`, pickled `.pth`).
        allow_local: Permit a spec from a server to name files of this machine.
        remote: "whole" fetches a shard when its first sample is read. "range" reads single samples
            of remote shards by byte range, through the sidecar of each shard (its URL with `.widx`
            appended, or `index` in the spec). A shard without a sidecar, or on a server without
            byte ranges, is fetched whole. "auto" reads by range, and a `Loader` over this dataset,
            or its `as_iterable`, fetches whole shards ahead if this machine uses most of each and
            can keep them.
        memory: With remote="range", bound of the bytes of samples that a `Loader` requests ahead;
            by default 1/32 of the machine's memory, from 64 MiB to 1 GiB.
        access: "mmap" maps the files of shards. "pread" reads samples and batches by positional
            reads, which network file systems answer faster; a file that becomes shorter meanwhile
            is then an error, where a map would end the process. "auto" reads files on network file
            systems by position, as far as Linux tells, and maps all others.
        on_uncounted: Called with the URL and the error of a shard without `nsamples` that cannot be
            read; the shard then has no samples. By default the error is raised. This is for tools
            that show damaged datasets.

    Raises:
        SpecError: The spec is missing or malformed.
        FetchError: A URL could not be fetched.

    >>> import tempfile, wids
    >>> folder = tempfile.mkdtemp()
    >>> with wids.ShardWriter(f"{folder}/train-%03d.tar") as writer:
    ...     for key in ("0001", "0002"):
    ...         writer.write({"__key__": key, ".txt": f"text {key}", ".cls": 7})
    >>> dataset = wids.ShardListDataset(folder)
    >>> len(dataset), dataset[-1]["__key__"], dataset[-1][".txt"], dataset[-1][".cls"]
    (2, '0002', 'text 0002', 7)
    """
