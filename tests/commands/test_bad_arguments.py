"""Every command refuses what it cannot do: by its exit code, a message, and no output."""

import hashlib
from pathlib import Path

import pytest
from helpers.shards import write_shard

from wids.cli import main


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> Path:
    """Make a folder with a dataset, and with what is none."""
    monkeypatch.chdir(tmp_path)
    samples = [{"__key__": f"k{n}", ".txt": f"text {n}", ".cls": str(n)} for n in range(3)]
    write_shard(Path("a.tar"), samples)
    assert main(["create", "a.tar", "-o", "a.json"]) == 0
    Path("torn.tar").write_bytes(Path("a.tar").read_bytes()[:1300])
    Path("list.json").write_text('{"shards": []}')
    Path("broken.json").write_text("{")
    Path("page.json").write_text("<html>Please log in</html>")
    Path("table.csv").write_text("name,score\nx,1\n")
    Path("twice.csv").write_text("name,name\nx,1\n")
    Path("list.xyz").touch()
    Path("empty").mkdir()
    capsys.readouterr()
    return tmp_path


# What is typed, and words of the answer: which argument is wrong, and what would be right.
WRONG_USAGE = [
    ("create", ["required: files"]),
    *(
        (f"order a.json --{name} 0", [f"--{name}: expected a whole number, >= 1, got '0'"])
        for name in ("nodes", "ranks", "batch-size")
    ),
    ("create a.tar --workers 0", ["--workers", "expected a whole number, >= 1, got '0'"]),
    ("create a.tar --no-digest --sha256", ["--sha256", "not allowed with", "--no-digest"]),
    ("merge a.json", ["required: -o/--output"]),
    ("info", ["required: SPEC"]),
    ("ls", ["required: SPEC"]),
    ("ls a.json 0:1 2:3", ["unrecognized arguments: 2:3"]),
    ("show a.json", ["required: INDEX"]),
    ("cat a.json 0", ["required: FIELD"]),
    ("browse a.json --port x", ["--port", "expected 0 to 65535, got 'x'"]),
    ("browse a.json --port 65536", ["--port", "expected 0 to 65535, got '65536'"]),
    ("browse a.json --port=-1", ["--port", "expected 0 to 65535, got '-1'"]),
    ("browse a.json --index two", ["--index", "'two'"]),
    ("check a.json --workers two", ["--workers", "got 'two'"]),
    ("verify a.json", ["is gone", "wids check --digests"]),
    ("update a.json -n new", ["is gone", "top of the spec"]),
    ("sample a.json 0", ["is gone", "wids show SPEC INDEX"]),
    ("stats a.json", ["is gone", "wids info SPEC --stats"]),
    ("import table.csv", ["required: -o"]),
    ("import table.csv -o o-%d.tar --from odd", ["--from", "'odd'", "'table'"]),
    ("import table.csv -o o-%d.tar --maxcount x", ["--maxcount", "'x'"]),
    ("import table.csv -o o-%d.tar --maxsize x", ["--maxsize", "'x'"]),
    ("import a.tar -o o-%d.tar --grouping odd", ["--grouping", "'odd'", "'shard'"]),
    ("export a.json", ["required: OUTPUT"]),
    ("reshard a.json", ["required: -o"]),
    ("reshard a.json -o o-%d.tar --shuffle x", ["--shuffle", "'x'"]),
    ("check a.tar --repair", ["--repair: expected one argument"]),
    ("order a.json --partition odd", ["--partition", "'odd'", "'contiguous'"]),
    ("order a.json --ranks two", ["--ranks", "'two'"]),
    ("cache shrink", ["'shrink'", "'trim'"]),
    ("cache trim 1X", ["BYTES", "expected bytes such as 500M or 1G, got '1X'"]),
    ("cache trim -1", ["BYTES", "expected bytes such as 500M or 1G, got '-1'"]),
    ("shuffle a.json", ["invalid choice: 'shuffle'", "'reshard'"]),
    ("shwo a.json 0", ["there is no command 'shwo'; did you mean 'show'?"]),
    ("--no-such-option crate a.tar", ["'crate'; did you mean 'create'?"]),
]


