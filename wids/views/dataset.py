"""`ShardListDataset`: a `ShardList` that is a `torch.utils.data.Dataset` if torch is installed.

`ShardList` does all the reading. The command line, the indexer and the web page use it directly, so
that they never wait for `import torch`, which takes seconds.
"""

from typing import TYPE_CHECKING, Any

from wids.views.viewable import ViewableShards

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


class ShardListDataset(ViewableShards, Dataset[Any]):  # type: ignore[misc]  # the `+` of views
    """A map-style dataset over tar shards: `len(dataset)`, `dataset[index]`.

    A slice, a list of indexes or a mask in place of the index gives a view; so do the methods
    `select`, `take` and the others of a `View`.

    Takes the arguments of `ShardList`, where they are described; the most used are

    Args:
        shards: Path or URL of a JSON spec; a folder, pattern or list of shards.
        transformations: "PIL" (default), "numpy", "bytes", "memoryview", a callable or a list.
        cache_dir: Folder for fetched shards.
        cache_size: Bound of that folder in bytes.
        fields: Extensions to read; all by default.

    >>> import tempfile, wids
    >>> folder = tempfile.mkdtemp()
    >>> with wids.ShardWriter(f"{folder}/train-%03d.tar") as writer:
    ...     for key in ("0001", "0002"):
    ...         writer.write({"__key__": key, ".txt": f"text {key}", ".cls": 7})
    >>> dataset = wids.ShardListDataset(folder)
    >>> len(dataset), dataset[-1]["__key__"], dataset[-1][".txt"], dataset[-1][".cls"]
    (2, '0002', 'text 0002', 7)
    """
