"""Collation: stacks the values of a field into an array or tensor if possible, else into a list.

torch's own `default_collate` takes the fields of the first sample for those of all: a sample
without one of them ends it in a `KeyError` that names the field alone, and a field that only the
first lacks is left out without a word. So `explain_missing` gives it samples that say what is
wrong.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from wids.base.arguments import check_extension
from wids.reading.ragged import Ragged

__all__ = [
    "Missing",
    "PackedRow",
    "Window",
    "as_tensors",
    "checked_missing",
    "collate",
    "column_of",
    "follow_path",
    "pack_sequences",
    "pin",
]

Allocate = Callable[[int], np.ndarray]
# What samples have in a batch that lack a field of others: an error, None, or a value by the field.
Missing = Literal["error", "none"] | Mapping[str, Any]


class Window(list[Any]):
    """Values of a field in a sample and its neighbours, for which a batch has one more axis."""


def collate(
    samples: Sequence[Any],
    *,
    missing: Missing = "error",
    tensors: bool | None = None,
    allocate: Allocate | None = None,
) -> Any:
    """Return the batch of a list of samples; values that cannot be stacked stay a list.

    Dicts become a dict of columns, tuples a list of columns, anything else one column. Numbers
    become an array; arrays of one type and shape, and tensors, are stacked, those of windows with
    one more axis; other values (text, images, arrays of different shapes, None) stay a list. For a
    DataLoader: `collate_fn=functools.partial(wids.collate, missing="none")`.

    Args:
        samples: At least one.
        missing: What samples have that lack a field of others of the batch. A dict gives the value
            of each field that may be missing, also where all samples of a batch lack it; "none"
            gives None. "error" raises.
        tensors: Whether arrays become tensors; None: if the program uses torch.
        allocate: Function from a number of bytes to an array of that size; None: new memory.

    Raises:
        ValueError: Dicts have different keys, or tuples different lengths.

    >>> collate([{"a": 1, "b": "x"}, {"a": 2, "b": "y"}], tensors=False)
    {'a': array([1, 2]), 'b': ['x', 'y']}
    >>> collate([{".cls": 1}, {".txt": "y"}], missing={".cls": -1, ".txt": ""}, tensors=False)
    {'.cls': array([ 1, -1]), '.txt': ['', 'y']}
    """
    first = samples[0]
    if isinstance(first, Mapping):
        # Only samples with a failed field have the errors that a decoder collected.
        if any("__errors__" in sample for sample in samples):
            for sample in samples:
                sample.setdefault("__errors__", {})
        names, fills = _names_and_fills(samples, checked_missing(missing))
        batch: Any = {
            name: column_of(
                [sample[name] if name in sample else fills[name] for sample in samples]
                if name in fills
                else [sample[name] for sample in samples],
                allocate,
            )
            for name in names
        }
    else:
        batch = column_of(list(samples), allocate)
    if tensors is None:
        tensors = "torch" in sys.modules
    return as_tensors(batch) if tensors else batch


def checked_missing(missing: Any) -> Missing:
    """Return what samples without a field have in batches, if it says that.

    Raises:
        ValueError: It does not.
        TypeError: A name is no text.
    """
    if isinstance(missing, str) and missing in ("error", "none"):
        return missing  # type: ignore[return-value]  # one of the two
    if isinstance(missing, Mapping):
        return {check_extension("missing", name): missing[name] for name in missing}
    raise ValueError(
        f"missing: expected 'error', 'none' or the value of each field that may be missing, as in "
        f"{{'.txt': ''}}, got {missing!r:.80}"
    )


def _names_and_fills(
    samples: Sequence[Mapping[str, Any]], missing: Missing
) -> tuple[list[str], dict[str, Any]]:
    """Return the fields of a batch, and the value of each that some samples may lack."""
    fills = dict(missing) if isinstance(missing, Mapping) else {}
    names = dict.fromkeys([*samples[0], *fills])
    if all(sample.keys() == names.keys() for sample in samples):
        return list(names), {}
    for slot, sample in enumerate(samples):
        odd = sorted(map(str, (sample.keys() ^ samples[0].keys()) - fills.keys()))
        if missing == "none":
            fills |= dict.fromkeys(odd)
            names |= dict.fromkeys(odd)
        elif odd:
            lacking = next((name for name in odd if name.startswith(".")), ".txt")
            size = f'sizes."{lacking[1:].lower()}"'
            which = f"sample {slot} of a batch, counted from 0"  # of a dataset without labels
            if "__index__" in sample:
                which = f"sample {sample['__index__']}, key {sample.get('__key__')!r}"
            raise ValueError(
                f"{which}: expected the fields of the first sample of its batch "
                f"({samples[0].get('__index__', 0)}); only one of the two has {', '.join(odd)}; "
                f"give those that lack it a value by missing={{{lacking!r}: ...}} (None by "
                'missing="none") of the Loader or of wids.collate, or leave them out by '
                f"dataset.filter('{size} is not null'), or by fields= without it"
            )
    return list(names), fills


def column_of(values: list[Any], allocate: Allocate | None = None) -> Any:
    """Return the values of one field as an array or tensor if possible, else unchanged.

    Tuples, named ones too, become a list or a named tuple of such columns.
    """
    kinds = set(map(type, values))
    kind = next(iter(kinds))
    if len(kinds) == 1 and issubclass(kind, tuple):
        lengths = sorted(set(map(len, values)))
        if len(lengths) > 1:
            raise ValueError(
                f"expected tuples of one length in a batch, got lengths {lengths}; pass a "
                "collate_fn that knows what to do"
            )
        columns = [column_of(list(each), allocate) for each in zip(*values, strict=True)]
        return kind(*columns) if hasattr(kind, "_fields") else columns
    if len(kinds) == 1 and issubclass(kind, (bool, int, float, np.number, np.bool_)):
        try:
            array = np.array(values)
        except OverflowError:
            return values
        # Integers beyond 64 bits would become objects, or be rounded to floats.
        rounded = array.dtype.kind == "f" and type(values[0]) is int
        return array if array.dtype.kind in "biufc" and not rounded else values
    if kinds == {np.ndarray}:
        return _stacked(values, allocate)
    if kinds == {Window} and len(set(map(len, values))) == 1:
        column = column_of([each for window in values for each in window], allocate)
        if isinstance(column, list):
            return values
        return column.reshape(len(values), len(values[0]), *column.shape[1:])
    torch = sys.modules.get("torch")
    # A tensor can only be here if torch is loaded.
    if torch is not None and all(issubclass(each, torch.Tensor) for each in kinds):
        layouts = {(value.shape, value.dtype, value.device) for value in values}
        return _stacked_tensors(values, allocate) if len(layouts) == 1 else values
    return values


def _stacked(values: list[np.ndarray], allocate: Allocate | None) -> Any:
    first = values[0]
    if any(each.shape != first.shape or each.dtype != first.dtype for each in values):
        return values
    if first.dtype.hasobject or allocate is None or not first.nbytes:
        return values if first.dtype.hasobject else np.stack(values)
    shape = (len(values), *first.shape)
    # Stacked into reused memory, since the kernel would first clear new pages.
    out = allocate(len(values) * first.nbytes).view(first.dtype).reshape(shape)
    return np.stack(values, out=out)


def _stacked_tensors(values: list[Any], allocate: Allocate | None) -> Any:
    """Return the stack of tensors of one shape and type, on one device."""
    import torch

    first = values[0]
    plain = first.device.type == "cpu" and first.layout is torch.strided
    plain &= not (first.dtype.is_complex or first.is_quantized)
    if not plain or not first.numel() or any(value.requires_grad for value in values):
        return torch.stack(values)
    # Not by torch, which copies with all its threads: those of each thread of a loader would
    # contend for the cores. As bytes, since numpy lacks some types.
    arrays = [value.contiguous().view(-1).view(torch.uint8).numpy() for value in values]
    stacked = torch.from_numpy(_stacked(arrays, allocate))
    return stacked.view(first.dtype).view(len(values), *first.shape)


def as_tensors(batch: Any) -> Any:
    """Return a batch with its arrays as tensors, which share their memory.

    Arrays of types that torch lacks are kept.
    """
    if isinstance(batch, dict):
        return {key: as_tensors(value) for key, value in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*map(as_tensors, batch))
    # A list may have a million strings, so only its first items are checked for arrays.
    if isinstance(batch, list) and any(isinstance(each, (np.ndarray, list)) for each in batch[:64]):
        return [_as_tensor(value) for value in batch]
    return _as_tensor(batch)


def _as_tensor(value: Any) -> Any:
    import torch

    if type(value) is Ragged:
        return Ragged(torch.from_numpy(value.values), torch.from_numpy(value.offsets))
    if type(value) is not np.ndarray or not value.dtype.isnative:
        return value
    try:
        # A tensor cannot be read-only, so a read-only array is copied.
        return torch.from_numpy(value if value.flags.writeable else value.copy())
    except TypeError:
        return value


def pin(batch: Any) -> Any:
    """Return a batch with its tensors in page-locked memory; unchanged without a GPU."""
    import torch

    if not torch.cuda.is_available():
        return batch
    if isinstance(batch, dict):
        return {key: pin(value) for key, value in batch.items()}
    if isinstance(batch, list) and any(isinstance(each, torch.Tensor) for each in batch[:64]):
        return [pin(each) for each in batch]
    return batch.pin_memory() if isinstance(batch, torch.Tensor | Ragged) else batch


class PackedRow(NamedTuple):
    """Sequences concatenated to one row, with the bounds that variable-length attention needs.

    Attributes:
        values: The elements of all sequences; shape `(num_elements, ...)`.
        cu_seqlens: Start of each sequence in `values`, and the end of the last; int32.
        positions: Position of each element in its own sequence; int64.
        max_seqlen: Length of the longest sequence.
    """

    values: Any
    cu_seqlens: Any
    positions: Any
    max_seqlen: int


def pack_sequences(sequences: Sequence[Any]) -> PackedRow:
    """Concatenate sequences of different lengths to one row, without padding.

    For the batches of a `BatchSampler` with `pack=True`; the names are those of FlashAttention.

    Args:
        sequences: At least one, all arrays, all tensors, or all lists of numbers; of one type, and
            of one shape from the second axis on.

    Returns:
        Tensors for tensors, else arrays.

    Raises:
        ValueError: There is no sequence, one has no axis, or they do not fit together.

    >>> row = pack_sequences([[7, 8, 9], [5]])
    >>> row.values.tolist(), row.cu_seqlens.tolist(), row.positions.tolist(), row.max_seqlen
    ([7, 8, 9, 5], [0, 3, 4], [0, 1, 2, 0], 3)
    """
    torch = sys.modules.get("torch")
    tensors = [torch is not None and isinstance(each, torch.Tensor) for each in sequences]
    arrays = list(sequences) if all(tensors) else list(map(np.asarray, sequences))
    # An empty list has no type of its own.
    model = next((each for each in arrays if len(each.shape) and len(each)), None)
    arrays = [
        model[:0] if model is not None and isinstance(given, list) and not given else each
        for given, each in zip(sequences, arrays, strict=True)
    ]
    if len({(len(each.shape), *each.shape[1:], each.dtype) for each in arrays}) != 1:
        kinds = [f"{each.dtype}{tuple(each.shape)}" for each in arrays[:4]]
        raise ValueError(
            "expected at least one sequence, all of one type and shape but for their first axis, "
            f"got {', '.join(kinds) or 'none'}; convert them before they are packed"
        )
    if not len(arrays[0].shape):
        raise ValueError("expected sequences, got single numbers; give each as an array of one")
    lengths = np.array(list(map(len, arrays)), np.int64)
    ends = np.cumsum(lengths)
    if ends[-1] >= 1 << 31:
        raise ValueError(f"cu_seqlens are 32-bit numbers, got {ends[-1]} elements; pack fewer")
    offsets = np.append(0, ends).astype(np.int32)
    # Subtracting its start from each element's position in the row restarts the count at 0.
    positions = np.arange(ends[-1]) - np.repeat(ends - lengths, lengths)
    longest = int(lengths.max())
    if torch is None or not all(tensors):
        return PackedRow(np.concatenate(arrays), offsets, positions, longest)
    device = arrays[0].device
    ends, numbers = (torch.from_numpy(each).to(device) for each in (offsets, positions))
    return PackedRow(torch.cat(arrays), ends, numbers, longest)


def follow_path(value: Any, path: tuple[str | int, ...]) -> Any:
    """Return the value at a path of keys and indexes in a nested value; None if there is none.

    The step "length" leads to the length of a text or a list.

    >>> follow_path({"tags": ["cat", "dog"]}, ("tags", 0, "length"))
    3
    """
    for step in path:
        if step == "length" and isinstance(value, str | list):
            value = len(value)
            continue
        listed = isinstance(value, (list, tuple, np.ndarray))
        # In a column that is named as a whole, as ".json:tags.0", all steps are texts.
        index = int(step) if listed and isinstance(step, str) and step.isdecimal() else step
        inside = isinstance(index, int) if listed else isinstance(value, Mapping)
        try:
            value = value[index] if inside else None
        except LookupError:
            return None
    return value


class UnevenSample(dict[str, Any]):
    """A sample that lacks a field of other samples of its batch; asked for it, it says so."""

    def __missing__(self, name: Any) -> Any:
        """Raise the error of a name that is not there.

        Raises:
            KeyError: Always; the message names the sample, the field and the ways out.
        """
        index, key = self.get("__index__"), self.get("__key__")
        which = f"sample {index}, key {key!r}," if isinstance(key, str) else "the first sample"
        is_field = isinstance(name, str) and name.startswith(".")
        choice = ""
        if is_field:
            column = name[1:].lower()
            column = column if column.isidentifier() else f'"{column}"'
            choice = f"leave them out by dataset.filter('sizes.{column} is not null'), "
        raise KeyError(
            f"{which} has no {name!r}, and others of its batch may have it; expected samples with "
            f"the same fields: {choice}name the fields that all samples have by fields=, or give "
            "those that lack it a value by collate_fn=functools.partial(wids.collate, "
            f"missing={{{name!r}: ...}})"
        )


def explain_missing(samples: list[Any]) -> list[Any]:
    """Return the samples of a batch; those that lack a field of others explain it when asked.

    Args:
        samples: What `dataset[i]` gives, of any type; only dicts are looked at.

    >>> batch = explain_missing([{".cls": 1, ".txt": "a cat"}, {".cls": 2}])
    >>> batch == [{".cls": 1, ".txt": "a cat"}, {".cls": 2}], ".txt" in batch[1]
    (True, False)
    """
    if set(map(type, samples)) != {dict}:
        return samples
    names: set[str] = set().union(*samples)
    # Nearly every batch ends here, for an eighth of a microsecond a sample.
    if set(map(len, samples)) == {len(names)}:
        return samples
    return [sample if len(sample) == len(names) else UnevenSample(sample) for sample in samples]
