"""Making of the spec of shards, with what belongs to it: journal, class names, pack, catalogue."""

from __future__ import annotations

import errno
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wids.base.files import write_output
from wids.base.urls import (
    display_url,
    file_name,
    is_compressed_name,
    is_local,
    local_path,
    scheme_of,
)
from wids.catalogue.files import publish
from wids.errors import SpecError
from wids.pack.packformat import PACK_SUFFIX, is_pack_name
from wids.specs.build import USUAL_DIGESTS, build_spec, default_name
from wids.specs.indexrules import rules_of, unusual_rules
from wids.specs.journal import Journal
from wids.specs.locations import SHARD_SUFFIXES
from wids.specs.merging import class_names, listed_classes
from wids.specs.newspec import name_in_spec, shard_entry
from wids.specs.rows import unique_keys
from wids.specs.sources import entries_at
from wids.specs.spec import DatasetSpec
from wids.tools.packing import write_pack
from wids.views.opening import refuse_view
from wids.views.viewable import ShardListDataset

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from wids.specs.build import Build
    from wids.tools.packing import Packed

__all__ = ["Created", "check_writable", "create_spec"]

_RULES = "rules"  # in the journal: by which the samples of a shard were counted, if unusual
# Keys that every run creates itself, or takes only from its arguments.
_MADE = {
    "__kind__",
    "wids_version",
    "name",
    "base",
    "base_path",
    "shardlist",
    "left_out",
    "catalogue",
}


@dataclass(frozen=True)
class Created:
    """Result of `create_spec`.

    Attributes:
        build: What was read of the shards.
        num_shards: Number of shards that were found.
        spec: The spec as it was written; None if shards could not be read.
        num_names: Number of class names that an old spec beside the shards has.
        lost: Top-level keys that the spec before it had, which is kept as `<output>.bak`.
        packed: What the pack was made of; None without one.
        catalogue: Path of the catalogue; None without one.
    """

    build: Build
    num_shards: int
    spec: DatasetSpec | None = None
    num_names: int = 0
    lost: Sequence[str] = ()
    packed: Packed | None = None
    catalogue: Path | None = None


