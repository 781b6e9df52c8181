"""Tar archives of other projects: each reads as its recorded truth says, or is refused clearly.

They are not ours to hand on, and lie beside the checkout of whoever has them. `test_archives.py`
makes archives of all kinds, and needs none of these.
"""

import gzip
import hashlib
import json
import tarfile
from collections import Counter

import msgpack
import numpy as np
from helpers.shards import SHARED_DATA

import wids
from wids.codecs.documents import decode_msgpack
from wids.codecs.tenbin import decode_tenbin_named, encode_tenbin
from wids.errors import ShardFormatError
from wids.tar.tarscan import scan_tar

ARCHIVES = SHARED_DATA / "tar"
__test__ = ARCHIVES.is_dir()  # elsewhere pytest collects nothing here, so that nothing is skipped


def truth_of(path, archive):
    """Return the recorded members, or those of tarfile if the record has no long list."""
    if archive["members"] or archive["tarfile_error"] or archive["class"] != "valid":
        return archive["members"] or []
    with tarfile.open(path) as oracle:
        return [
            [m.name, "reg", m.offset_data, m.size,
             hashlib.sha256(oracle.extractfile(m).read()).hexdigest()]
            for m in oracle if m.isreg()
        ]  # fmt: skip


def verdict(folder, archive):
    """Return `right`, `clear error` or a description of the fault for one archive."""
    path = folder / archive["file"]
    truth = truth_of(path, archive)
    try:
        members = scan_tar(path)
    except ShardFormatError as error:
        if str(path) not in str(error) or "byte" not in str(error):
            return f"unclear error: {error}"
        return "wrong: refused: " + str(error) if archive["expect"] == "list" else "clear error"
    names = members.names.decode("utf-8", "surrogateescape").split("\0")[:-1]
    data = path.read_bytes()
    found = [
        [name, offset, size, hashlib.sha256(data[offset : offset + size]).hexdigest()]
        for name, (offset, size) in zip(names, members.spans.tolist(), strict=True)
    ]
    linked = {m[0] for m in truth if m[1] == "hardlink"}
    plain = [f for f in found if f[0] not in linked]
    wanted = [[m[0], *m[2:]] for m in truth if m[1] == "reg" and m[0] not in linked]
    if plain != wanted:
        return f"wrong: {plain[:3]} ... instead of {wanted[:3]} ..."
    if archive["expect"].startswith("error"):
        return "wrong: accepted"
    return "right"


def test_corpora():
    """Each of 271 archives of other projects is read right or refused with a clear error."""
    folder = ARCHIVES
    manifest = json.loads((folder / "MANIFEST.json").read_text())
    tally = Counter()
    wrong = {}
    for archive in manifest["archives"]:
        result = verdict(folder, archive)
        tally[result.split(":")[0]] += 1
        if result not in ("right", "clear error"):
            wrong[archive["file"]] = result
    print(dict(tally))
    for k, v in wrong.items():
        print(k, v)
    assert not wrong


def test_real_wrapped_text_is_read():
    """The .txt.gz members of webdataset's test shards read as gzip reads them."""
    for name in ("compressed.tar", "testgz.tar"):
        with tarfile.open(ARCHIVES / "webdataset" / name) as archive:
            members = [archive.extractfile(m).read() for m in archive if m.isfile()]
        assert len(members) >= 3
        for data in members:
            assert wids.decode_field(".txt.gz", data) == gzip.decompress(data).decode()


def test_files_of_webdataset_read_and_rewrite_to_the_same_bytes():
    """Every member of a shard by webdataset is unchanged after a round trip."""
    with tarfile.open(ARCHIVES / "webdataset" / "tendata.tar") as archive:
        members = [archive.extractfile(member).read() for member in archive]
    assert len(members) == 100
    for data in members:
        named = decode_tenbin_named(data)
        assert [(name, array.dtype, array.shape) for name, array in named] == [
            ("xs", np.float64, (28, 28)),
            ("ys", np.float64, (28, 28)),
        ]
        again = encode_tenbin([a for _, a in named], [name for name, _ in named])
        assert again == data


def test_real_msgpack_members_are_read():
    """The members of webdataset's own test shard read as msgpack reads them."""
    with tarfile.open(ARCHIVES / "webdataset" / "mpdata.tar") as archive:
        members = [archive.extractfile(member).read() for member in archive]
    assert len(members) == 100
    assert [decode_msgpack(data) for data in members] == [msgpack.unpackb(d) for d in members]
