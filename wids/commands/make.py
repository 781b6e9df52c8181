"""Commands that make and change specs: `wids create` and `merge`."""

from __future__ import annotations

import errno
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wids.base.hashing import DIGESTS
from wids.commands.terminal import (
    DONE,
    FAULTY,
    Arguments,
    add_command,
    add_json,
    add_rules,
    add_workers,
    complain,
    complain_of,
    message_of,
    note,
    print_json,
    rules_given,
    standard_output,
)
from wids.errors import SpecError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from wids.pack.packfile import Pack
    from wids.specs.build import Build
    from wids.specs.journal import Journal
    from wids.specs.spec import DatasetSpec

__all__ = ["add_create", "add_merge", "refuse_view", "write_pack"]

_USUAL_DIGEST = "md5"  # what old readers know
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


def create(args: Arguments) -> int:
    """Index shards and write their spec."""
    from wids.base.files import write_output
    from wids.base.omissions import Omissions
    from wids.base.text import format_nbytes
    from wids.base.urls import is_local
    from wids.tools.facts import spec_facts

    for source in args.files:
        _refuse_spec(source)
    listed: dict[str, dict[str, Any]] = {}
    shards = _expand(_listed(args.files), listed)
    # Before the shards are read, which may take hours.
    _check_writable(args.output)
    if args.catalogue and args.output == "-":
        raise ValueError("--catalogue: needs a spec that is a file, which names it; give -o")
    if args.pack is not None:
        _check_pack_name(args.pack)
        if args.output == "-":
            raise ValueError("--pack: needs a spec that is a file, which names the pack; give -o")
        _check_writable(args.pack)
    built = _build(args, shards, listed)
    for shard, error in built.failures.items():
        complain_of(shard, "failed", message_of(error))
    if built.failures and (not args.skip_broken or not len(built.readable.shards)):
        return _report_failures(args, built, len(shards))
    spec = built.spec
    if args.pack is not None:  # before the spec that names it
        spec = _pack_created(args, spec)
    text = f"{spec.to_json()}\n"
    if args.output == "-":
        standard_output().write(text)
    else:
        _keep_old(Path(args.output), spec)
        write_output(Path(args.output), text.encode())
        _journal(args.output).remove()
    if args.catalogue:
        _publish_catalogue(args, spec)
    facts = spec_facts(built.spec, args.output)
    if args.json and args.output != "-":
        failures = {shard: message_of(error) for shard, error in built.failures.items()}
        print_json({**facts, "failures": failures})
    count = f"{facts['num_shards']} of {len(shards)}" if built.failures else facts["num_shards"]
    advice = "; the others are left out, which the spec says" if built.failures else ""
    remote = [each for each in built.records if not is_local(each.url)]
    moved = sum(each.nbytes_read for each in remote)
    of = sum(each.entry.get("filesize", 0) for each in remote)
    read = f"; read {format_nbytes(moved)} of {format_nbytes(of)} from servers" if remote else ""
    note(
        f"{args.output}: {count} shards, {facts['nsamples']} samples, "
        f"{format_nbytes(facts['filesize'])}{read}{advice}"
    )
    omissions = Omissions()
    for record in built.records:
        omissions.add_members(record.skipped, record.url)
    for line in omissions.lines():
        note(f"left out: {line}")
    return DONE


def _refuse_spec(source: str) -> None:
    """Raise ValueError if a location is that of a spec, a saved view or a pack."""
    from wids.base.urls import display_url, file_name, scheme_of
    from wids.pack.packformat import PACK_SUFFIX

    is_file = Path(source).is_file()
    if not file_name(source).endswith((".json", PACK_SUFFIX)) or not (
        is_file or scheme_of(source) not in {"", "pipe"}
    ):
        return
    if is_file:
        refuse_view(
            source, "its shards have a spec already; wids reshard writes its samples as new shards"
        )
    raise ValueError(
        f"{display_url(source)}: is no shard; create takes tars, folders of them and patterns "
        "(wids export makes the pack of a spec, wids merge makes one spec of several)"
    )


