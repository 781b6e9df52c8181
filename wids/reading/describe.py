"""Display of a dataset: its `repr`, its page in notebooks, and single samples.

A shard is fetched only if one of its samples is requested.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from wids.base.text import clean, format_nbytes
from wids.base.urls import display_url, is_local, local_path
from wids.codecs.formats import field_kind, format_suffix
from wids.reading.samplesequence import is_near
from wids.specs.shardtable import UNKNOWN
from wids.tar.grouping import split_name
from wids.tar.tarscan import first_members

if TYPE_CHECKING:
    from wids.display.notebook import DatasetFacts, SampleView
    from wids.reading.samplesequence import SampleSequence
    from wids.specs.shardtable import ShardTable

__all__ = ["html_page", "nbytes_of", "page_of", "summary_line", "view_sample"]

# Few samples, because they are read for every `repr` in a notebook.
GRID_SAMPLES = 12
GRID_FIELD_NBYTES = 8 << 20  # larger fields are left out of the grid, unread
_LOSSY = {".jpeg", ".jpg"}  # which change values slightly, so they cannot hold classes
MAX_STATS = 10_000  # files whose size is read, which takes a tenth of a second
# More headers than a sample has. A `repr` must not read a whole shard of one sample.
PEEKED_HEADERS = 32


def summary_line(dataset: Any) -> str:
    """Return the `repr` of a dataset."""
    facts = _facts(dataset)
    counts = ((facts.nsamples, "sample"), (facts.nshards, "shard"))
    parts = [
        repr(facts.name),
        *(f"{count} {noun}{'s' * (count != 1)}" for count, noun in counts),
    ]
    if facts.nbytes is not None:
        parts.append(format_nbytes(facts.nbytes))
    if facts.fields:
        parts.append(" ".join(clean(name, 40) for name, _ in facts.fields))
    choice = getattr(dataset, "remote_choice", None)
    if choice is not None:
        parts.append(f"remote: {choice}")
    return f"{facts.kind}({', '.join(parts)})"


def html_page(dataset: Any) -> str:
    """Return the HTML that a notebook shows for a dataset."""
    return page_of(dataset, _facts(dataset))


def page_of(dataset: SampleSequence, facts: DatasetFacts) -> str:
    """Return the HTML that a notebook shows for any sequence of samples.

    Args:
        dataset: The sequence.
        facts: Facts of the dataset for the page.
    """
    from wids.display.notebook import dataset_html

    first = range(min(GRID_SAMPLES, len(dataset)))
    near = [index for index in first if is_near(dataset, index)]
    note = None
    if len(near) < len(first):
        note = "The first shard is not here yet; show(0) fetches it and shows a sample."
    samples: list[SampleView | Exception] = []
    for index in near:
        try:
            samples.append(view_sample(dataset, index, GRID_FIELD_NBYTES))
        except Exception as error:  # noqa: BLE001 (a damaged shard is shown as such)
            samples.append(error)
    return dataset_html(facts, samples, note)


def view_sample(dataset: SampleSequence, index: int, most_nbytes: int | None = None) -> SampleView:
    """Return the view of a sample, with its fields as they are stored.

    Args:
        dataset: The dataset.
        index: Global index; a negative one counts from the end.
        most_nbytes: Leave out larger fields; None for no limit.

    Raises:
        IndexError: There is no such sample.
        WidsError: Its shard cannot be read.
    """
    from wids.display.notebook import SampleView

    fields = None
    if most_nbytes is not None:
        sizes = dataset.field_sizes(index)
        fields = tuple(extension for extension, size in sizes.items() if size <= most_nbytes)
    sample = dataset.read_raw(index, fields)
    sample["__shard__"] = display_url(sample["__shard__"])
    del sample["__dataset__"]  # the caller knows the dataset
    # To find the names may take requests to a server, which a sample without classes need not wait
    # for.
    extensions = (name for name in sample if name.startswith("."))
    named = any(map(_may_hold_classes, extensions))
    return SampleView.of(sample, dataset.class_names if named else None)


def _may_hold_classes(extension: str) -> bool:
    """Return whether a field is the number of a class, or may be a class-index mask."""
    from wids.display.pixels import names_labels

    kind = field_kind(extension)
    lossy = format_suffix(extension) in _LOSSY
    return kind == "class" or names_labels(extension) or (kind == "image" and not lossy)


def _facts(dataset: Any) -> DatasetFacts:
    from wids.display.notebook import DatasetFacts

    return DatasetFacts(
        kind=type(dataset).__name__,
        name=display_url(str(dataset.dataset_name)),
        nsamples=len(dataset),
        nshards=len(dataset.shards),
        nbytes=nbytes_of(dataset.shards, look=dataset.cache.localname is None),
        fields=_fields_of_first_sample(dataset),
    )


def _fields_of_first_sample(dataset: Any) -> list[tuple[str, int]] | None:
    """Return the fields of the first sample, if its shard is a local file.

    For a remote shard nothing is returned, even if it is in the cache, because loaders such as
    Grain's compare the `repr` of a dataset with that of an earlier run.
    """
    # If members of a sample may be anywhere, the first headers do not show a whole sample.
    if not len(dataset) or dataset.index_rules["grouping"] != "adjacent":
        return None
    first_shard = int((dataset.shards.nsamples > 0).argmax())
    url = dataset.shards.urls[first_shard]
    if not is_local(url) or dataset.cache.localname is not None:
        return None
    first_key, fields = None, []
    try:
        path = dataset.cache.starting_folder.path_of(url)
        # Of a compressed tar, or one with unusual headers, there are none.
        for name, size in first_members(path, PEEKED_HEADERS):
            parts = split_name(name, dataset.index_rules["key_rule"])
            if isinstance(parts, str):
                continue
            if first_key not in {None, parts[0]}:
                break
            first_key = parts[0]
            fields.append((parts[1].decode("utf-8", "surrogateescape"), size))
    except (OSError, ValueError):  # missing or no tar; reading a sample raises the error
        return None
    wanted = dataset.pipeline.fields
    return [field for field in fields if wanted is None or field[0] in wanted]


def nbytes_of(shards: ShardTable, *, look: bool = True) -> int | None:
    """Return the total size of all shards, from the spec or from local files.

    Args:
        shards: The shards.
        look: Whether to read the sizes of local files that the spec does not state.

    Returns:
        The sum; None if some sizes are unknown, or there are too many files.
    """
    unknown = (shards.filesize == UNKNOWN).nonzero()[0].tolist()
    urls = [shards.urls[row] for row in unknown[: MAX_STATS + 1]]
    if urls and (not look or len(urls) > MAX_STATS or not all(map(is_local, urls))):
        return None
    try:
        found = sum(local_path(url).stat().st_size for url in urls)
    except OSError:
        return None
    return found + int(shards.filesize[shards.filesize != UNKNOWN].sum())
