"""`Loader`: batches made by threads, straight from the mapped shards."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import islice
from typing import TYPE_CHECKING, Any

from wids.base.arguments import (
    check_callable,
    check_choice,
    check_flag,
    check_integer,
    check_mapping,
    check_number,
    check_sized,
)
from wids.base.warn import warn
from wids.ordering.batchsampler import BatchPass, BatchSampler
from wids.ordering.randomseeds import reading_batch
from wids.ordering.samplers import ChunkedSampler, check_drawn_from
from wids.reading.batches import Batch, Pools, batch_maker, useful_threads
from wids.reading.brokensamples import BrokenSamples, OnError
from wids.reading.collate import Missing, as_tensors, checked_missing, pin
from wids.reading.devicedecoder import DeviceDecoder
from wids.reading.loaderstats import LoaderStats, LoopClock, counted_as
from wids.reading.orderedmap import OrderedMap
from wids.reading.pipeline import no_end
from wids.reading.prefetch import Schedule, ScheduledBatch

if TYPE_CHECKING:
    from wids.ordering.passes import PassIterator

__all__ = ["Loader", "LoaderPass"]

_DEVICE_THREADS = 2  # one reads while the other's batch is decoded; more contend for Python's lock


class Loader:
    """Iterable over the batches of a dataset, made by threads.

    It takes the arguments of `torch.utils.data.DataLoader` with the same meaning and yields the
    same samples in the same order. It needs no pickling, no shared memory and no start of workers:
    fields are copied once, from the map of a shard into the batch.

    A batch is a dict of columns: `__key__`, `__index__` and one for each field. Raw fields
    (`transformations="bytes"` or `"memoryview"`) are a `Ragged`: one buffer, and the offset of each
    field. Decoded fields are an array if they are numbers or arrays of one shape, else a list. The
    results of a dataset's own transformations are collated by the same rules.

    The memory of a batch is reused only when nothing refers to the batch any more, so batches can
    safely be kept.

    Args:
        dataset: A `ShardListDataset`, or anything with `len(dataset)` and `dataset[index]`.
        batch_size: Number of samples in a batch, at least 1.
        shuffle: Shuffle all samples, differently in each epoch; use a sampler to shuffle by shards.
        sampler: Yields the indexes, in place of `shuffle`.
        batch_sampler: Yields lists of indexes, in place of `batch_size`, `shuffle`, `sampler` and
            `drop_last`.
        num_workers: Number of threads; 0 makes each batch when it is requested. None: one thread if
            raw fields are only copied, else one per core of this process, up to 8.
        collate_fn: Function from a list of samples to a batch, called in the threads.
        pin_memory: Put tensors into page-locked memory, for copies to a GPU, if there is one.
        drop_last: Leave out the last batch if it is smaller.
        timeout: Seconds to wait for a batch before TimeoutError; 0 for no limit.
        prefetch_factor: Number of batches that each thread makes ahead, at least 1.
        seed: Random seed for `shuffle`. Without one, each run has the same order, unlike with a
            DataLoader; the epochs of a run differ.
        tensors: Whether arrays become tensors. None: if torch is installed and there is no
            `collate_fn`.
        missing: What samples without a field that others of their batch have get: the value of the
            field in a dict, as in `{".txt": ""}`; "none" for None in a list; or it is an "error".
        on_error: What is done about a sample that cannot be read: "raise" its error; "replace" it
            by another sample of its shard, which seed, epoch and sample decide, so that batches
            stay full and a resumed run has the same ones; or "skip" it, so that its batch is
            shorter. Errors of servers and disks are raised in any case.
        max_errors: Number of different samples that may be replaced or skipped; the error of one
            more is raised.
        device: Where batches go, such as "cuda"; or a `DeviceDecoder`, which also decodes images
            there. Two threads are the default then.

    Raises:
        ValueError: Arguments that exclude each other, or are out of range.

    >>> import tempfile, wids
    >>> folder = tempfile.mkdtemp()
    >>> with wids.ShardWriter(f"{folder}/train-%03d.tar") as writer:
    ...     for number in range(5):
    ...         writer.write({"__key__": f"{number}", ".cls": number})
    >>> dataset = wids.ShardListDataset(folder)
    >>> [batch[".cls"].tolist() for batch in Loader(dataset, batch_size=2)]
    [[0, 1], [2, 3], [4]]
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int = 1,
        shuffle: bool | None = None,
        sampler: Iterable[int] | None = None,
        batch_sampler: Iterable[Sequence[int]] | None = None,
        num_workers: int | None = None,
        collate_fn: Callable[[list[Any]], Batch] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        *,
        prefetch_factor: int = 2,
        # A fixed default, so that two runs give the same order. Epochs differ nevertheless.
        seed: int = 0,
        tensors: bool | None = None,
        missing: Missing = "error",
        on_error: OnError = "raise",
        max_errors: int = 100,
        device: Any = None,
    ) -> None:
        check_sized("dataset", dataset, "a dataset")
        torch_data = sys.modules.get("torch.utils.data")  # without it, no stream of torch is here
        if torch_data is not None and isinstance(dataset, torch_data.IterableDataset):
            raise TypeError(
                "dataset: expected a dataset whose samples are read by index, got the stream "
                f"{type(dataset).__name__}; give a DataLoader the stream, or a Loader the dataset "
                "of which it was made"
            )
        shuffle = None if shuffle is None else check_flag("shuffle", shuffle)
        drop_last = check_flag("drop_last", drop_last)
        check_integer("batch_size", batch_size, 1)
        if collate_fn is not None:
            check_callable("collate_fn", collate_fn, "a function of a list of samples")
        _check_samplers(sampler, batch_sampler)
        if sampler is not None and shuffle:
            raise ValueError(
                "sampler and shuffle exclude each other: the sampler says what comes next"
            )
        if batch_sampler is not None and (
            batch_size != 1 or shuffle or sampler is not None or drop_last
        ):
            raise ValueError(
                "batch_sampler excludes batch_size, shuffle, sampler and drop_last: it says which "
                "indexes make a batch"
            )
        if sampler is None and batch_sampler is None:
            # As in DataLoader, `shuffle=True` is a full shuffle of all samples.
            partition = "uniform" if shuffle else "contiguous"
            if getattr(getattr(dataset, "facts", None), "draws", None) is not None:
                warn(
                    "a Loader without a sampler reads each sample of a Mixture once: its weights "
                    "have no effect; give sampler=wids.DistributedShardSampler(mixture)"
                )
            sampler = ChunkedSampler(
                range(len(dataset)), shuffle=bool(shuffle), seed=seed, partition=partition
            )
        if check_integer("seed", seed) and not shuffle:
            warn(
                f"seed={seed} has no effect on a Loader without shuffle=True: it is the seed of "
                "its own shuffle; a sampler has one of its own"
            )
        name = "sampler" if batch_sampler is None else "batch_sampler"
        check_drawn_from(name, sampler if batch_sampler is None else batch_sampler, len(dataset))
        self.dataset = dataset
        self.batch_size = batch_size
        self.sampler = sampler
        self.batch_sampler = batch_sampler
        self.device = device if device is None or callable(device) else DeviceDecoder(device)
        if num_workers is None:
            num_workers = _DEVICE_THREADS if device else useful_threads(dataset, collate_fn)
        self.num_workers = check_integer("num_workers", num_workers, 0)
        self.collate_fn = collate_fn
        self.missing = checked_missing(missing)
        if collate_fn is not None and missing != "error":
            raise ValueError(
                "missing is for batches without a collate_fn; give it to wids.collate in yours, as "
                "in functools.partial(wids.collate, missing=...)"
            )
        check_choice("on_error", on_error, ("raise", "replace", "skip"))
        self.on_error: OnError = on_error
        self._broken = BrokenSamples(dataset, on_error, check_integer("max_errors", max_errors, 0))
        self.pin_memory = check_flag("pin_memory", pin_memory)
        self.drop_last = drop_last
        self.timeout = check_number("timeout", timeout, 0)
        self.prefetch_factor = check_integer("prefetch_factor", prefetch_factor, 1)
        if tensors is None:
            tensors = find_spec("torch") is not None and collate_fn is None
        self.tensors = check_flag("tensors", tensors)
        # Kept over all epochs, because the first batches in new memory take much longer.
        self._pools = Pools()
        self._stats: LoaderStats | None = None
        self._progress: _Progress | None = None

    def __len__(self) -> int:
        """Number of batches in a whole epoch."""
        if self.batch_sampler is not None:
            return len(self.batch_sampler)  # type: ignore[arg-type]  # one without says so
        num_samples = len(self.sampler)  # type: ignore[arg-type]  # as above
        return (
            num_samples // self.batch_size if self.drop_last else -(-num_samples // self.batch_size)
        )

    def __iter__(self) -> LoaderPass:
        """Start an epoch, or continue the one that was restored."""
        stats, device = self._stats, self.device
        collated = batch_maker(self.dataset, self.collate_fn, self._pools, self.missing)
        convert: Callable[[Batch], Batch] | None = as_tensors if self.tensors else None
        if device is not None:

            def convert(batch: Batch) -> Batch:
                return device(as_tensors(batch))

        elif self.tensors and self.pin_memory:

            def convert(batch: Batch) -> Batch:
                return pin(as_tensors(batch))

        def read(indexes: Sequence[int]) -> Batch:
            try:
                # A device draws crops by the epoch of the batch, too.
                with reading_batch(indexes, len(self.dataset)):
                    batch = collated(indexes)
                    if convert is None:
                        return batch
                    with counted_as("convert"):
                        return convert(batch)
            except StopIteration as error:
                raise no_end(f"while reading samples {indexes}") from error

        read_batch = read if self.on_error == "raise" else self._broken.tolerant(read)

        def make(scheduled: ScheduledBatch | Sequence[int]) -> Batch:
            fetched = (
                scheduled.fetched()
                if isinstance(scheduled, ScheduledBatch)
                else nullcontext(scheduled)
            )
            with nullcontext() if stats is None else stats.timed("read"), fetched as indexes:
                return read_batch(indexes)

        # The iterator of the sampler is made at once, as in a DataLoader, so that later changes of
        # the sampler apply to the next pass.
        progress = self._progress = _Progress()
        stateful = self._stateful_batches()
        batches: Iterator[Sequence[int]]
        if stateful is not None:
            batches = progress.batches = iter(stateful)
        elif self.batch_sampler is not None:
            batches = iter(self.batch_sampler)
        else:
            batches = self._cut(iter(self.sampler or ()))
        if stats is not None:
            batches = _timed_draws(batches, stats)
        schedule = self._schedule(batches)
        if stats is not None:
            stats.begin_pass(self.num_workers)
        tasks: Iterator[ScheduledBatch | Sequence[int]] = schedule or batches
        threads = None
        if self.num_workers:
            threads = OrderedMap(
                make,
                tasks,
                num_threads=self.num_workers,
                most_pending=self.num_workers * self.prefetch_factor,
                timeout_seconds=self.timeout or None,
            )
        receive = None if device is None else device.receive
        return LoaderPass(
            progress, threads or map(make, tasks), threads, receive, stats, schedule=schedule
        )

    def _schedule(self, batches: Iterator[Sequence[int]]) -> Schedule | None:
        """Prefetch the batches if the dataset is read by byte range; None if not."""
        choose = getattr(self.dataset, "choose_remote", None)
        if choose is not None:
            choose(self.sampler or getattr(self.batch_sampler, "sampler", None))
        begin = getattr(self.dataset, "prefetches", None)
        prefetches = [] if begin is None else begin()
        return Schedule(batches, prefetches, len(self.dataset)) if prefetches else None

    def stats(self) -> LoaderStats:
        """Return where the time of this loader goes; counted from the next pass on.

        Nothing is counted before the first call.

        >>> loader = Loader(range(100), batch_size=10)
        >>> stats = loader.stats()
        >>> sum(len(batch) for batch in loader), stats.num_batches
        (100, 10)
        """
        if self._stats is None:
            self._stats = LoaderStats()
        return self._stats

    def report(self) -> BrokenSamples:
        """Return which samples were replaced or skipped, in all passes so far.

        `len` counts them, `found` says of each what replaced it and why, and `view()` is the view
        of them, which can be saved if no function is mapped, and left out by `exclude`.
        """
        return self._broken

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the sampler.

        Args:
            epoch: The epoch, `>= 0`.

        Raises:
            AttributeError: The sampler has no epochs.
        """
        sampler: Any = self.sampler if self.batch_sampler is None else self.batch_sampler
        sampler.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Return the position after the last batch that was yielded; prefetched ones do not count.

        The state is that of the sampler, the same on all ranks, and can be restored on another
        number of them, and with another batch size.

        Raises:
            TypeError: The sampler has no state, as those of this library do.
        """
        sampler = self._saved_sampler()
        progress = self._progress
        if progress is None or progress.finished or progress.batches is None:
            return {"sampler": sampler.state_dict(consumed=0)}
        # Of the pass, since the sampler itself is ahead of the batches that were yielded.
        return {"sampler": progress.batches.state_dict(progress.consumed)}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Make the next pass start at the position of a state.

        If it was taken in the loop over the last batch of an epoch, the next pass is what was left
        of that, which is nothing, as with torchdata's `StatefulDataLoader`; if after the loop, the
        next epoch.

        Args:
            state_dict: What `state_dict` returned, on any rank and for any number of ranks.

        Raises:
            ValueError: It is not the state of a loader, or it belongs to other data.
            TypeError: The sampler has no state.
        """
        check_mapping("state_dict", state_dict, "what state_dict() of a Loader returned")
        if "sampler" not in state_dict:
            raise ValueError(
                f"state_dict: expected the state of a wids.Loader, with a key 'sampler', got the "
                f"keys {', '.join(map(repr, state_dict)) or '(none)'}"
            )
        self._saved_sampler().load_state_dict(state_dict["sampler"])
        self._progress = None

    def _stateful_batches(self) -> BatchSampler | None:
        """Return the batch sampler if it has a state that can be saved; else None."""
        if isinstance(self.batch_sampler, BatchSampler):
            return self.batch_sampler
        if isinstance(self.sampler, ChunkedSampler):
            return BatchSampler(self.sampler, self.batch_size, self.drop_last)
        return None

    def _saved_sampler(self) -> BatchSampler:
        sampler = self._stateful_batches()
        if sampler is None:
            given = self.sampler if self.batch_sampler is None else self.batch_sampler
            raise TypeError(
                f"{type(given).__name__} cannot say where it stands after a number of indexes; to "
                "save and restore a loader, give it a sampler of wids"
            )
        return sampler

    def _cut(self, indexes: Iterator[Any]) -> Iterator[Sequence[int]]:
        """Cut the indexes of a sampler into batches."""
        while batch := list(islice(indexes, self.batch_size)):
            if self.drop_last and len(batch) < self.batch_size:
                return
            yield batch

    def __repr__(self) -> str:
        how = f"batch_size={self.batch_size}" if self.batch_sampler is None else "batch_sampler"
        return f"Loader({self.dataset!r}, {how}, num_workers={self.num_workers})"


@dataclass
class _Progress:
    """Progress of a pass; the loader keeps it after the pass ends."""

    batches: BatchPass | PassIterator[Any] | None = None
    consumed: int = 0
    finished: bool = False


class LoaderPass(Iterator[Batch]):
    """Iterator over one pass of a `Loader`; leaving the loop over it ends its threads."""

    def __init__(
        self,
        progress: _Progress,
        batches: Iterator[Batch],
        threads: OrderedMap[Any, Any] | None,
        receive: Callable[[Batch], None] | None = None,
        stats: LoaderStats | None = None,
        *,
        schedule: Schedule | None = None,
    ) -> None:
        self._progress = progress
        self._receive = receive
        self._batches = batches
        self._threads = threads
        self._loop_clock = None if stats is None else LoopClock(stats)
        self._schedule = schedule
        if schedule is not None:
            # First of all: threads that wait for a server would not end.
            weakref.finalize(self, schedule.close).atexit = False

    def __next__(self) -> Batch:
        if self._loop_clock is not None:
            with self._loop_clock.request():
                return self._next()
        return self._next()

    def _next(self) -> Batch:
        try:
            batch = next(self._batches)
        except StopIteration:
            self._progress.finished = True
            self.close()
            raise
        self._progress.consumed += 1
        if self._receive is not None:
            self._receive(batch)
        return batch

    def close(self) -> None:
        """End the pass: each thread finishes its current batch and ends."""
        if self._schedule is not None:
            self._schedule.close()
        if self._threads is not None:
            self._threads.close()
        self._batches = iter(())
        self._schedule = None


def _timed_draws(batches: Iterator[Sequence[int]], stats: LoaderStats) -> Iterator[Sequence[int]]:
    while True:
        with stats.timed("draw"):
            batch = next(batches, None)
        if batch is None:
            return
        yield batch


def _check_samplers(sampler: object, batch_sampler: object) -> None:
    """Refuse samplers of a wrong type, which would fail only at the first batch."""
    for name, value in (("sampler", sampler), ("batch_sampler", batch_sampler)):
        if value is not None and (isinstance(value, str) or not hasattr(value, "__iter__")):
            raise TypeError(f"{name} must yield indexes, got {value!r}; give a sampler or a list")
    if isinstance(sampler, BatchSampler):
        raise TypeError(
            "sampler yields batches of indexes, got a BatchSampler; give batch_sampler="
        )
    if isinstance(batch_sampler, ChunkedSampler):
        raise TypeError(
            f"batch_sampler must yield batches of indexes, got a {type(batch_sampler).__name__}; "
            "give it as sampler=, or wrap it in wids.BatchSampler"
        )