def _publish_catalogue(args: Arguments, spec: DatasetSpec) -> None:
    """Write the catalogue beside the spec, and its name into the spec.

    The spec without it was written before, so that a run that is killed leaves one.
    """
    import wids
    from wids.base.files import write_output
    from wids.base.text import format_nbytes
    from wids.catalogue.files import publish
    from wids.specs.spec import DatasetSpec

    output = Path(args.output)
    with wids.ShardListDataset(args.output, cache_dir=args.cache_dir) as dataset:
        path = publish(dataset, output.parent, output.stem)
    header = {**spec.header, "catalogue": path.name}
    named = DatasetSpec(spec.shards, name=spec.name, base=spec.base, header=header)
    write_output(output, f"{named.to_json()}\n".encode())
    note(f"{path}: the catalogue, {format_nbytes(path.stat().st_size)}")


def _pack_created(args: Arguments, spec: DatasetSpec) -> DatasetSpec:
    """Pack a spec whose locations are as they will be written to the output.

    Returns:
        The spec without the places of the sidecars that were kept for the pack.
    """
    from wids.base.shardref import ShardRef
    from wids.specs.build import KEPT_INDEX
    from wids.specs.spec import DatasetSpec

    rows = [dict(shard) for shard in spec.shards]
    kept = [row.pop(KEPT_INDEX, None) for row in rows]
    parsed = DatasetSpec.parse(_with_rows(spec, rows).to_json(), args.output)
    folder = Path(args.output).parent
    refs = [
        ShardRef.of(shard, **({} if name is None else {"index": str(folder / name)}))
        for shard, name in zip(parsed.shards, kept, strict=True)
    ]
    write_pack(
        _with_rows(parsed, refs),
        args.pack,
        workers=args.workers,
        earlier=_pack_of_earlier_run(args) if args.resume else None,
    )
    if args.index is None:  # that of a run that had --index
        rows = [{key: value for key, value in row.items() if key != "index"} for row in rows]
    return _with_rows(spec, rows)


def _with_rows(spec: DatasetSpec, rows: Sequence[Mapping[str, Any]]) -> DatasetSpec:
    from wids.specs.spec import DatasetSpec

    return DatasetSpec(rows, name=spec.name, base=spec.base, header=spec.header)


def _pack_of_earlier_run(args: Arguments) -> Pack | None:
    """Return the pack that will be replaced, if the spec of an earlier run names it."""
    from wids.errors import WidsError
    from wids.pack.packfile import open_pack
    from wids.specs.specedit import read_document

    try:
        if read_document(Path(args.output)).get("pack") == _name_of_pack(args):
            return open_pack(args.pack)
    except (OSError, WidsError):  # there is none, or it is damaged
        pass
    return None


def write_pack(spec: DatasetSpec, output: str, **options: Any) -> None:
    """Write a pack of a spec, and note its size.

    Args:
        spec: The spec.
        output: Path of the pack.
        options: As for `wids.tools.packing.write_pack`.
    """
    from wids.base.text import format_nbytes
    from wids.tools import packing

    packed = packing.write_pack(spec, output, **options)
    without = f"; no index of {packed.num_without} compressed shards" if packed.num_without else ""
    moved = packed.nbytes_read
    read = f"; read {format_nbytes(moved)} from servers for tar indexes" if moved else ""
    note(
        f"{output}: {packed.num_shards} shards, {packed.num_samples} samples, "
        f"{format_nbytes(packed.nbytes)}{without}{read}"
    )


def _name_of_pack(args: Arguments) -> str | None:
    """Return the name of the pack in the spec."""
    from wids.specs.newspec import name_in_spec

    if args.pack is None:
        return None
    return name_in_spec(os.path.abspath(args.pack), Path(args.output).parent)  # noqa: PTH100


def _check_pack_name(output: str) -> None:
    from wids.pack.packformat import PACK_SUFFIX, is_pack_name

    if not is_pack_name(output):
        raise ValueError(f"{output}: expected a name that ends in {PACK_SUFFIX}, as train.wpack")


def _keep_old(output: Path, spec: DatasetSpec) -> None:
    """Back up the spec that a new one replaces if it has more keys, such as class names."""
    from wids.base.files import write_output
    from wids.specs.specedit import read_document

    try:
        old = output.read_bytes()
        lost = sorted(read_document(output).keys() - spec.header.keys() - _MADE)
    except (OSError, SpecError):  # there is none, or it is no spec
        return
    if lost:
        backup = output.with_name(f"{output.name}.bak")
        write_output(backup, old)
        complain(
            f"{output}: the old spec had {', '.join(map(repr, lost))}, the new one has not; the "
            f"old one is {backup}"
        )


