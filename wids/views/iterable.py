"""`SampleIterable`: a sequence of samples as a torch IterableDataset, exact over ranks and workers.

It serves programs that need iterable datasets, such as the pipeline stages of webdataset.
"""

from __future__ import annotations

from contextlib import closing
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Literal, get_args

import torch
from torch.utils.data import IterableDataset, get_worker_info

from wids.base.arguments import check_choice, check_mapping
from wids.base.warn import warn
from wids.ordering.batchsampler import BatchSampler
from wids.ordering.samplers import check_drawn_from
from wids.reading.prefetch import Schedule

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from wids.ordering.samplers import ChunkedSampler
    from wids.reading.samplesequence import SampleSequence

__all__ = ["SampleIterable", "Style"]

Style = Literal["wids", "webdataset"]


class SampleIterable(IterableDataset[Any]):
    """Iterable over the samples of a sequence, in the order of a sampler.

    The sampler divides the samples among the ranks. The workers of a DataLoader take batches of
    indexes in turn: if `batch_size` is that of the DataLoader, its batches are those of the
    sampler, in the same order. Each sample comes once per epoch, for any number of workers.

    A DataLoader starts its workers with a copy of the sampler, so `set_epoch` has to be called
    before each epoch, as for torch's DistributedSampler. If an epoch is repeated in the same order,
    a warning says so. With a StatefulDataLoader and the same number of workers, the iteration can
    be saved and restored at any sample.

    Args:
        samples: Any sequence of samples: a dataset, a view, a join, a mixture.
        batches: A sampler of this library, or a `BatchSampler`.
        batch_size: Number of samples that a worker reads at a time; a `BatchSampler` has its own.
        style: "wids" for the samples as they are; "webdataset" for raw fields as `bytes` under
            names without the leading dot, with `__key__` and `__url__`.

    Raises:
        TypeError: The sampler is none of this library.
        ValueError: The style is unknown.
    """

    def __init__(
        self,
        samples: SampleSequence | Any,
        batches: ChunkedSampler | BatchSampler,
        *,
        batch_size: int = 64,
        style: Style = "wids",
    ) -> None:
        super().__init__()
        check_choice("style", style, get_args(Style))
        if not isinstance(batches, BatchSampler):
            batches = BatchSampler(batches, batch_size)
        check_drawn_from("sampler", batches, len(samples))
        # Here, since workers that are started later would each choose and fetch for themselves.
        choose_remote = getattr(samples, "choose_remote", None)
        if choose_remote is not None:
            choose_remote(batches.sampler)
        raw = style == "webdataset"
        self.samples = samples.with_options(transformations="bytes") if raw else samples
        self.batches = batches
        self.style = style
        # Epoch and position at which the last finished pass began. In shared memory, because the
        # workers are new processes in each epoch.
        self._finished = torch.full((2,), -1, dtype=torch.int64)
        self._finished.share_memory_()  # type: ignore[no-untyped-call]  # torch has no types for it
        self._start: Mapping[str, Any] = {}
        self._taken = 0  # samples that this worker yielded in its pass
        self._skip = 0

    def __len__(self) -> int:
        """Return the number of samples that this rank reads in an epoch."""
        return len(self.batches.sampler)

    def __iter__(self) -> Iterator[Any]:
        """Yield the samples of this worker."""
        worker = get_worker_info()
        number, workers = (0, 1) if worker is None else (worker.id, worker.num_workers)
        whole = iter(self.batches)
        self._start = whole.state_dict()
        batches: Iterator[Sequence[int]] = islice(whole, number, None, workers)
        begun = self._begun()
        if number == 0 and self._finished.tolist() == begun:
            warn(
                f"epoch {begun[0]} is read again, in the same order; call "
                f"sampler.set_epoch(epoch) before each epoch"
            )
        self._taken, skip = 0, self._skip
        self._skip = 0
        for batch in batches:
            self._taken += min(skip, len(batch))
            if skip < len(batch):
                batches = chain([batch], batches)
                break
            skip -= len(batch)
        for samples in self._samples_of(batches):
            for sample in samples[skip:]:
                self._taken += 1
                yield sample
            skip = 0
        if number == 0:
            self._finished[:] = torch.tensor(begun)

    def _samples_of(self, batches: Iterator[Sequence[int]]) -> Iterator[list[Any]]:
        """Read batches; where samples are read by range, those of the next batches are requested.

        Only this iterable knows the next batches of its worker; the dataset of a map-style
        DataLoader learns of each batch when it is asked for it.
        """
        prefetches = self.samples.prefetches() if hasattr(self.samples, "prefetches") else []
        if not prefetches:
            yield from map(self._read, batches)
            return
        with closing(Schedule(batches, prefetches, len(self.samples))) as schedule:
            for planned in schedule:
                with planned.fetched() as batch:
                    samples = self._read(batch)
                yield samples

    def _begun(self) -> list[int]:
        """Return the epoch and the position at which the pass began."""
        return [int(self._start[name]) for name in ("epoch", "consumed")]

    def _read(self, batch: Sequence[int]) -> list[Any]:
        samples: list[Any] = self.samples.__getitems__(batch)
        return list(map(_as_webdataset, samples)) if self.style == "webdataset" else samples

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the sampler."""
        self.batches.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Return the position of this worker; a StatefulDataLoader saves that of each worker."""
        return {"start": dict(self._start), "taken": self._taken}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Make the next pass continue after the samples that a state counts as yielded."""
        check_mapping("state_dict", state_dict, "what state_dict() of a SampleIterable returned")
        if not {"start", "taken"} <= set(state_dict):
            raise ValueError(
                "state_dict is no state of a SampleIterable: expected 'start' and 'taken', got "
                f"{', '.join(map(repr, state_dict)) or 'nothing'}"
            )
        if state_dict["start"]:
            self.batches.load_state_dict(state_dict["start"])
            self._skip = int(state_dict["taken"])


def _as_webdataset(sample: Mapping[str, Any]) -> dict[str, Any]:
    """Return a raw sample in the form of webdataset's reader."""
    # A field that a join could not fill is missing there.
    there = {name: value for name, value in sample.items() if value is not None}
    fields = {name[1:]: value for name, value in there.items() if name.startswith(".")}
    return {"__key__": sample["__key__"], "__url__": sample["__shard__"], **fields}
