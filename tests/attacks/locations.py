"""Odd URLs and paths of every scheme, as shards, specs, sidecars, bases and in selections."""

import json
import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from attacks.runner import BOUNDED, Family, Scene
from attacks.servers import HURRIED
from wids.errors import FetchError
from wids.fetching.fetch import Fetcher, FetchPolicy
from wids.reading.shardlist import ShardList

NOWHERE = "127.0.0.1:1"  # nobody listens there
# So that no attempt leaves this machine, and none waits.
ENVIRONMENT = {
    "AWS_ENDPOINT_URL": f"http://{NOWHERE}", "AWS_ALLOW_HTTP": "true", "AWS_ACCESS_KEY_ID": "x",
    "AWS_SECRET_ACCESS_KEY": "x", "AWS_REGION": "x", "AZURE_STORAGE_ACCOUNT_NAME": "x",
    "AZURE_STORAGE_ACCOUNT_KEY": "eA==", "AZURE_STORAGE_USE_EMULATOR": "true",
    "HF_ENDPOINT": f"http://{NOWHERE}",
    "AZURITE_BLOB_STORAGE_URL": f"http://{NOWHERE}", "NO_PROXY": "*",
    "GOOGLE_SKIP_SIGNATURE": "true",
}  # fmt: skip
SCHEMES = (
    "s3://", "s3a://", "az://", "azure://", "abfs://", "abfss://", "file://", "file:", "http://",
    "https://", "hf://",
    "HTTP:", "pipe:", "data:", "://", "", "", "S3:/", "~nobody-here/", "~/", "//", "\\\\",
    "ftp://", "memory://",
)  # fmt: skip
HOSTS = (
    "b", f"{NOWHERE}", "", "b`", "[c", "[::1]", "[::1", "b%60", "%00", "a@b", "u:p@127.0.0.1:1",
    "127.0.0.1:99999",
    "127.0.0.1:x", "..", ".", "x" * 300, "ä.example.invalid", "a b", "a\tb", "a\nb", "\ud800", "*",
    "{a,b}", "127.1:1", "0:1",
)  # fmt: skip
PATHS = (
    "/k.tar", "/k.json", "", "/", "/%00a.tar", "/a\0.tar", "/../../etc/passwd", "/a%2f..%2f.tar",
    "/\ud800.tar", "/a\x7f.tar",
    "/a.tar?x=\x01", "/a.tar#f", "/a.tar?{1..3}", "/" + "a/" * 3000, "/" + "a" * 5000,
    "/a\r\nX: y.tar", "/`id`.tar", "/[x",
    "/🙂.tar", "/a.tar.gz", "/$(id)", "/;id", "/a//b.tar", "//a.tar", "/ .tar", "/.tar", "/a.tar/",
    "?", "#", "/*", "/%zz.tar",
)  # fmt: skip


@contextmanager
def _offline(_folder: Path) -> Iterator[None]:
    os.environ.update(ENVIRONMENT)
    FetchPolicy.wait_seconds = lambda *_: 0.0  # in this process, which ends with the variants
    # The object-store library keeps its threads, and their descriptors, from its first use on.
    with suppress(FetchError):
        Fetcher(HURRIED).read("s3://bucket/key")
    yield


def location(chance: random.Random) -> str:
    """Draw a location: a scheme, a host and a path, any of which may be odd."""
    made = chance.choice(SCHEMES) + chance.choice(HOSTS) + chance.choice(PATHS)
    if chance.random() < 0.2:
        place = chance.randrange(len(made) + 1)
        made = (
            made[:place]
            + chance.choice("\x00\x01\x0b\x7f\x85\u2028\ufeff\ud800%`\\[]{}^|<>\"' ")
            + made[place:]
        )
    return made


def _opened(scene: Scene) -> Callable[[], str]:
    """Open a location by itself, in a list, in a spec, as a base, or as a sidecar."""
    chance = scene.chance
    odd = location(chance)
    rows = [{"url": odd, "nsamples": 1}]
    written = scene.write("s.json", json.dumps({"shardlist": rows}).encode())
    named = scene.write("n.json", json.dumps({"datasets": [{"source_url": odd}]}).encode())
    based = scene.write(
        "b.json", json.dumps({"base": odd, "shardlist": [{"url": "a.tar", "nsamples": 1}]}).encode()
    )
    openings: list[tuple[Any, dict[str, Any]]] = [
        (odd, {}), ([odd], {}), (rows, {}), (str(written), {}), (str(named), {}), (str(based), {}),
        (rows, {"base": odd}),
        ([{"url": f"http://{NOWHERE}/a.tar", "nsamples": 1, "index": odd}], {"remote": "range"}),
        (rows, {"remote": "range"}),
        ([(odd, 1)], {"keep": True}), (rows, {"dataset_name": odd}),
    ]  # fmt: skip
    source, options = chance.choice(openings)
    os.chdir(scene.folder)

    def attempt() -> str:
        with ShardList(
            source, cache_dir=scene.cache, transformations="bytes", **options
        ) as dataset:
            dataset.cache.fetcher = Fetcher(HURRIED)
            if len(dataset):
                dataset[0]
        return BOUNDED

    return attempt


LOCATIONS = Family({"opened": _opened}, usual=20, setup=_offline)