def _build(
    args: Arguments,
    shards: list[str],
    listed: dict[str, dict[str, Any]],
) -> Build:
    from wids.specs.build import build_spec
    from wids.specs.indexrules import rules_of, unusual_rules

    digests = _chosen_digests(args)
    output = Path("." if args.output == "-" else args.output)
    # With a base, names are relative to it and not to the folder of the spec.
    folder = None if args.base is not None else output.parent
    journal, started = _journal(args.output), time.time_ns()
    known = _known(args, output, digests) if args.resume else {}
    for url, entry in listed.items():  # a store has said which shards were replaced since
        if known.get(url, entry).get("filesize") != entry["filesize"]:
            del known[url]
    if not args.resume:
        journal.remove()
    rules = unusual_rules(rules_of(rules_given(args)))

    def write_note(entry: dict[str, Any]) -> None:
        journal.note({**entry, "indexed_since": started, **({_RULES: rules} if rules else {})})

    return build_spec(
        shards,
        folder=folder,
        header={
            "name": _name_for(args, shards),
            "info": None if args.info is None else Path(args.info).read_text(encoding="utf-8"),
            "base": args.base,
            "pack": _name_of_pack(args),
            "classes": _classes_beside(shards),
        },
        known=known,
        note=write_note,
        workers=args.workers,
        listed=listed,
        skip_broken=args.skip_broken,
        digests=digests,
        sidecar=args.sidecars,
        index_dir=args.index,
        # Otherwise the shards would be read once for the spec and once for the pack.
        kept_dir=None if args.pack is None else journal.sidecars,
        indexes=[tool for tool in ("dali", "energon") if getattr(args, f"{tool}_index")],
        cache_dir=args.cache_dir,
        rules=rules_given(args),
    )


def _classes_beside(shards: list[str]) -> Any:
    """Return the class names in old specs of these shards; None if there are none.

    Those in a file such as `classes.txt` are not copied, since readers of the new spec find them.
    """
    from wids.specs.classnames import names_beside
    from wids.specs.merging import listed_classes

    names = names_beside(shards, in_files=False)
    if not names:
        return None
    note(f"class names: {len(names)}, from the spec beside the shards")
    return listed_classes(names)


def _chosen_digests(args: Arguments) -> tuple[str, ...] | None:
    """Return the digests to compute; None for the usual one, where it costs nothing."""
    if args.no_digest:
        return ()
    return (_USUAL_DIGEST, args.digest) if args.digest else None


def _name_for(args: Arguments, shards: list[str]) -> str | None:
    """Return the name of the dataset: as given, else from the argument or the first shard."""
    from wids.specs.build import default_name

    if args.name is not None:
        return args.name or None
    return default_name(args.files[0]) or default_name(shards[0]) or None


def _report_failures(args: Arguments, built: Build, num_shards: int) -> int:
    """Say how to go on after shards could not be read; return the exit code."""
    if args.json and args.output != "-":
        failures = {shard: message_of(error) for shard, error in built.failures.items()}
        print_json({"source": args.output, "failures": failures})
    count = len(built.failures)
    if count == num_shards:
        complain(f"{args.output} was not written: none of {num_shards} shards could be read")
        return FAULTY
    resume = "" if args.output == "-" else " with --resume, which reads only these,"
    complain(
        f"{args.output} was not written: {count} of {num_shards} shards could not be read; mend "
        f"them and run again{resume} or leave them out with --skip-broken"
    )
    return FAULTY


def _listed(files: list[str]) -> list[str]:
    """Return the given shards; for `-`, those listed on standard input."""
    if files != ["-"]:
        return files
    listed = [line.strip() for line in sys.stdin if line.strip()]
    if not listed:
        raise ValueError("standard input named no shards; expected one path or URL a line")
    return listed


def _expand(files: list[str], listed: dict[str, dict[str, Any]]) -> list[str]:
    """Expand folders and patterns into shards.

    Args:
        files: The locations that were given.
        listed: Is given the entries of shards that a store has listed, by URL.
    """
    from wids.specs.sources import find_entries

    shards = []
    for file in files:
        for entry in find_entries(file) or [{"url": file}]:
            shards.append(entry["url"])
            if len(entry) > 1:
                listed[entry["url"]] = entry
    return shards


