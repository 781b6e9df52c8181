"""Process that asks the catalogue for the server: `python -m wids.browse.sqlworker`.

A condition of a visitor can make DuckDB busy for minutes or take gigabytes, so it runs within
limits of memory and processor time. The first request brings the samples, pickled by the server,
and says whether the process builds what is missing in the catalogue, or asks it.
"""

from __future__ import annotations

import json
import os
import pickle
import signal
import sys
import tempfile
import warnings
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from wids.base.optional import load
from wids.base.system import limit_process, num_cores
from wids.browse.failures import message_of
from wids.browse.fieldreader import FieldReader
from wids.browse.questions import NeedsHeadersError, Questions
from wids.browse.scans import begun
from wids.browse.workerprocess import receive, send, serving
from wids.catalogue.files import files_of
from wids.catalogue.origins import datasets_of
from wids.catalogue.samples import SampleTable
from wids.errors import CacheError, ShardChangedError, WidsError
from wids.views.storage import sides_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from wids.catalogue.files import CatalogueFile
    from wids.fetching.transport import FetchPolicy
    from wids.reading.shardlist import ShardList

__all__: list[str] = []

_MOST_MESSAGES = 20


def build(
    datasets: Sequence[Any], patience: FetchPolicy, opening: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    """Build what is missing in the catalogue, and yield how far it is.

    Shards that would have to be fetched whole are left out, as are those that cannot be read.

    Args:
        datasets: The datasets of the samples.
        patience: Timeouts and number of attempts of requests.
        opening: `headers`, columns of headers that are wanted, too; and `failing`, pairs of a shard
            of the first dataset that cannot be read now, and the reason.

    Yields:
        `left_out`, for each dataset the numbers of the shards left out; the `progress` that the
        page shows; and whether it is `finished`. Then there are `versions`, too: for each dataset,
        the numbers and versions of shards that are read by range, by which their files are found.
    """
    readers = [FieldReader(dataset, patience=patience) for dataset in datasets]
    left_out: list[list[int]] = [[] for _ in datasets]
    progress = begun(sum(reader.num_shards for reader in readers))
    told = {"left_out": left_out, "progress": progress, "finished": False}

    def leave_out(place: int, number: int, error: Exception | None = None) -> None:
        if number not in left_out[place]:
            left_out[place].append(number)
            progress["skipped"] += 1
        if error is None:
            progress["without_sidecar"] += 1
        elif len(progress["messages"]) < _MOST_MESSAGES:
            progress["messages"].append(message_of(error))

    failing = {number: OSError(reason) for number, reason in opening["failing"]}
    step = 16 * num_cores()
    for place, reader in enumerate(readers):
        failed = partial(leave_out, place)
        for start in range(0, reader.num_shards, step):
            readable = set()
            for number in range(start, min(start + step, reader.num_shards)):
                try:
                    if place == 0 and number in failing:
                        raise failing[number]
                    if reader.tar_index(number) is not None:
                        readable.add(number)
                    elif reader.num_samples(number):
                        leave_out(place, number)
                except (WidsError, OSError) as error:
                    failed(number, error)
                progress["shards_done"] += 1
            if readable:
                (samples,) = files_of(reader.dataset, only=readable, failed=failed)
                sizes = [file.structure.get("sizes") or {} for file in samples]
                its = [name for name in opening["headers"] if any(name in each for each in sizes)]
                if its:
                    files_of(reader.dataset, its, only=readable, failed=failed)
            yield told
    for reader, out in zip(readers, left_out, strict=True):
        cache = reader.dataset.cache
        if cache.cache_size is None:
            continue
        cache.trim(cache.cache_size)  # what was just made is evicted last
        try:
            files_of(reader.dataset, only={*range(reader.num_shards)} - {*out}, build=False)
        except FileNotFoundError as error:
            raise CacheError(
                f"the catalogue takes more than the {cache.cache_size:,} bytes of the cache folder "
                "that cache_size allows"
            ) from error
    known = [reader.dataset.dataset_shards.versions.items() for reader in readers]
    versions = [[(n, asdict(each)) for n, each in its if each.validator] for its in known]
    yield {**told, "finished": True, "versions": versions}


def _files(
    left_out: Mapping[int, set[int]], dataset: ShardList, headers: Sequence[str] = ()
) -> list[list[CatalogueFile]]:
    """Return the files of a dataset, without those of shards that are left out."""
    without = left_out[id(dataset)]
    only = set(range(len(dataset.shards))) - without
    try:
        return files_of(dataset, headers, only=only, build=False)
    except FileNotFoundError as error:
        if headers:
            raise NeedsHeadersError(list(headers)) from error
        # Of a shard that was replaced, or evicted by another process: it is built anew.
        raise ShardChangedError("a file of the catalogue is gone") from error


def _main(descriptor: int, nbytes: int) -> None:
    warnings.simplefilter("ignore")  # what is null in the catalogue, the page counts
    with serving(descriptor) as connection:
        opening, data = receive(connection)
        samples, patience = pickle.loads(data)  # noqa: S301 (of the server, our parent)
        sides = sides_of(samples)
        datasets: list[Any] = datasets_of(sides)
        if opening["call"] == "build":
            os.nice(5)
            try:
                for told in build(datasets, patience, opening):
                    versions = told.pop("versions", [])  # which may be those of many shards
                    send(connection, told, json.dumps(versions).encode())
            except (WidsError, OSError, ValueError, ModuleNotFoundError) as error:
                send(connection, {"failed": message_of(error)})
            return
        load("pyarrow.parquet", "sql")
        load("duckdb", "sql")
        left_out = {
            id(dataset): set(numbers)
            for dataset, numbers in zip(datasets, opening["left_out"], strict=True)
        }
        table = SampleTable(partial(_files, left_out))
        questions = Questions(sides, table)
        tempfile.gettempdir()  # which tries to write a file
        limit_process(nbytes)
        send(connection, {"opened": True})
        while True:
            request, data = receive(connection)
            rows = np.frombuffer(data, np.int64) if request["has_rows"] else None
            found: Any = None
            try:
                signal.setitimer(signal.ITIMER_PROF, request["seconds"])
                answer, found = questions.answer(request["call"], request["asked"], rows)
            except NeedsHeadersError as needs:
                answer = {"needs": needs.args[0]}
            except (ValueError, TypeError, MemoryError, ModuleNotFoundError) as error:
                answer = {"failed": message_of(error) or type(error).__name__}
            except (WidsError, OSError) as error:  # if a shard has changed, it is built anew
                is_changed = isinstance(error, ShardChangedError)
                answer = {"unreadable": "" if is_changed else message_of(error)}
            signal.setitimer(signal.ITIMER_PROF, 0)
            send(connection, answer, b"" if found is None else found.astype(np.int64).tobytes())


if __name__ == "__main__":
    _main(*map(int, sys.argv[1:]))
