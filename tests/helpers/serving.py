"""Shards on the test server, with their sidecars beside them."""

from pathlib import Path

from helpers.server import ShardServer
from helpers.sidecarbytes import sidecar_of
from wids.tar.sidecar import SIDECAR_SUFFIX


def serve_shard(server: ShardServer, path: Path, *, sidecar: bool = True) -> str:
    """Serve a shard under its own name, with a sidecar if that is wanted; return its URL."""
    if sidecar:
        server.put(path.name + SIDECAR_SUFFIX, sidecar_of(path))
    return server.put(path.name, path.read_bytes())
