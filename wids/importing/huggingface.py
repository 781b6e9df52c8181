"""Importer of Hugging Face `datasets`, with undecoded images and sound, and class names."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from wids.base.omissions import Omissions
from wids.base.optional import load
from wids.codecs.formats import encode_field
from wids.importing.layout import Blob, ColumnMapping, is_label, media_columns, sniffed
from wids.importing.options import Imported, ImportOptions, choose_split

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = ["is_saved_dataset", "load_saved", "open_huggingface", "open_saved"]

_FILES = ("dataset_info.json", "dataset_dict.json")  # `save_to_disk` leaves one of them
_BYTES = ("Image", "Audio", "Video", "Pdf")
_ARRAYS = ("Array2D", "Array3D", "Array4D", "Array5D")


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
    datasets = load("datasets", "huggingface")
    features = dataset.features
    if features is None:
        raise ValueError("the dataset does not know its columns; call resolve_features() first")
    kinds = {name: _kind_of(name, feature) for name, feature in features.items()}
    omissions = Omissions(strict=options.strict)
    for name, kind in kinds.items():
        if type(features[name]).__name__ in _BYTES:
            # Decoding and encoding again would lose quality and take far longer.
            dataset = dataset.cast_column(name, getattr(datasets, kind)(decode=False))
    # A column of integers that is a class only by its name has no class names.
    named = (name for name in features if type(features[name]).__name__ == "ClassLabel")
    classes = {name: features[name].names for name in named}
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
    samples = _samples(dataset, features, layout, root)
    return Imported(samples, header, total, omissions=omissions)


def _samples(
    dataset: Any, features: Mapping[str, Any], layout: ColumnMapping, root: Path | None
) -> Iterator[dict[str, Any]]:
    for number, row in enumerate(dataset):
        values: dict[str, Any] = {}
        for name, value in row.items():
            if type(features[name]).__name__ in _BYTES:
                values |= media_columns(name, value, Path(), f"the dataset: row {number}", root)
            else:
                values[name] = _value(features[name], value)
        yield layout.sample(number, values)


def _kind_of(name: str, feature: Any) -> str:
    """Return the kind of a column, as `ColumnMapping` names it."""
    kind = type(feature).__name__
    if kind == "ClassLabel":
        return "label"
    if kind in _BYTES:
        return kind
    if kind in _ARRAYS:
        return "array"
    if kind == "Value" and "binary" in feature.dtype:
        return "bytes"
    if kind == "Value" and "int" in feature.dtype and is_label(name):
        return "label"
    text = repr(feature)
    if any(f"{each}(" in text for each in _BYTES) or "binary" in text:
        raise ValueError(
            f"the dataset: column {name!r} has bytes inside of {kind}, which cannot become a "
            "field; give each a column of its own (Dataset.flatten does for structs, Dataset.map "
            "for lists), or remove it (Dataset.remove_columns)"
        )
    return "plain"


def _value(feature: Any, value: Any) -> Any:
    if value is None:
        return None
    kind = type(feature).__name__
    if kind in _ARRAYS:
        return Blob(".npy", encode_field(".npy", np.asarray(value, feature.dtype)))
    if kind == "Value" and "binary" in feature.dtype:
        return sniffed(value)
    if kind == "ClassLabel":
        return int(value)
    return value
