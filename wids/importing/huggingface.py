"""Importer of Hugging Face `datasets`, with undecoded images and sound, and class names."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from wids.base.omissions import Omissions
from wids.base.optional import load
from wids.importing.layout import ColumnMapping
from wids.importing.options import Imported, ImportOptions
from wids.importing.tables import MEDIA, as_in_spec, columns_of_schema

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["open_huggingface", "open_saved"]

_SAVED = ("dataset_info.json", "dataset_dict.json")  # `save_to_disk` leaves one of them


def open_saved(sources: Sequence[str], options: ImportOptions) -> Imported:
    """Open a dataset written by `save_to_disk`, or one that `load_dataset` finds by name.

    Args:
        sources: The folder or name.
        options: `split` names the split, which is required if there are several; `fields` and `key`
            as for `open_huggingface`.

    Raises:
        ModuleNotFoundError: `datasets` is not installed.
        ValueError: There are several splits, and none or an unknown one is named; or `datasets`
            cannot load it.
    """
    datasets = load("datasets", "huggingface")
    source, folder = sources[0], Path(sources[0]).expanduser()
    try:
        if any((folder / name).is_file() for name in _SAVED):
            dataset = datasets.load_from_disk(str(folder))
        else:
            dataset = datasets.load_dataset(source)
    except (LookupError, TypeError) as error:
        # What `datasets` raises for a folder of its own that has no rows or was damaged.
        raise ValueError(
            f"{source}: the library datasets cannot load it ({type(error).__name__}: {error}); "
            "save it again, with at least one row"
        ) from error
    if isinstance(dataset, dict):
        split = next(iter(dataset)) if len(dataset) == 1 and not options.split else options.split
        if split not in dataset:
            raise ValueError(
                f"{source}: expected --split with one of {', '.join(dataset)}, got {split!r}"
            )
        dataset = dataset[split]
    return _opened(dataset, options, None if options.allow_outside else folder)


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
    columns = columns_of_schema(features.arrow_schema, "the dataset")
    layout = ColumnMapping(columns.kinds, options, "the dataset", omissions)
    info = dataset.info
    told = {
        "info": info.description,
        "license": info.license,
        "citation": info.citation,
        "homepage": info.homepage,
        "classes": as_in_spec(columns.classes),
    }
    samples = (
        layout.sample(number, columns.values(row, Path(), f"the dataset: row {number}", root))
        # Without a format, rows have Python values in place of the user's tensors.
        for number, row in enumerate(dataset.with_format(None))
    )
    return Imported(
        samples,
        {name: value for name, value in told.items() if value},
        len(dataset) if hasattr(dataset, "__len__") else None,
        omissions=omissions,
    )
