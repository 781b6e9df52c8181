"""Batches whose samples have different fields, as torch's `default_collate` meets them.

It takes the fields of the first sample for those of all. A sample without one of them ends it in
a `KeyError` that names the field alone; a field that only the first sample lacks is left out
without a word. So the samples of such a batch that lack a field say what is wrong when asked for
it, and so does the batch that is made of them: `default_collate` copies the first sample.
"""

from typing import Any


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
