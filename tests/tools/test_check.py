"""`wids check`: every kind of fault is found, placed and given a cure; sound data gives none."""

import json
from pathlib import Path

import pytest
from helpers.pictures import plain
from helpers.shards import MakeShard

from wids.cli import main
from wids.specs.build import build_spec
from wids.tools.check import Fault, check_dataset, check_shard


def samples(count: int) -> list[dict[str, str | bytes]]:
    """Make samples of three fields."""
    return [
        {
            "__key__": f"{n:04}",
            ".png": plain(size=(20, 20), colour=(1, 2, 3)),
            ".cls": "3",
            ".txt": "t",
        }
        for n in range(count)
    ]


@pytest.fixture
def spec(make_shard: MakeShard, tmp_path: Path, monkeypatch) -> Path:
    """Make two sound shards and their spec, and stand beside them."""
    shards = [str(make_shard(f"x-{n}.tar", samples(3))) for n in range(2)]
    built = build_spec(shards, folder=tmp_path, workers=1, digests=("md5", "sha256"))
    (tmp_path / "x.json").write_text(built.spec.to_json())
    monkeypatch.chdir(tmp_path)
    return tmp_path / "x.json"


def check_spec(spec: Path, **options) -> list[Fault]:
    """Check all shards of a spec in this process."""
    return check_dataset(str(spec), workers=1, **options).faults


def faults_of(spec: Path, **options) -> list[tuple[str, str, str]]:
    """Check a spec; return shard, place and severity of each fault."""
    found = check_spec(spec, **options)
    assert all(fault.what and fault.cure for fault in found)
    return [(Path(fault.shard).name, fault.place, fault.severity) for fault in found]


def places_in(shard: Path | str) -> list[tuple[str, str]]:
    """Check a shard alone; return place and severity of each fault."""
    return [(fault.place, fault.severity) for fault in check_shard({"url": str(shard)})]


def change_entry(spec: Path, **fields) -> None:
    """Change what the spec says of the first shard."""
    document = json.loads(spec.read_text())
    document["shardlist"][0].update(fields)
    spec.write_text(json.dumps(document))


def test_sound_dataset_has_no_faults(spec: Path):
    """A dataset without faults gives an empty report."""
    assert faults_of(spec, decode=True) == []


@pytest.mark.parametrize(
    ("field", "value"),
    [("nsamples", 4), ("filesize", 5), ("md5sum", "0" * 32), ("sha256", "f" * 64)],
)
def test_wrong_entry_is_found(spec: Path, field: str, value: object):
    """A wrong count, size or digest is an error of that field."""
    change_entry(spec, **{field: value})
    assert faults_of(spec) == [("x-0.tar", field, "error")]


def test_digests_are_left_out_on_request(spec: Path):
    """Without digests, only headers are read."""
    change_entry(spec, md5sum="0" * 32)
    assert faults_of(spec, digests=False) == []


def test_flipped_bit_in_the_data_is_found_by_its_digest(spec: Path):
    """One flipped bit changes both digests."""
    damaged = bytearray(Path("x-1.tar").read_bytes())
    damaged[600] ^= 1
    Path("x-1.tar").write_bytes(damaged)
    assert faults_of(spec) == [("x-1.tar", "md5sum", "error"), ("x-1.tar", "sha256", "error")]


def test_cut_shard_is_found_with_its_byte(spec: Path):
    """A truncated shard is reported with its size and the byte where it ends."""
    Path("x-0.tar").write_bytes(Path("x-0.tar").read_bytes()[:2000])
    found = check_spec(spec, digests=False)
    assert [fault.place for fault in found] == ["filesize", "headers"]
    assert "byte" in found[1].what


def test_missing_shard_is_found_and_the_others_are_checked(spec: Path):
    """A missing shard is reported, and the others are checked."""
    Path("x-0.tar").unlink()
    change_entry(spec, nsamples=99)
    assert faults_of(spec) == [("x-0.tar", "url", "error")]


def test_members_of_no_sample_and_odd_fields_are_notes(spec: Path, make_shard: MakeShard):
    """Members of no sample and odd fields are notes, not errors."""
    odd = [*samples(2), {"__key__": "x", ".txt": "no image"}, {"__key__": "README", "": "no dot"}]
    path = make_shard("odd.tar", odd)
    assert places_in(path) == [("members", "note"), ("fields", "note")]
    assert "1 of 3 samples" in check_shard({"url": str(path)})[1].what


def test_what_follows_the_end_is_a_note_or_a_fault(spec: Path, make_shard: MakeShard):
    """Bytes after the end are a note, a second archive is an error."""
    first, second = make_shard("a.tar", samples(1)), make_shard("b.tar", samples(1))
    plain = first.read_bytes()
    for rest, expected in (
        (b"tape" * 128, ("end", "note")),
        (second.read_bytes(), ("headers", "error")),
    ):
        first.write_bytes(plain + rest)
        assert places_in(first) == [expected]


def test_joined_archives_are_found_with_their_cure(tmp_path: Path, make_shard: MakeShard):
    """The cure of archives that were joined is to read both, and it is named once."""
    one = make_shard("one.tar", samples(2)).read_bytes()
    (tmp_path / "joined.tar").write_bytes(one + one)
    (fault,) = check_shard({"url": str(tmp_path / "joined.tar")})
    assert "found another archive" in fault.what
    assert fault.cure.startswith("if archives were joined, concatenated=True reads both")
    assert "concatenated" not in fault.what