@pytest.mark.parametrize(("typed", "words"), WRONG_USAGE, ids=[typed for typed, _ in WRONG_USAGE])
def test_wrong_usage_names_the_argument(typed: str, words: list[str], capsys) -> None:
    """Wrong usage ends with code 2 and names the argument."""
    with pytest.raises(SystemExit) as ended:
        main(typed.split())
    said = capsys.readouterr()
    assert (ended.value.code, said.out) == (2, "")
    assert said.err.startswith("usage: ")
    for word in words:
        assert word in " ".join(said.err.split())


NO_SPEC = "missing.json: cannot be read as a shard-spec"
EXPECTED = "expected a JSON file, a folder with .tar shards, a pattern"
OUTSIDE = "out of range for a dataset of 3 samples"

WRONG_DATA = [
    # A dataset that is not there, or is none.
    *(
        (f"{command} missing.json{rest}", [NO_SPEC, EXPECTED])
        for command, rest in [
            ("info", ""), ("ls", ""), ("show", " 0"), ("cat", " 0 .txt"),
            ("browse", " --no-open"), ("check", ""),
            ("export", " o.csv"),
            ("reshard", " -o o-%d.tar"), ("order", ""), ("merge", " -o o.json"),
        ]
    ),
    ("info broken.json", ["broken.json: expected JSON", "line 1 column 2", "starts with b'{'"]),
    ("info page.json", ["page.json: expected JSON", "starts with b'<html>", "`wids create` makes"]),
    ("info list.json", ["list.json: holds no shards; expected a 'shardlist'"]),
    ("info empty", ["empty: holds no shards: no file that ends in .tar", "`wids import`"]),
    ("info no-*.tar", ["no-*.tar: holds no shards: no file matches"]),
    ("create http://h/a.json -o o.json", ["a.json: is no shard", "wids export", "wids merge"]),
    ("create s3://b/a.wpack -o o.json", ["a.wpack: is no shard", "wids export", "wids merge"]),
    ("reshard a.json -o s3://b/r-%d.tar", ["written to local files; upload them from there"]),
    ("create missing.tar -o o.json", ["missing.tar failed: No such file", "none of 1 shards"]),
    ("create torn.tar -o o.json", ["torn.tar failed: at byte 1024", "wids check --repair"]),
    ("create empty -o o.json", ["empty: holds no shards"]),
    ("create a.tar -o o.json -i missing.txt", ["missing.txt: No such file"]),
    # An output that would replace what is read.
    ("create a.tar -o a.tar", ["a.tar: is the name of a shard; name the spec"]),
    ("create a.tar -o B.TAR.GZ", ["B.TAR.GZ: is the name of a shard; name the spec"]),
    ("merge a.json -o a.tar", ["a.tar: is the name of a shard; name the spec"]),
    ("check torn.tar --repair torn.tar", ["torn.tar: is the damaged shard itself", "elsewhere"]),
    ("merge a.json -o empty", ["empty: is a folder, expected the spec's file name"]),
    # A sample or a field that is not there.
    ("ls a.json 3", ["index 3", "3 samples"]),
    ("ls a.json 0:2:1", ["expected an index or a range [first, last) such as 0:10"]),
    ("show a.json 3", [f"index 3 is {OUTSIDE}"]),
    ("show a.json one", ["no sample of 3 has the key 'one'"]),
    ("show a.json -4", [f"index -4 is {OUTSIDE}"]),
    ("cat a.json 3 .txt", [f"index 3 is {OUTSIDE}"]),
    ("cat a.json 0 .jpg", ["sample 0 (k0) has no field '.jpg'; it has .txt .cls"]),
    ("browse a.json --no-open --index 3", ["index 3 is out of range for a dataset of 3 samples"]),
    ("browse a.json --no-open --class-names no.txt", ["no.txt: No such file"]),
    ("show torn.tar 0", ["torn.tar: at byte 1024", "wids check --repair"]),
    # Options that the command cannot follow.
    ("import missing -o o-%d.tar", ["missing: no such file or folder"]),
    ("import list.xyz -o o-%d.tar", ["unknown kind of source"]),
    ("import a.lmdb b.lmdb -o o-%d.tar", ["only one source"]),
    ("import empty -o o-%d.tar", ["empty: expected one folder per class", "--from samples"]),
    ("import table.csv -o o.tar", ["'o.tar'", "one place for the shard's number", "-%06d.tar"]),
    ("import table.csv -o o-%d.tar --field name", ["--field COLUMN=EXT, got 'name'"]),
    ("import table.csv -o o-%d.tar --field x=txt", ["no column 'x'; its columns are name, score"]),
    ("import table.csv -o o-%d.tar --key x", ["no column 'x'; its columns are name, score"]),
    (
        "import table.csv -o o-%d.tar --pattern x",
        ["--pattern does not apply", "it takes --allow-outside, --classes"],
    ),
    ("import table.csv -o o-%d.tar --key-rule last_dot", ["--key-rule does not apply"]),
    ("import table.csv -o o-%d.tar --maxcount 0", ["maxcount must be", "at least 1, got 0"]),
    ("import twice.csv -o o-%d.tar", ["twice.csv", "'name'"]),
    ("export a.json o", ["o: expected a table", "a pack (.wpack), too; for plain files: wids map"]),
    ("reshard a.json -o o.tar", ["'o.tar'", "one place for the shard's number", "wids.TarWriter"]),
    ("reshard a.json -o o-%d.tar --where clss", ['"clss" not found']),
    ("reshard a.json -o o-%d.tar --where .cls=3", ["in SQL, this is cls = 3"]),
    ("reshard a.json -o o-%d.tar --where cls=9", ["expected at least one sample to copy"]),
    ("merge a.json -o a.json", ["a.json: would replace a.json, which is read"]),
    ("check missing.tar --repair n.tar", ["missing.tar: No such file"]),
    ("check empty --repair n.tar", ["empty: Is a directory"]),
    *(
        (f"order a.json --{option} 0", [f"{name} must be at least 1", "got 0"])
        for option, name in [
            ("interleave", "interleave"), ("cache-shards", "cache_shards"),
            ("chunksize", "chunksize"), ("streams", "streams"),
        ]
    ),
    ("cache trim", ["trim takes a number of bytes: wids cache trim 1"]),
    ("cache list 3", ["list takes no number of bytes, got 3"]),
    ("cache clear 3", ["clear takes no number of bytes, got 3"]),
]  # fmt: skip


