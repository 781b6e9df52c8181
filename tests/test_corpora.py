"""Tar archives that others made: each reads as its recorded truth says, or is refused clearly."""

import hashlib
import json
import tarfile
from collections import Counter

from wids.errors import ShardFormatError
from wids.tar.tarscan import scan_tar


def truth_of(path, archive):
    """Return the recorded members; where a long list was left out of the record, tarfile's."""
    if archive["members"] or archive["tarfile_error"] or archive["class"] != "valid":
        return archive["members"] or []
    with tarfile.open(path) as oracle:
        return [
            [m.name, "reg", m.offset_data, m.size,
             hashlib.sha256(oracle.extractfile(m).read()).hexdigest()]
            for m in oracle if m.isreg()
        ]  # fmt: skip


def verdict(folder, archive):
    """Return `right`, `clear error` or a description of what is wrong, for one archive."""
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


def test_corpora(shared_data):
    """Of 271 foreign archives none is read wrongly, and none ends in an unclear error."""
    folder = shared_data / "tar"
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
