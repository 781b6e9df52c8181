"""Importer of Hugging Face `datasets`, with undecoded images and sound, and class names."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from wids.base.omissions import Omissions
from wids.base.optional import load
from wids.importing.layout import ColumnMapping
from wids.importing.options import Imported, ImportOptions, choose_split
from wids.importing.tables import MEDIA, Columns

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = ["is_saved_dataset", "load_saved", "open_huggingface", "open_saved"]

_FILES = ("dataset_info.json", "dataset_dict.json")  # `save_to_disk` leaves one of them


def is_saved_dataset(folder: Path) -> bool:
    """Return whether a folder was made by `Dataset.save_to_disk`."""
    return any((folder / name).is_file() for name in _FILES)


def load_saved(source: str, split: str | None = None) -> Any:
    """Load a dataset with the library `datasets`.

    Args:
        source: A folder written by `save_to_disk`, or a name for `datasets.load_dataset`.
        split: The split; required if there are several.

    Raises:
        ModuleNotFoundError: `datasets` is not installed.
        ValueError: There are several splits, and none or an unknown one is named; or `datasets`
            cannot load it.
    """
    datasets = load("datasets", "huggingface")
    saved = Path(source).is_dir() and is_saved_dataset(Path(source))
    try:
        dataset = datasets.load_from_disk(source) if saved else datasets.load_dataset(source)
    except (LookupError, TypeError) as error:
        # What `datasets` raises for a folder of its own that has no rows or was damaged.
        raise ValueError(
            f"{source}: the library datasets cannot load it ({type(error).__name__}: {error}); "
            "save it again, with at least one row"
        ) from error
    if not isinstance(dataset, dict):
        return dataset
    return dataset[choose_split(dataset, split, source)]


def open_saved(sources: Sequence[str], options: ImportOptions) -> Imported:
    """Open a dataset written by `save_to_disk`, or one that `load_dataset` finds by name.

    Args:
        sources: The folder or name.
        options: `split` names the split; `fields` and `key` as for `open_huggingface`.

    Raises:
        ModuleNotFoundError: `datasets` is not installed.
        ValueError: There are several splits, and none or an unknown one is named.
    """
    dataset = load_saved(sources[0], options.split)
    root = None if options.allow_outside else Path(sources[0]).expanduser()
    return _opened(dataset, options, root)


def open_huggingface(
    dataset: Any,
    fields: Mapping[str, str] | None = None,
    key: str | None = None,
    *,
    strict: bool = False,
    numbered: bool = False,
) -> Imported:
    """Open a `datasets.Dataset` or `IterableDataset`.

    Args:
        dataset: The dataset.
        fields: Column to extension, for columns that should not get the default extension.
        key: Column with the keys; by default `__key__`, `key` or `id`. Without such a column,
            samples are numbered.
        strict: Whether a row without a value for a field is an error.
        numbered: Whether samples are numbered, so that a column of keys is one like others.

    Returns:
        Samples. Pictures, sound and bytes become fields with the bytes that they have, arrays of
        a fixed rank `.npy`, a `ClassLabel` becomes `.cls`, all else one `.json`. The names of the
        classes are in the header, and so are description, licence, citation and home page.

    Raises:
        ValueError: A column has images inside a list or struct, or a named column does not exist.
    """
    options = ImportOptions(fields=fields or {}, key=key, strict=strict, rekeyed=numbered)
    return _opened(dataset, options, None)


def _opened(dataset: Any, options: ImportOptions, root: Path | None) -> Imported:
    """Open a dataset as `open_huggingface`, with files below `root` only if it is not None."""
    features = dataset.features
    if features is None:
        raise ValueError("the dataset does not know its columns; call resolve_features() first")
    omissions = Omissions(strict=options.strict)
    for name, feature in features.items():
        if type(feature).__name__ in MEDIA:
            # Decoding and encoding again would lose quality and take far longer.
            dataset = dataset.cast_column(name, type(feature)(decode=False))
    # A column of integers that is a class only by its name has no class names.
    columns = Columns.of_schema(features.arrow_schema, "the dataset")
    classes = columns.classes
    kinds = dict.fromkeys(columns.names, "plain") | columns.kinds
    layout = ColumnMapping(kinds, options, "the dataset", omissions)
    told = {
        "info": dataset.info.description,
        "license": dataset.info.license,
        "citation": dataset.info.citation,
        "homepage": dataset.info.homepage,
    }
    header = {name: text for name, text in told.items() if text}
    if classes:
        header["classes"] = next(iter(classes.values())) if len(classes) == 1 else classes
    total = len(dataset) if hasattr(dataset, "__len__") else None
    # Without a format, rows have Python values in place of the user's tensors.
    dataset = dataset.with_format(None)
    samples = _samples(dataset, columns, layout, root)
    return Imported(samples, header, total, omissions=omissions)


def _samples(
    dataset: Any, columns: Columns, layout: ColumnMapping, root: Path | None
) -> Iterator[dict[str, Any]]:
    for number, row in enumerate(dataset):
        values: dict[str, Any] = {}
        for name, cell in row.items():
            values |= columns.value(name, cell, Path(), f"the dataset: row {number}", root)
        yield layout.sample(number, values)
