"""A dataset or view as a Hugging Face `Dataset`, whose rows are read when they are used.

from with_datasets import as_dataset, as_iterable
as_dataset(samples, [".jpg", ".cls"])[7]
"""

from datasets import Dataset, IterableDataset


def columns_of(samples, indexes, fields):
    """Return some samples as columns."""
    found = samples.__getitems__(list(indexes))
    columns = {"key": [sample["__key__"] for sample in found]}
    return columns | {field: [sample[field] for sample in found] for field in fields}


def as_dataset(samples, fields):
    """Return a map-style dataset; it stores the numbers of the samples alone."""

    def read(batch):
        return columns_of(samples, batch["index"], fields)

    return Dataset.from_dict({"index": range(len(samples))}).with_transform(read)


def as_iterable(samples, features, rows=256):
    """Return an iterable dataset in parts of adjacent samples, which workers and nodes share."""

    def read(parts):
        for part in parts:
            columns = columns_of(samples, part, [name for name in features if name != "key"])
            for values in zip(*columns.values(), strict=True):
                yield dict(zip(columns, values, strict=True))

    count = len(samples)
    parts = [range(start, min(start + rows, count)) for start in range(0, count, rows)]
    return IterableDataset.from_generator(read, features=features, gen_kwargs={"parts": parts})
