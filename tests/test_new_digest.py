"""One line in a table adds a digest algorithm."""

import subprocess
import sys
from pathlib import Path

from helpers.downloads import SHARD
from helpers.server import ShardServer

PROGRAM = """
import hashlib, json, sys
from pathlib import Path
from wids.base import hashing

hashing.DIGESTS["sha512"] = hashing.DigestKind("sha512", 128)

from wids.base.shardref import ShardRef
from wids.caching.cache import ShardCache
from wids.cli import main
from wids.errors import IntegrityError

url, spec = sys.argv[1], Path("a.json")
assert main(["create", url, "-o", "a.json", "--sha512", "--workers", "1"]) == 0
document = json.loads(spec.read_text())
[entry] = document["shardlist"]
path = ShardCache("cache").get(ShardRef.of(entry))
assert entry["sha512"] == hashlib.sha512(path.read_bytes()).hexdigest()

del entry["md5sum"]
spec.write_text(json.dumps(document))
assert main(["check", "--digests", "a.json", "--workers", "1"]) == 0
entry["sha512"] = "0" * 128
spec.write_text(json.dumps(document))
assert main(["check", "--digests", "a.json", "--workers", "1"]) == 1
try:
    ShardCache("other").get(ShardRef.of(entry))
except IntegrityError as error:
    assert "sha512" in str(error)
else:
    raise AssertionError("the download was not checked")
"""


def test_one_line_adds_an_algorithm(tmp_path: Path, shard_server: ShardServer) -> None:
    """After one added line, specs record the digest, and downloads and checks compare it."""
    url = shard_server.put("a.tar", SHARD)
    subprocess.run([sys.executable, "-c", PROGRAM, url], cwd=tmp_path, check=True)