def _journal(output: str) -> Journal:
    """Return the journal of an unfinished spec."""
    from wids.specs.journal import Journal

    # After output to a pipe there is nothing to resume from.
    return Journal(None if output == "-" else Path(f"{output}.indexing"))


def _check_writable(output: str) -> None:
    """Raise an error if the spec cannot be written, before any shard is read.

    Raises:
        ValueError: It would have the name of a shard.
        OSError: Its folder cannot be written to.
    """
    from wids.specs.sources import SHARD_SUFFIXES

    path = Path(output)
    if output == "-":
        return
    # `wids create -o *.tar` would replace the first shard by the spec of the others.
    if path.name.lower().endswith(SHARD_SUFFIXES):
        raise ValueError(f"{output}: is the name of a shard; name the spec, as in -o train.json")
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "is a folder, expected the spec's file name", output)
    path.parent.mkdir(parents=True, exist_ok=True)
    if not os.access(path.parent, os.W_OK):
        raise PermissionError(errno.EACCES, "cannot be written to", str(path.parent))


def _known(
    args: Arguments, output: Path, digests: Collection[str] | None
) -> dict[str, dict[str, Any]]:
    """Return the entries of earlier runs whose shards have not changed since."""
    from wids.base.urls import is_local
    from wids.specs.build import KEPT_INDEX
    from wids.specs.indexrules import rules_of, unusual_rules
    from wids.specs.specedit import read_document

    index, rules = args.index, rules_of(rules_given(args))

    def says_all(entry: dict[str, Any]) -> bool:
        place = entry.get("index", "")
        if index is not None and not is_local(index):
            indexed = place.startswith(f"{index.rstrip('/')}/")  # put before it was noted
        else:
            indexed = index is None or Path(output.parent, place).is_file()
        return indexed and _says_all(entry, digests)

    known = {}
    document = read_document(output) if output.is_file() else {}
    # By other rules, shards hold other numbers of samples.
    if document and rules_of(document, str(output)) == rules:
        written = output.stat().st_mtime_ns
        for entry in document["shardlist"]:
            if says_all(entry) and _is_unchanged(output.parent, entry, written):
                known[entry["url"]] = entry
    # A run that was killed left notes, and no spec.
    for entry in _journal(str(output)).entries().values():
        since = entry.pop("indexed_since", 0)
        if args.pack is None:
            entry.pop(KEPT_INDEX, None)
        same_rules = entry.pop(_RULES, {}) == unusual_rules(rules)
        if same_rules and says_all(entry) and _is_unchanged(output.parent, entry, since):
            known[entry["url"]] = entry
    return known


def _says_all(entry: dict[str, Any], digests: Collection[str] | None) -> bool:
    from wids.base.urls import file_name, is_compressed_name, is_local
    from wids.specs.newspec import shard_entry

    if not is_local(entry["url"]) and is_compressed_name(file_name(entry["url"])):
        return "nsamples" in entry  # size and digests of its plain form are on no server
    if digests is None:
        digests = (_USUAL_DIGEST,) if is_local(entry["url"]) else ()
    return shard_entry(entry["url"], 0, 0, dict.fromkeys(digests, "")).keys() <= entry.keys()


def _is_unchanged(folder: Path, entry: dict[str, Any], written_ns: int) -> bool:
    from wids.base.urls import is_local, local_path

    if not is_local(entry["url"]):
        return True  # asking the server is what `wids check` does
    try:
        status = (folder / local_path(entry["url"])).stat()
    except OSError:
        return False
    # As make does it: what is older than the notes was there when they were made.
    return status.st_size == entry["filesize"] and status.st_mtime_ns <= written_ns