def test_field_that_cannot_be_decoded_is_found_on_request(spec: Path, make_shard: MakeShard):
    """Each broken field is reported with sample, key and extension."""
    broken = [
        *samples(2),
        {
            "__key__": "bad",
            ".png": plain(size=(20, 20), colour=(1, 2, 3))[:50],
            ".cls": "one",
            ".txt": "t",
        },
    ]
    entry = {"url": str(make_shard("broken.tar", broken))}
    assert check_shard(entry) == []
    places = [fault.place for fault in check_shard(entry, decode=True)]
    assert places == ["sample 2 (bad), field .png", "sample 2 (bad), field .cls"]


def test_many_broken_fields_are_summed_up(spec: Path, make_shard: MakeShard):
    """Many broken fields of a shard are summarised."""
    broken = [{"__key__": f"{n:04}", ".png": b"none"} for n in range(50)]
    found = check_shard({"url": str(make_shard("broken.tar", broken))}, decode=True)
    assert len(found) == 21
    assert found[-1].what.startswith("50 values cannot be decoded")


def test_stale_sidecar_is_a_note(spec: Path, make_shard: MakeShard):
    """A sidecar that does not fit its shard is a note."""
    main(["create", "x-0.tar", "--sidecars", "-o", "y.json"])
    make_shard("x-0.tar", samples(4))
    assert places_in("x-0.tar") == [("x-0.tar.widx", "note")]


def test_interleaved_samples_are_an_error_with_both_places(spec: Path, make_shard: MakeShard):
    """Members of a sample that are not adjacent are an error with both places."""
    rows = [{"__key__": key, extension: "x"} for extension in (".a", ".b") for key in ("1", "2")]
    assert places_in(make_shard("mixed.tar", rows)) == [("headers", "error")]


def test_remote_shards_are_checked(spec: Path, shard_server):
    """A shard from a server is compared with its entry."""
    url = shard_server.put("x-0.tar", Path("x-0.tar").read_bytes())
    assert check_shard({"url": url, "nsamples": 3}) == []
    assert [fault.place for fault in check_shard({"url": url, "nsamples": 2})] == ["nsamples"]


class TestCommand:
    """`wids check` as a command."""

    @pytest.mark.parametrize("option", ["--decode", "--digests"])
    def test_sound_dataset_exits_0(self, spec: Path, capsys, option: str):
        """Nothing on standard output, a line on standard error."""
        assert main(["check", "x.json", option]) == 0
        captured = capsys.readouterr()
        assert captured.out == ""
        assert "2 shards checked, no faults" in captured.err

    def test_fault_is_printed_with_its_cure_and_exits_1(self, spec: Path, capsys):
        """Each fault is printed on two lines, fault and remedy."""
        change_entry(spec, nsamples=4)
        assert main(["check", "x.json", "--no-digest"]) == 1
        captured = capsys.readouterr()
        fault, cure = captured.out.splitlines()
        assert "x-0.tar: nsamples: the spec says 4 samples, the shard holds 3" in fault
        assert cure.strip().startswith("cure: ")
        assert "1 fault in 1 of them" in captured.err

    def test_report_as_json(self, spec: Path, capsys):
        """`--json` has the same faults."""
        change_entry(spec, nsamples=4)
        main(["check", "x.json", "--json"])
        report = json.loads(capsys.readouterr().out)
        assert (report["num_shards"], report["num_errors"]) == (2, 1)
        assert set(report["faults"][0]) == {"shard", "place", "what", "cure", "severity"}

    def test_notes_alone_exit_0(self, spec: Path, make_shard: MakeShard, capsys):
        """Notes are printed, and the exit code is 0."""
        make_shard("odd.tar", [*samples(2), {"__key__": "README", "": "no dot"}])
        assert main(["check", "odd.tar"]) == 0
        assert "note: " in capsys.readouterr().out

    def test_notes_that_shards_share_are_one(self, make_shard: MakeShard, tmp_path: Path, capsys):
        """A note that many shards have is two lines with their number; --json lists each."""
        for n in range(3):
            uneven = [{"__key__": str(i), ".a" if i > n else ".b": "x"} for i in range(9)]
            make_shard(f"u/{n}.tar", uneven)
        assert main(["check", f"{tmp_path}/u"]) == 0
        note, cure = capsys.readouterr().out.splitlines()
        assert "0.tar and 2 other shards alike: fields: 1 of 9 samples have other" in note
        assert "wids ls" in cure
        main(["check", f"{tmp_path}/u", "--json"])
        assert len(json.loads(capsys.readouterr().out)["faults"]) == 3


class TestVerify:
    """`wids check --digests`: sizes and digests, and nothing else."""

    def test_changed_byte_and_lost_end_are_found(self, spec: Path, capsys):
        """Changed bytes and truncated shards are found by digest and size."""
        first, second = Path("x-0.tar"), Path("x-1.tar")
        data = bytearray(first.read_bytes())
        data[700] ^= 1
        first.write_bytes(data)
        second.write_bytes(second.read_bytes()[:-512])
        assert main(["check", "--digests", "x.json", "--json"]) == 1
        faults = json.loads(capsys.readouterr().out)["faults"]
        assert [(fault["shard"].rpartition("/")[2], fault["place"]) for fault in faults] == [
            ("x-0.tar", "md5sum"),
            ("x-0.tar", "sha256"),
            ("x-1.tar", "filesize"),
            ("x-1.tar", "md5sum"),
            ("x-1.tar", "sha256"),
        ]

    def test_spec_without_digests_is_refused(self, spec: Path, capsys):
        """A spec without digests cannot be compared, and is refused."""
        assert main(["create", "x-{0..1}.tar", "-o", "bare.json", "--no-digest"]) == 0
        for bare in ("bare.json", "x-0.tar"):
            assert main(["check", "--digests", bare]) == 1
            assert "no digest to compare with" in capsys.readouterr().err