def create_spec(
    sources: Sequence[str],
    output: Path | None,
    *,
    name: str | None = None,
    info: str | None = None,
    base: str | None = None,
    pack: str | None = None,
    catalogue: bool = False,
    skip_broken: bool = False,
    resume: bool = False,
    workers: int | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
    rules: Mapping[str, Any] | None = None,
    **options: Any,
) -> Created:
    """Index shards and write their spec, and on request their pack and catalogue.

    Args:
        sources: Shards, folders and patterns.
        output: Path of the spec; None to write none.
        name: Name of the dataset; None for that of the first shard, "" for none.
        info: Description of the dataset.
        base: Base of the spec, to which the sources are relative; None for its folder.
        pack: Path of the pack to write; None for none.
        catalogue: Write the catalogue beside the spec.
        skip_broken: As for `build_spec`.
        resume: Read no shard that an earlier run has read and that is unchanged since.
        workers: As for `build_spec`.
        cache_dir: As for `build_spec`.
        rules: As for `build_spec`.
        options: `digests`, `sidecar` and `index_dir`, as for `build_spec`.

    Returns:
        What was made. There is no spec if a shard could not be read and `skip_broken` is not set,
        or if none could; a later call with `resume` then reads only what is missing.

    Raises:
        ValueError: A source is no shard, or the options do not fit together.
        OSError: The spec cannot be written.
    """
    entries = [entry for source in sources for entry in _entries_of(source)]
    shards = [entry["url"] for entry in entries]
    listed = {entry["url"]: entry for entry in entries if len(entry) > 1}
    _check_outputs(output, pack, catalogue=catalogue)  # before hours of reading
    given = rules or {}
    digests, index_dir = options.get("digests"), options.get("index_dir")
    # With a base, names are relative to it and not to the folder of the spec.
    folder = Path() if output is None else output.parent
    # After output to a pipe there is nothing to resume from.
    journal = Journal(None if output is None else Path(f"{output}.indexing"))
    started = time.time_ns()
    old = {} if output is None else _old_document(output, resume=resume)
    known = {}
    if resume and output is not None:
        known = _known(old, output, journal, given, digests, index_dir)
    else:
        journal.remove()
    for url, entry in listed.items():  # a store has said which shards were replaced since
        if known.get(url, entry).get("filesize") != entry["filesize"]:
            del known[url]
    unusual = unusual_rules(rules_of(given))

    def note(entry: dict[str, Any]) -> None:
        journal.note({**entry, "indexed_since": started, **({_RULES: unusual} if unusual else {})})

    names = class_names(old)
    pack_name = None if pack is None else name_in_spec(os.path.abspath(pack), folder)  # noqa: PTH100
    if name is None:
        name = default_name(sources[0]) or default_name(shards[0])
    build = build_spec(
        shards,
        folder=None if base is not None else folder,
        header={
            "name": name or None,
            "info": info,
            "base": base,
            "pack": pack_name,
            "classes": listed_classes(names) if names else None,
        },
        known=known,
        note=note,
        workers=workers,
        listed=listed,
        skip_broken=skip_broken,
        # Otherwise the shards would be read once for the spec and once for the pack.
        kept_dir=None if pack is None else journal.sidecars,
        cache_dir=cache_dir,
        rules=given,
        **options,
    )
    if build.failures and (not skip_broken or not len(build.readable.shards)):
        return Created(build, len(shards))
    spec, packed, path = build.spec, None, None
    lost: list[str] = []
    if output is not None:
        if pack is not None:  # before the spec that names it
            # Each entry of the earlier spec names its row in the earlier pack.
            again = resume and old.get("pack") == pack_name
            packed = write_pack(
                DatasetSpec.parse(spec.to_json(), str(output)),  # with locations resolved
                pack,
                workers=workers,
                cache_dir=cache_dir,
                earlier=DatasetSpec.parse(old, str(output)).shards if again else (),
                kept_dir=journal.sidecars,
            )
            if index_dir is None:  # the sidecars of a run that had --index are in the pack now
                rows = [dict(shard) for shard in spec.shards]
                rows = [{key: row[key] for key in row if key != "index"} for row in rows]
                spec = DatasetSpec(rows, name=spec.name, base=spec.base, header=spec.header)
        lost = sorted(old.keys() - spec.header.keys() - _MADE)
        if lost:  # such as class names
            write_output(output.with_name(f"{output.name}.bak"), output.read_bytes())
        write_output(output, f"{spec.to_json()}\n".encode())
        journal.remove()
    if output is not None and catalogue:
        # The spec without it was written before, so that a run that is killed leaves one.
        with ShardListDataset(str(output), cache_dir=cache_dir) as dataset:
            path = publish(dataset, output.parent, output.stem)
        header = {**spec.header, "catalogue": path.name}
        spec = DatasetSpec(spec.shards, name=spec.name, base=spec.base, header=header)
        write_output(output, f"{spec.to_json()}\n".encode())
    return Created(build, len(shards), spec, len(names), lost, packed, path)


def _entries_of(source: str) -> list[dict[str, Any]]:
    """Return the entries of the shards that a location stands for; a store knows sizes, too.

    Raises:
        ValueError: It is that of a spec, a saved view or a pack.
    """
    is_file = Path(source).is_file()
    if file_name(source).endswith((".json", PACK_SUFFIX)) and (
        is_file or scheme_of(source) not in {"", "pipe"}
    ):
        if is_file:
            refuse_view(
                source,
                "its shards have a spec already; wids reshard writes its samples as new shards",
            )
        raise ValueError(
            f"{display_url(source)}: is no shard; create takes tars, folders of them and patterns "
            "(wids export makes the pack of a spec, wids merge makes one spec of several)"
        )
    return entries_at(source)


