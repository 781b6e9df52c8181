"""Writing of an opened source to shards, with what the shards lack."""

from __future__ import annotations

from array import array
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from wids.base.files import named_write_errors
from wids.base.progress import progress
from wids.importing.importers import open_source
from wids.specs.newspec import refuse_overwriting, spec_path_for
from wids.writing.shardwriter import ShardWriter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from wids.base.omissions import Omissions
    from wids.importing.options import ImportOptions

__all__ = ["Written", "import_shards"]

_MASK = (1 << 64) - 1


@dataclass(frozen=True)
class Written:
    """Result of `import_shards`.

    Attributes:
        spec: Path of the spec.
        entries: Its entries of the new shards.
        omissions: Counts of the data that the shards lack, and of keys that they hold twice.
    """

    spec: str
    entries: list[dict[str, Any]]
    omissions: Omissions


def import_shards(
    sources: Sequence[str],
    pattern: str,
    kind: str | None,
    import_options: ImportOptions,
    **options: Any,
) -> Written:
    """Convert a dataset in another format to shards and their spec.

    Args:
        sources: Paths or URLs.
        pattern: Path of the new shards, with a `%d` for their number.
        kind: Kind of the sources, as for `open_source`.
        import_options: Options of the import.
        options: As for `ShardWriter`.

    Raises:
        ValueError: The sources cannot be opened, are malformed or hold no samples; or something
            would be left out, and the options are strict. Notes of the error tell which complete
            shards stay.
        OSError: A file cannot be read or written.
    """
    # Before anything is written, so that a slip in a name costs no older shards.
    imported = open_source(sources, kind, import_options)
    spec = spec_path_for(pattern)
    refuse_overwriting(pattern, imported.shards)
    # Errors of most sources show with the first sample, too: nothing was replaced by then.
    samples = iter(imported.samples)
    first = next(samples, None)
    if first is None:
        raise ValueError(
            f"{' '.join(sources)}: holds no samples, nothing was written; check the path, or say "
            "what it is with --from"
        )
    new_folders = [folder for folder in Path(pattern).parents if not folder.exists()]
    writer = ShardWriter(pattern, spec=spec, **options)
    keys = array("Q")
    shown = progress(chain([first], samples), total=imported.total, desc="importing", unit="sample")
    try:
        with named_write_errors(pattern), writer:
            writer.header |= imported.header
            for number, sample in enumerate(shown):
                if len(sample) == 1:
                    key = str(sample["__key__"])
                    imported.omissions.add("samples without any field", key)
                    continue
                if import_options.rekeyed:
                    sample["__key__"] = f"{number:09d}"
                try:
                    writer.write(sample)
                except ValueError as error:
                    more = f" and {len(sources) - 1} more" if len(sources) > 1 else ""
                    raise ValueError(f"{sources[0]}{more}: sample {number}: {error}") from error
                keys.append(hash(sample["__key__"]) & _MASK)
            # Of all shards: the writer refuses those of one.
            hashes = np.frombuffer(keys, np.uint64)
            order = np.argsort(hashes, kind="stable")
            again = np.flatnonzero(hashes[order][1:] == hashes[order][:-1])
            if len(again):
                example = f"samples {order[again[0]]} and {order[again[0] + 1]}"
                what = "samples with the key of an earlier one (--rekey numbers them)"
                imported.omissions.add_doubtful(what, example, len(again))
    except BaseException as error:
        if entries := writer.shardlist:
            error.add_note(
                f"{spec}: not written; {len(entries)} complete shards stay, {entries[0]['url']} to "
                f"{entries[-1]['url']}. Once the cause is mended, the same command with --resume "
                f"goes on after them (--strict may be left out); else remove them and "
                f"{spec}.journal"
            )
        for folder in new_folders:  # the innermost first
            with suppress(OSError):  # it has files, such as complete shards, or was not made
                folder.rmdir()
        raise
    return Written(spec, writer.shardlist, imported.omissions)
