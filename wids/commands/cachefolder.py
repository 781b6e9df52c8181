"""Command `wids cache`: list, verify, trim or clear the cache folder."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from wids.commands.terminal import (
    DONE,
    FAULTY,
    Arguments,
    add_command,
    add_json,
    note,
    out,
    print_json,
)

if TYPE_CHECKING:
    from wids.caching.cache import ShardCache

__all__ = ["add_cache_commands"]


def add_cache_commands(commands: Any) -> None:
    """Declare the command."""
    parser = add_command(
        commands,
        cache,
        "list, verify, trim or clear the folder that fetched shards are kept in",
        [
            "wids cache                     what lies there, the least recently used first",
            "wids cache verify              read all again; damaged shards are removed",
            "wids cache trim 100000000000   evict down to so many bytes",
            "wids cache clear               remove everything",
        ],
    )
    parser.add_argument(
        "action", nargs="?", default="list", choices=["list", "verify", "trim", "clear", "path"]
    )
    parser.add_argument("nbytes", nargs="?", type=int, metavar="BYTES", help="bound for trim")
    parser.add_argument(
        "--cache-dir", metavar="DIR", help="the folder; else $WIDS_CACHE, else ours"
    )
    add_json(parser)


def cache(args: Arguments) -> int:
    """List, verify, trim or clear the cache folder."""
    from wids.caching.cache import ShardCache

    if args.action != "trim" and args.nbytes is not None:
        raise ValueError(f"{args.action} takes no number of bytes, got {args.nbytes}; trim does")
    if args.action == "trim" and (args.nbytes is None or args.nbytes < 0):
        raise ValueError("trim takes a number of bytes: wids cache trim 100000000000")
    actions = {"list": _list, "verify": _verify, "trim": _trim, "clear": _clear, "path": _path}
    return actions[args.action](ShardCache(args.cache_dir), args)


def _list(cache: ShardCache, args: Arguments) -> int:
    shards = cache.shards()
    if args.json:
        rows = [{"path": str(shard.path), "nbytes": shard.nbytes} for shard in shards]
        print_json({"folder": str(cache.cache_dir), "shards": rows})
        return DONE
    out(f"{shard.nbytes:>14,}  {shard.path.name}" for shard in shards)
    total = sum(shard.nbytes for shard in shards)
    note(f"{cache.cache_dir}: {len(shards)} files, {total:,} bytes")
    return DONE


def _verify(cache: ShardCache, args: Arguments) -> int:
    damaged = cache.verify()
    if args.json:
        print_json(
            {"folder": str(cache.cache_dir), "damaged": [str(shard.path) for shard in damaged]}
        )
    else:
        out(f"damaged, removed: {shard.path.name}" for shard in damaged)
    note(f"{cache.cache_dir}: {len(damaged)} damaged files removed")
    return FAULTY if damaged else DONE  # a script may want to know, though all is well again


def _trim(cache: ShardCache, args: Arguments) -> int:
    cache.trim(args.nbytes)
    return _list(cache, args)  # pinned shards may leave more than was asked for


def _clear(cache: ShardCache, args: Arguments) -> int:
    cache.clear()
    return _list(cache, args)  # empty, or what other processes hold


def _path(cache: ShardCache, _args: Arguments) -> int:
    out(str(cache.cache_dir))
    return DONE
