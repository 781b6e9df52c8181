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

    The arguments below are those of wids 0.1.11. `wids.open` describes the others, which are its
    options: `fields`, `remote`, `allow_pickle` and so on.

    Args:
        shards: What `wids.open` opens, but for saved views: a spec, a folder, a pattern, a
            shard, or a list.
        cache_size: Bound of the cache folder in bytes; None for none.
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
        keep: Never evict the shards of this dataset from the cache.
        base: Folder or URL against which relative URLs are resolved; by default the spec's own
            base, then its folder.
        options: Top-level keys that replace those of the JSON.

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
