"""`SharedBatches`: batches that leave a DataLoader's workers without being pickled.

A worker of a plain DataLoader pickles the fields of a batch into a pipe, and the main process
unpickles them. Here the worker writes each column into a buffer of shared memory, and pickles the
number of the buffer. Small columns, and values that are no arrays, are pickled as usual.
"""

from __future__ import annotations

import io
import math
import os
import pickle
import secrets
import sys
import threading
import weakref
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from wids.base.arguments import check_callable, check_integer, check_sized
from wids.base.processes import num_loader_workers
from wids.reading.batches import Batch, batch_maker
from wids.reading.collate import as_tensors
from wids.reading.pipeline import no_end
from wids.reading.sharedbuffers import (
    BufferReceiver,
    BufferSender,
    Bytes,
    NewBuffer,
    SharedBuffer,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["SharedBatches"]

# Below this size, to pickle an array costs less than to look after a buffer.
_LEAST_NBYTES = 8192

# The receivers of this process by the identity of their `SharedBatches`, which keeps them alive.
_RECEIVERS: weakref.WeakValueDictionary[str, BufferReceiver] = weakref.WeakValueDictionary()


class SharedBatches:
    """Dataset for a `DataLoader` whose workers hand over batches in shared memory.

    It is given to the DataLoader twice: as the dataset, and its `collate` as `collate_fn`. The
    batches are those of `wids.Loader`: a dict of columns, raw fields as a `Ragged`, or what a
    `collate_fn` of your own returns, with the types that it has there. Samplers, batch samplers,
    any number of workers, every start method, `persistent_workers` and a StatefulDataLoader work as
    before.

    A worker reuses the memory of a batch only when nothing in the main process refers to that batch
    any more, so batches can safely be kept, also by a process that is forked from it.

    Args:
        dataset: A `ShardListDataset`, or anything with `len(dataset)` and `dataset[index]`.
        collate_fn: Function from a list of samples to a batch, called in the workers; None: as
            `wids.Loader` does. Arrays and tensors of its result are handed over in shared memory,
            all else is pickled.
        memory: Bound in bytes on the shared memory of each worker. Further columns, while the
            main process keeps so many batches, are pickled.

    Raises:
        TypeError: The dataset has no length, or `collate_fn` is no function.
        ValueError: `memory` is negative.

    >>> import tempfile, wids
    >>> from torch.utils.data import DataLoader
    >>> folder = tempfile.mkdtemp()
    >>> with wids.ShardWriter(f"{folder}/train-%03d.tar") as writer:
    ...     for number in range(5):
    ...         writer.write({"__key__": f"{number}", ".txt": "abc" * number})
    >>> dataset = wids.ShardListDataset(folder, transformations="bytes")
    >>> batches = SharedBatches(dataset)
    >>> loader = DataLoader(batches, batch_size=2, num_workers=1, collate_fn=batches.collate)
    >>> [batch[".txt"].offsets.tolist() for batch in loader]
    [[0, 0, 3], [0, 6, 15], [0, 12]]
    """

    def __init__(
        self,
        dataset: Any,
        *,
        collate_fn: Callable[[list[Any]], Batch] | None = None,
        memory: int = 1 << 29,
    ) -> None:
        check_sized("dataset", dataset, "a dataset")
        self.dataset = dataset
        self.collate_fn = None if collate_fn is None else check_callable("collate_fn", collate_fn)
        self.memory = check_integer("memory", memory, 0)
        self._identity = secrets.token_hex(8)
        self._begin()

    def _begin(self) -> None:
        # Pickled copies in one process share their receiver: the identity is that of all.
        self._receiver = _RECEIVERS.setdefault(self._identity, BufferReceiver())
        self._worker: _Worker | None = None

    def __len__(self) -> int:
        """Number of samples."""
        return len(self.dataset)

    def __getitem__(self, index: int) -> Any:
        """Return one sample of the dataset."""
        return self.dataset[index]

    def __getitems__(self, indexes: Sequence[int]) -> _Made:
        """Make the batch of some samples, for `collate`; DataLoader calls it."""
        worker = self._worker
        # Neither buffers nor open shards survive a fork.
        if worker is None or worker.pid != os.getpid():
            in_worker = num_loader_workers() > 0
            worker = self._worker = _Worker(self, BufferSender(self.memory if in_worker else 0))
        return worker.made(indexes)

    def collate(self, made: _Made) -> Any:
        """Return a batch, in a worker as a message to the main process; the `collate_fn`.

        Args:
            made: What a worker handed over for a batch.

        Raises:
            TypeError: The batch was made by another dataset than this one.
        """
        if not isinstance(made, _Made):
            raise TypeError(
                f"expected a batch of SharedBatches, got {type(made).__name__}; give the "
                "DataLoader the SharedBatches as its dataset, too"
            )
        return made.handed_over(self._identity) if num_loader_workers() else made.finished()

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_receiver": None, "_worker": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._begin()

    def __repr__(self) -> str:
        return f"SharedBatches({self.dataset!r}, memory={self.memory:,})"


class _Worker:
    """What a process needs to make batches: its buffers and the function that fills them."""

    def __init__(self, batches: SharedBatches, sender: BufferSender) -> None:
        self.pid = os.getpid()
        self.sender = sender
        self._taken: list[SharedBuffer] = []
        self._make = batch_maker(batches.dataset, batches.collate_fn, self._allocator)
        # What a function of the user returns keeps its types, as in any loader.
        self._tensors = batches.collate_fn is None

    def made(self, indexes: Sequence[int]) -> _Made:
        """Make the batch of some samples."""
        self._taken = []
        try:
            return _Made(self._make(indexes), self._taken, self.sender, tensors=self._tensors)
        except BaseException as error:
            for buffer in self._taken:
                buffer.give_back()
            if isinstance(error, StopIteration):
                raise no_end(f"while reading samples {indexes}") from error
            raise

    def _allocator(self, field: str) -> Callable[[int], Bytes]:
        return partial(self._allocate, field)

    def _allocate(self, field: str, nbytes: int) -> Bytes:
        buffer = self.sender.take(nbytes, field) if nbytes >= _LEAST_NBYTES else None
        if buffer is None:
            return np.empty(nbytes, np.uint8)
        self._taken.append(buffer)
        return buffer.data[:nbytes]


class _Made:
    """A batch in the process that made it, on its way from `__getitems__` to `collate`."""

    def __init__(
        self, batch: Batch, taken: list[SharedBuffer], sender: BufferSender, *, tensors: bool
    ) -> None:
        self._batch = batch
        self._taken = taken
        self._sender = sender
        self._tensors = tensors

    def __getitem__(self, index: int) -> Any:
        # What other collate functions do first.
        raise TypeError(
            "this batch is for SharedBatches.collate alone; give the DataLoader "
            "collate_fn=batches.collate, and your own function to SharedBatches"
        )

    def finished(self) -> Batch:
        """Return the batch in the process that made it."""
        return as_tensors(self._batch) if self._tensors else self._batch

    def handed_over(self, identity: str) -> _Message:
        """Return the message to the main process."""
        text = io.BytesIO()
        pickler = _Pickler(text, self._taken, self._sender)
        try:
            pickler.dump((self._batch, self._tensors))
        except BaseException:
            pickler.sent.clear()
            raise
        finally:
            for buffer in self._taken:
                if buffer.number not in pickler.sent:
                    buffer.give_back()
        sent = [buffer for buffer in self._taken if buffer.number in pickler.sent]
        return _Message(identity, text.getvalue(), *self._sender.news(sent))


class _Pickler(pickle.Pickler):
    """Pickles a batch, with a reference in place of each array and tensor in a buffer.

    Attributes:
        sent: Numbers of the buffers that were referred to.
    """

    def __init__(self, file: io.BytesIO, taken: list[SharedBuffer], sender: BufferSender) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self._taken = taken
        self._sender = sender
        self.sent: set[int] = set()

    # Not `persistent_id`, which is called for each key of the batch, too.
    def reducer_override(self, obj: Any) -> Any:
        """Return a function and buffer, offset, type and shape of an array or a tensor."""
        reduced = self._in_buffer(obj)
        if reduced is None and _is_part(obj):
            # A tensor is pickled with all of the memory that it is a view of.
            part = obj.clone()
            reduced = self._in_buffer(part) or part.__reduce_ex__(pickle.HIGHEST_PROTOCOL)
        return NotImplemented if reduced is None else reduced

    def _in_buffer(self, obj: Any) -> Any:
        """Return how to find an array or a tensor in a buffer; None if it is not in one."""
        array = obj if type(obj) is np.ndarray else _bytes_of_tensor(obj)
        if array is None or array.nbytes < _LEAST_NBYTES or array.dtype.hasobject:
            return None
        if not array.flags.c_contiguous:
            return None
        found = self._find(array) or self._copy(array)
        if found is None:
            return None
        buffer, offset = found
        self.sent.add(buffer.number)
        return _lent, (buffer.number, offset, obj.dtype, tuple(obj.shape))

    def _find(self, array: Any) -> tuple[SharedBuffer, int] | None:
        address = array.ctypes.data
        for buffer in self._taken:
            offset = address - buffer.data.ctypes.data
            # A tensor cannot begin between two elements.
            if 0 <= offset < buffer.nbytes and offset % 64 == 0:
                return buffer, offset
        return None

    def _copy(self, array: Any) -> tuple[SharedBuffer, int] | None:
        buffer = self._sender.take(array.nbytes, "")
        if buffer is None:
            return None
        self._taken.append(buffer)
        buffer.data[: array.nbytes] = array.reshape(-1).view(np.uint8)
        return buffer, 0


def _bytes_of_tensor(obj: Any) -> Any:
    """Return the memory of a plain, contiguous tensor as an array of bytes; None for others."""
    if not _is_plain_tensor(obj) or not obj.numel() or not obj.is_contiguous():
        return None
    return obj.view(-1).view(sys.modules["torch"].uint8).numpy()


def _is_part(obj: Any) -> bool:
    """Return whether an object is a plain tensor that is a view of a part of some memory."""
    if not _is_plain_tensor(obj):
        return False
    return bool(obj.untyped_storage().nbytes() > obj.numel() * obj.element_size())


def _is_plain_tensor(obj: Any) -> bool:
    torch = sys.modules.get("torch")
    if torch is None or type(obj) is not torch.Tensor or obj.requires_grad:
        return False
    on_cpu = obj.device.type == "cpu" and obj.layout is torch.strided
    return on_cpu and not (obj.is_quantized or obj.is_conj() or obj.is_neg())


class _Message:
    """A batch on its way to the main process: unpickled, it is the batch itself."""

    def __init__(
        self, identity: str, text: bytes, new: list[NewBuffer], dropped: list[int]
    ) -> None:
        self._parts = identity, os.getpid(), text, new, dropped

    def __reduce__(self) -> tuple[Any, ...]:
        return _receive, self._parts


def _receive(
    identity: str, sender: int, text: bytes, new: list[SharedBuffer], dropped: list[int]
) -> Any:
    receiver = _RECEIVERS.get(identity)
    if receiver is None:
        raise RuntimeError(
            "a batch of SharedBatches came to a process that has not made its DataLoader; send it "
            "a copy of what the DataLoader returned"
        )
    receiver.learn(sender, new, dropped)
    before, _received.leases = _received.leases, _Leases(receiver, sender)
    try:
        batch, tensors = pickle.loads(text)  # noqa: S301 (a worker of this process wrote it)
        return as_tensors(batch) if tensors else batch
    finally:
        _received.leases = before


class _Leases:
    """Leases of the buffers of a batch; all columns in one buffer share one lease."""

    def __init__(self, receiver: BufferReceiver, sender: int) -> None:
        self._receiver = receiver
        self._sender = sender
        self._leases: dict[int, Bytes] = {}

    def of(self, number: int) -> Bytes:
        """Return the memory of a buffer."""
        if number not in self._leases:
            self._leases[number] = self._receiver.lease(self._sender, number)
        return self._leases[number]


class _Received(threading.local):
    """The batch that the current thread is unpickling."""

    leases: _Leases | None = None


_received = _Received()


def _lent(number: int, offset: int, dtype: Any, shape: tuple[int, ...]) -> Any:
    """Return an array or a tensor in a buffer of the batch that is unpickled."""
    leases = _received.leases
    if leases is None:
        raise RuntimeError("an array in shared memory is unpickled only as a part of its batch")
    count = math.prod(shape)
    memory = leases.of(number)[offset : offset + count * dtype.itemsize]
    if isinstance(dtype, np.dtype):
        return memory.view(dtype).reshape(shape)
    import torch

    return torch.from_numpy(memory).view(dtype).view(shape)