def _check_outputs(output: Path | None, pack: str | None, *, catalogue: bool) -> None:
    if output is not None:
        check_writable(output)
    elif catalogue:
        raise ValueError("--catalogue: needs a spec that is a file, which names it; give -o")
    if pack is None:
        return
    if not is_pack_name(pack):
        raise ValueError(f"{pack}: expected a name that ends in {PACK_SUFFIX}, as train.wpack")
    if output is None:
        raise ValueError("--pack: needs a spec that is a file, which names the pack; give -o")
    check_writable(Path(pack))


def check_writable(output: Path) -> None:
    """Raise an error if a spec cannot be written, before any shard is read.

    Raises:
        ValueError: It would have the name of a shard.
        OSError: Its folder cannot be written to.
    """
    # `wids create -o *.tar` would replace the first shard by the spec of the others.
    if output.name.lower().endswith(SHARD_SUFFIXES):
        raise ValueError(f"{output}: is the name of a shard; name the spec, as in -o train.json")
    if output.is_dir():
        what = "is a folder, expected the spec's file name"
        raise IsADirectoryError(errno.EISDIR, what, str(output))
    output.parent.mkdir(parents=True, exist_ok=True)
    if not os.access(output.parent, os.W_OK):
        raise PermissionError(errno.EACCES, "cannot be written to", str(output.parent))


def _known(
    old: Mapping[str, Any],
    output: Path,
    journal: Journal,
    given: Mapping[str, Any],
    digests: Collection[str] | None,
    index_dir: str | os.PathLike[str] | None,
) -> dict[str, dict[str, Any]]:
    """Return the entries of earlier runs whose shards have not changed since."""
    rules, folder = rules_of(given), output.parent
    index = None if index_dir is None else os.fspath(index_dir)

    def serves(entry: dict[str, Any], written_ns: int) -> bool:
        url, place = entry["url"], entry.get("index", "")
        if index is not None and not is_local(index):
            indexed = place.startswith(f"{index.rstrip('/')}/")  # put before it was noted
        else:
            indexed = index is None or Path(folder, place).is_file()
        if not indexed or not _says_all(entry, digests):
            return False
        if not is_local(url):
            return True  # asking the server is what `wids check` does
        try:
            status = (folder / local_path(url)).stat()
        except OSError:
            return False
        # As make does it: what is older than the notes was there when they were made.
        return status.st_size == entry["filesize"] and status.st_mtime_ns <= written_ns

    known = {}
    # By other rules, shards hold other numbers of samples.
    if old and rules_of(old, str(output)) == rules:
        written = output.stat().st_mtime_ns
        known = {each["url"]: each for each in old["shardlist"] if serves(each, written)}
    # A run that was killed left notes, and no spec.
    for entry in journal.entries().values():
        since = entry.pop("indexed_since", 0)
        if entry.pop(_RULES, {}) == unusual_rules(rules) and serves(entry, since):
            known[entry["url"]] = entry
    return known


def _says_all(entry: dict[str, Any], digests: Collection[str] | None) -> bool:
    """Return whether an entry says what this run would find out."""
    if not is_local(entry["url"]) and is_compressed_name(file_name(entry["url"])):
        return "nsamples" in entry  # size and digests of its plain form are on no server
    if digests is None:
        digests = USUAL_DIGESTS if is_local(entry["url"]) else ()
    return shard_entry(entry["url"], 0, 0, dict.fromkeys(digests, "")).keys() <= entry.keys()


def _old_document(output: Path, *, resume: bool) -> dict[str, Any]:
    """Return the JSON of the spec that a new one replaces; empty if there is none.

    Raises:
        SpecError: What is there is no spec, and an earlier run is to be resumed.
    """
    if not output.is_file():
        return {}
    try:
        document = json.loads(output.read_bytes(), object_pairs_hook=unique_keys(str(output)))
        if all(isinstance(shard["url"], str) for shard in document["shardlist"]):
            return dict(document)
        wrong = "a 'url' that is no text"
    except (OSError, ValueError, TypeError, LookupError) as error:
        wrong = repr(error)
    if resume:
        raise SpecError(f"{output}: expected the spec of an earlier run to resume, found {wrong}")
    return {}
