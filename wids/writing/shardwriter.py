"""`ShardWriter`: writer of samples to numbered shards of bounded size, and of their spec.

It fills one shard after another by the rules of `docs/writing.md`. A shard appears under its final
name only when it is complete. Of an earlier run that ended early, `WholeShards` finds the complete
shards, whose samples are skipped.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, Unpack

from wids.base.arguments import check_callable, check_flag, check_integer, check_number, check_path
from wids.base.files import raise_named, remove_parts, write_output
from wids.base.hashing import hash_file
from wids.base.urls import display_url
from wids.specs.journal import Journal, is_left_over
from wids.specs.newspec import name_in_spec, new_spec, shard_entry
from wids.tar.shard import Shard
from wids.tar.sidecar import SIDECAR_SUFFIX
from wids.tar.tarindex import TarIndex
from wids.writing.memberwriter import member_nbytes
from wids.writing.sampleencoder import Encoder, SampleEncoder
from wids.writing.shardfile import NewShard, ShardOptions, shard_options, warn_of_older

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

__all__ = ["ShardWriter", "WholeShards"]

Members = Sequence[tuple[str, Any]]


class ShardWriter:
    """Writer of samples to numbered shards of bounded size.

    Use it in a `with` block, or call `close`: only then do the last shard and the spec appear. If
    the block raises, the unfinished shard is removed.

    Attributes:
        shardlist: Spec entry of each complete shard: `url`, `nsamples`, `filesize`, `md5sum`,
            `sha256`.
        header: Top-level keys of the spec, such as `info`; may be changed until `close`.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     with ShardWriter(f"{folder}/train-%06d.tar", maxcount=2) as writer:
    ...         for number in range(3):
    ...             writer.write({"__key__": f"{number:04}", "cls": number})
    ...     print([(shard["url"], shard["nsamples"]) for shard in writer.shardlist])
    [('train-000000.tar', 2), ('train-000001.tar', 1)]
    """

    def __init__(
        self,
        pattern: str | os.PathLike[str],
        # Both defaults are those of webdataset's writer, so that a ported program makes the same
        # shards.
        maxcount: int = 100_000,
        maxsize: int = 3_000_000_000,
        post: Callable[[str], object] | None = None,
        start_shard: int = 0,
        *,
        encoders: Mapping[str, Encoder] | None = None,
        spec: str | os.PathLike[str] | None = None,
        resume: bool = False,
        rank: int = 0,
        num_replicas: int = 1,
        **options: Unpack[ShardOptions],
    ) -> None:
        """Create a writer; no shard appears before it is complete.

        Args:
            pattern: Path of the shards with a %-format for their number: `"train-%06d.tar"`.
            maxcount: Maximum number of samples in a shard, `>= 1`.
            maxsize: Maximum number of bytes in a shard, `>= 1`; only a single sample larger than
                that exceeds it.
            post: Called with the path of each complete shard, for example to upload it.
            start_shard: Number of the first shard, `>= 0`.
            encoders: Encoders by extension that extend or replace the built-in ones, as for
                `SampleEncoder`.
            spec: Path of the JSON spec of all shards, which `close` writes; none by default.
            resume: Continue after the existing complete shards. Give the same samples again, in the
                same order: those in complete shards are skipped. Their keys, bytes, texts and
                numbers are compared with what is there; pictures and arrays are not encoded for
                that. Or call `skip_written` and begin after them. A journal next to `spec` records
                progress. Without `spec`, the existing shards are read, and shards of an older run
                cannot be distinguished from shards of the run that crashed.
            rank: Index of this writer among several writers of one dataset, in `[0, num_replicas)`.
            num_replicas: Number of these writers. Writer `rank` makes every `num_replicas`-th shard
                from `start_shard + rank` on, and a spec of its own: `train-00000-of-00004.json`;
                `wids merge` merges them.
            **options: Options for each shard. `mtime=0`: modification time of all members, in
                seconds since 1970. `sidecars=False`: write each shard's tar index next to it.
                `digests=("md5", "sha256")`: digests in the spec; on a fast disk MD5 alone can take
                longer than everything else together. `fsync=False`: sync each shard to disk before
                it gets its name, so that a power failure leaves no incomplete shard. Without it,
                shards are complete after a crash of the process, but not after a power failure.

        Raises:
            ValueError: The pattern, a bound or a digest is invalid.
            TypeError: An option does not exist.
        """
        text = check_path("pattern", pattern)
        shown = f"pattern {display_url(text)!r}"
        try:
            distinct = text % 0 != text % 1
        except (TypeError, ValueError):  # no place for a number, several, or one of another kind
            distinct = False
        if not distinct:
            raise ValueError(
                f"{shown}: expected one place for the shard's number, as in 'train-%06d.tar' (%% "
                "is a percent sign); wids.TarWriter writes a single tar"
            )
        # Atomic publication needs a rename, which object stores do not have for files of gigabytes.
        if "://" in text or text.startswith("pipe:"):
            raise ValueError(
                f"{shown}: shards are written to local files; upload them from there (in Python, "
                "post= is called with each shard as soon as it is complete)"
            )
        if not text.endswith(".tar"):
            raise ValueError(
                f"{shown}: must end in '.tar'; shards are plain tar, so that every sample "
                "can be found (compress the fields instead: 'txt.gz')"
            )
        self._pattern = text
        # Bounds may be floats, such as 3e9.
        check_number("maxcount", maxcount, 1)
        check_number("maxsize", maxsize, 1)
        start_shard = check_integer("start_shard", start_shard, 0)
        num_replicas = check_integer("num_replicas", num_replicas, 1)
        rank, resume = check_integer("rank", rank), check_flag("resume", resume)
        if post is not None:
            check_callable("post", post, "a function of the path of a shard")
        if not 0 <= rank < num_replicas:
            raise ValueError(
                f"rank must lie in [0, num_replicas), got {rank} of {num_replicas} writers"
            )
        self._maxcount = maxcount
        self._maxsize = maxsize
        self._number = start_shard + rank
        self._step = num_replicas
        self._post = post
        self._encode = SampleEncoder(encoders)
        given = self._spec = None if spec is None else Path(check_path("spec", spec))
        if given is not None and num_replicas > 1:  # each of several writers has its own
            name = f"{given.stem}-{rank:05d}-of-{num_replicas:05d}{given.suffix}"
            self._spec = given.with_name(name)
        self.header: dict[str, Any] = {} if given is None else {"name": given.stem}
        self._options = shard_options(**options)
        self._open: NewShard | None = None
        self._closed = False
        journal = None if self._spec is None else self._spec.with_name(f"{self._spec.name}.journal")
        self._journal = Journal(journal)
        self.shardlist: list[dict[str, Any]] = []
        self._whole = self._find_whole() if resume else None
        if not resume:
            self._journal.begin(path for path, _ in self._existing())

    def _existing(self) -> list[tuple[Path, str]]:
        """Return paths of the existing shards up to the first gap, with their names in the spec."""
        folder = self._folder()
        # Only up to the first gap: shards after it belong to another run.
        paths = []
        number = self._number
        while (path := Path(self._pattern % number)).exists():
            paths.append((path, name_in_spec(str(path), folder)))
            number += self._step
        return paths

    def _find_whole(self) -> WholeShards:
        """Return the complete shards of an earlier run; post and record the new ones."""
        noted, left = self._journal.entries(), self._journal.left_over()
        # A run without `resume` replaces the shards of an older run one by one. After a crash, the
        # shards that it had not replaced yet do not belong to it.
        paths = list(
            takewhile(
                lambda row: row[1] in noted or not is_left_over(row[0], left), self._existing()
            )
        )
        self._number += len(paths) * self._step
        path = Path(self._pattern % self._number)
        # A process that died while it finished this shard may have left an incomplete sidecar.
        remove_parts(path.parent, [f"{path.name}{SIDECAR_SUFFIX}"], of_living=True)
        whole = WholeShards(paths, noted, self._options["digests"])
        for path, entry in whole.unnoted:
            self._record(path, entry)
        self.shardlist += whole.entries
        return whole

    def _folder(self) -> Path:
        """Return the folder to which the URLs of the spec are relative."""
        return Path(self._pattern).parent if self._spec is None else self._spec.parent

    def skip_written(self) -> int:
        """Skip the samples of the shards that are already complete.

        Returns:
            Their number, which is the index of the first sample to write. 0 without `resume`.
        """
        return 0 if self._whole is None else self._whole.skip()

    def write(self, sample: Mapping[str, Any]) -> None:
        """Write one sample, all of it into one shard.

        Args:
            sample: `__key__` and one value per extension: `{"__key__": "0001", "jpg": data}`.
                Bytes are written unchanged, other values are encoded by their extension.

        Raises:
            ValueError: The sample cannot be written; the message says why. Nothing was written.
        """
        if self._whole is None or not self._whole.pass_by(
            sample.get("__key__"), lambda: self._encode.quick_members(sample)
        ):
            self._write(*self._encode(sample))

    def _write(self, key: str, members: Members) -> None:
        """Write a sample to the open shard, or to the next one if that is full."""
        if self._closed:
            raise ValueError(f"sample {key!r}: this ShardWriter is closed; open a new one")
        # Summed before the shard is chosen, so that a sample never spans two shards.
        nbytes = 0
        for name, data in members:
            nbytes += member_nbytes(name, data)
        shard = self._open
        # A full shard is closed when the next sample comes, so that no shard is without samples.
        if shard is not None and (
            len(shard.archive.places) >= self._maxcount
            or shard.archive.nbytes + nbytes > self._maxsize
        ):
            self._finish_shard()
            shard = None
        if shard is None:
            path = Path(self._pattern % self._number)
            shard = self._open = NewShard(path, self._options)
        try:
            shard.archive.write(key, members)
        except OSError as error:
            raise_named(error, shard.path)

    def _finish_shard(self) -> None:
        """Publish the open shard and record its spec entry."""
        shard = self._open
        if shard is None:
            return
        # Reset first: `close` must not retry a shard that could not be published.
        self._open = None
        entry = shard.publish(self._folder())
        self.shardlist.append(entry)
        self._number += self._step
        self._record(shard.path, entry)

    def _record(self, path: Path, entry: dict[str, Any]) -> None:
        """Call `post`, then record the shard; after a crash in between, `post` is called again."""
        if self._post is not None:
            self._post(str(path))
        self._journal.note(entry)

    def close(self) -> None:
        """Publish the last shard and write the spec; a second call does nothing.

        Warns of shards with higher numbers, which an earlier and longer run has left.
        """
        if self._closed:
            return
        if self._whole is not None:
            self._whole.check_all_passed()
        self._finish_shard()
        self._closed = True
        if self._spec is not None:
            spec = new_spec(self.shardlist, self.header)
            write_output(self._spec, f"{spec.to_json()}\n".encode())
            # The journal is removed after the spec, which holds the same entries, was written, so
            # that a crash in between loses nothing.
            self._journal.remove()
        # The warning comes last, since a warnings filter may turn it into an error.
        warn_of_older(self._pattern, self._number, self._step)

    def abandon(self) -> None:
        """Remove the unfinished shard; complete shards stay, no spec is written."""
        self._closed = True
        if self._open is not None:
            self._open.discard()
            self._open = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self.abandon()


class WholeShards:
    """Complete shards of an earlier run, whose samples need not be written again.

    Attributes:
        entries: Their spec entries, in order.
        unnoted: Path and entry of each complete shard that the journal does not list.
        num_samples: Number of samples in all of them.
        num_passed: Number of samples skipped so far.
    """

    def __init__(
        self,
        paths: Iterable[tuple[Path, str]],
        noted: Mapping[str, dict[str, Any]],
        digests: Collection[str],
    ) -> None:
        """Read the entries of complete shards.

        Args:
            paths: Each shard with its name in the spec, in order.
            noted: Entries in the journal, by name; a shard without one is read and digested.
            digests: Digests that an entry needs, of "md5" and "sha256".

        Raises:
            ShardFormatError: A shard is not complete, so this writer did not publish it.
        """
        self._paths: list[Path] = []
        self.entries: list[dict[str, Any]] = []
        self.unnoted: list[tuple[Path, dict[str, Any]]] = []
        for path, name in paths:
            # A shard is published before its entry is noted. After a crash in between it exists
            # without an entry, and is read again.
            entry = noted.get(name)
            if entry is None or not _still_says_all(entry, path, digests):
                nsamples = TarIndex.from_tar(path).num_samples
                entry = shard_entry(name, nsamples, path.stat().st_size, hash_file(path, digests))
                self.unnoted.append((path, entry))
            self._paths.append(path)
            self.entries.append(entry)
        self.num_samples: int = sum(entry["nsamples"] for entry in self.entries)
        self.num_passed = 0
        self._samples = self._all_samples()

    def _all_samples(self) -> Iterator[tuple[Path, str, dict[str, Any]]]:
        for path in self._paths:
            # One shard at a time, because the keys of all shards might not fit into memory.
            with Shard(path) as shard:
                for local_index, key in enumerate(shard.keys):
                    yield path, key, shard.read(local_index)

    def pass_by(self, key: Any, members: Callable[[], Iterable[tuple[str, Any]]] = tuple) -> bool:
        """Return whether the next sample is in a complete shard, and count it as skipped.

        Args:
            key: Key of the sample.
            members: Function that returns name and bytes of those of its members that are compared
                with what is there.

        Returns:
            True if the sample need not be written.

        Raises:
            ValueError: The shards hold another sample at this position, or another member of it.
        """
        if self.num_passed == self.num_samples:
            return False
        path, expected, there = next(self._samples)
        # The keys are compared, because samples in another order would silently be lost.
        if key != expected:
            raise ValueError(
                f"resume: sample {self.num_passed} is {key!r}, the shards that are there have "
                f"{expected!r}; give the same samples in the same order, or remove the shards"
            )
        for name, data in members():
            if there.get(name.removeprefix(expected)) != data:
                raise ValueError(
                    f"resume: sample {self.num_passed}: {name} is not what {path} holds, so the "
                    "source has changed since; begin anew without resume (--resume)"
                )
        self.num_passed += 1
        return True

    def skip(self) -> int:
        """Skip all remaining samples at once, and return their number."""
        skipped = self.num_samples - self.num_passed
        self.num_passed = self.num_samples
        return skipped

    def check_all_passed(self) -> None:
        """Raise unless all samples of the complete shards were given again.

        Raises:
            ValueError: Some samples were not given.
        """
        if self.num_passed < self.num_samples:
            raise ValueError(
                f"resume: only {self.num_passed} samples came, the shards that are there hold "
                f"{self.num_samples}; give the same samples again, or remove the shards"
            )


def _still_says_all(entry: dict[str, Any], path: Path, digests: Collection[str]) -> bool:
    """Return whether a journal entry matches a file and has all requested digests."""
    fields = shard_entry(entry["url"], 0, 0, dict.fromkeys(digests, ""))
    # Only the size is compared: a replaced shard almost always has another size, and hashing all
    # shards would take hours.
    return fields.keys() <= entry.keys() and entry["filesize"] == path.stat().st_size