def contents(folder: Path) -> dict[str, str]:
    """Return a digest of each file, those of the cache apart."""
    files = (path for path in folder.rglob("*") if path.is_file())
    found = {str(path.relative_to(folder)): path.read_bytes() for path in files}
    return {
        name: hashlib.sha256(data).hexdigest()
        for name, data in found.items()
        if not name.startswith("wids-cache")
    }


@pytest.mark.parametrize(("typed", "words"), WRONG_DATA, ids=[typed for typed, _ in WRONG_DATA])
def test_wrong_data_is_named_and_nothing_is_changed(
    typed: str, words: list[str], folder: Path, capsys
) -> None:
    """Wrong data end with code 1 and a reason; nothing is printed or written."""
    before = contents(folder)
    assert main(typed.split()) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert "Traceback" not in said.err
    for word in words:
        assert word in said.err
    assert contents(folder) == before


@pytest.mark.parametrize("name", ["data.mdb", "index.json", "train.tfrecord", "data.parquet"])
def test_a_source_of_another_kind_is_named(name: str, folder: Path, capsys) -> None:
    """A file whose content does not fit its name is refused, and nothing is written."""
    if name == "data.mdb":
        pytest.importorskip("lmdb")
    (folder / name).write_bytes(b"Please log in, this is no data" * 40)
    before = contents(folder)
    assert main(["import", name, "-o", "o-%d.tar"]) == 1
    said = capsys.readouterr()
    assert (said.out, "Traceback" in said.err) == ("", False)
    assert name in said.err
    assert contents(folder) == before