def add_create(commands: Any) -> None:
    """Declare the command."""
    parser = add_command(
        commands,
        create,
        "index shards (count, size, digest) and write their JSON spec",
        [
            "wids create 'train-{000..146}.tar' -o train.json",
            "wids create shards/ -o shards/train.json --sidecars",
            "wids create shards/ -o shards/train.json --dali-index --energon-index",
            "wids create 'https://host/train-{000..146}.tar' -o train.json",
            "wids create s3://bucket/train/ -o train.json --index train-index",
            "find /data -name '*.tar' | wids create - -o all.json --no-digest",
        ],
    )
    parser.add_argument(
        "files",
        nargs="+",
        help="shards: paths, URLs, folders (also of buckets), patterns; - reads them from stdin; "
        "the spec lists them by name (a-9 before a-10), whatever their order here",
    )
    parser.add_argument(
        "-o",
        "--output",
        default="shardindex.json",
        help="path of the spec (%(default)s); - prints it",
    )
    parser.add_argument(
        "-n", "--name", help="name of the dataset (by default from that of the first shard)"
    )
    parser.add_argument(
        "-i", "--info", metavar="FILE", help="file with a description of the dataset"
    )
    parser.add_argument(
        "-b", "--base", help="base of the spec: the folder or URL to which FILES are relative"
    )
    digests = parser.add_mutually_exclusive_group()
    digests.add_argument(
        "--no-digest", action="store_true", help="read only headers, and compute no digests"
    )
    for field, kind in DIGESTS.items():
        if kind.algorithm != _USUAL_DIGEST:
            digests.add_argument(
                f"--{field}",
                dest="digest",
                action="store_const",
                const=kind.algorithm,
                help=f"record {field} in addition to md5sum",
            )
    _add_indexes(parser)
    parser.add_argument(
        "--skip-broken",
        action="store_true",
        help="leave out shards that cannot be read; the spec records them, and readers warn of it",
    )
    parser.add_argument(
        "--resume",
        action="store_true",
        help="skip shards that an earlier run has read and that are unchanged since",
    )
    add_rules(parser)
    add_workers(parser)
    add_json(parser)


def _add_indexes(parser: Any) -> None:
    parser.add_argument(
        "--sidecars", action="store_true", help="write the tar index of each shard as a .widx file"
    )
    parser.add_argument(
        "--index",
        metavar="FOLDER",
        help="write the tar index of each remote shard into this folder, which may be of a bucket, "
        "and its place into the spec",
    )
    parser.add_argument(
        "--pack",
        metavar="PACK",
        help="write the tar indexes of all shards into this one file, .wpack, and its place into "
        "the spec",
    )
    parser.add_argument(
        "--catalogue",
        action="store_true",
        help="write a Parquet file with a row for each sample beside the spec, for `wids sql`, "
        "DuckDB, Polars, pandas and Spark, and its place into the spec; needs wids[sql]",
    )
    parser.add_argument("--dali-index", action="store_true", help="write an index for DALI, .idx")
    parser.add_argument(
        "--energon-index", action="store_true", help="write an index for Energon, .tar.idx"
    )


def refuse_view(source: str, cure: str) -> None:
    """Raise ValueError if a location names a saved view, which is no spec."""
    from wids.views.opening import is_saved_view

    if is_saved_view(source):
        raise ValueError(f"{source}: is a saved view, and {cure}")


def merge(args: Arguments) -> int:
    """Merge several specs into one."""
    from wids.base.files import write_output
    from wids.specs.build import merge_specs

    _check_writable(args.output)
    output = Path(args.output)
    printed = args.output == "-"
    for source in args.specs:
        refuse_view(
            source,
            "only specs of shards can be merged; write its samples as shards first (wids reshard), "
            "or open several views as one: wids.open takes a list",
        )
        if output.exists() and Path(source).exists() and output.samefile(source):
            raise ValueError(
                f"{output}: is {source}, which is merged, and would be replaced; write the new "
                "spec under another name"
            )
    spec = merge_specs(args.specs, output.parent, args.name or (None if printed else output.stem))
    text = f"{spec.to_json()}\n"
    if printed:
        standard_output().write(text)
    else:
        write_output(output, text.encode())
    note(f"{args.output}: {len(spec.shards)} shards")
    return DONE


def add_merge(commands: Any) -> None:
    """Declare the command."""
    parser = add_command(
        commands,
        merge,
        "make one spec of several, such as those of parallel writers",
        ["wids merge train-*-of-00004.json -o train.json"],
    )
    parser.add_argument("specs", nargs="+", metavar="SPEC")
    parser.add_argument("-o", "--output", required=True, help="the new spec; - prints it")
    parser.add_argument("-n", "--name", help="name of the dataset (by default from that of OUTPUT)")
