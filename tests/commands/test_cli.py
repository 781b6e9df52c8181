"""The command `wids`: what it prints, what it writes, and how it ends."""

import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.interpreters import run_python, write_command
from helpers.shards import MakeShard
from PIL import Image

import wids
from wids.cli import main


def red_and_blue() -> bytes:
    """Make a PNG, its left half red, its right half blue."""
    image = Image.new("RGB", (8, 4), (255, 0, 0))
    image.paste((0, 0, 255), (4, 0, 8, 4))
    stream = io.BytesIO()
    image.save(stream, "PNG")
    return stream.getvalue()


@pytest.fixture
def folder(make_shard: MakeShard, tmp_path: Path, monkeypatch) -> Path:
    """Stand in a folder with two shards of five samples in all."""
    for shard in range(2):
        make_shard(
            f"train-{shard:03}.tar",
            [
                {
                    "__key__": f"key{shard}{n}",
                    ".png": red_and_blue(),
                    ".cls": str(n),
                    ".txt": f"caption {n}",
                }
                for n in range(3 - shard)
            ],
        )
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def spec(folder: Path, capsys) -> str:
    """Create the spec of that folder."""
    assert main(["create", "train-{000..001}.tar", "-o", "train.json"]) == 0
    capsys.readouterr()
    return "train.json"


def run(capsys, *arguments: str) -> tuple[int, str, str]:
    """Run a command; return exit code, standard output and standard error."""
    code = main(arguments)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def run_in_shell(command: str) -> subprocess.CompletedProcess[str]:
    """Run a line of the shell."""
    return subprocess.run(command, shell=True, capture_output=True, text=True, check=False)


class TestCreate:
    """`wids create`."""

    def test_brace_pattern_becomes_a_spec(self, folder: Path, capsys):
        """A quoted brace pattern is expanded, and the spec has the counts of its shards."""
        code, out, err = run(capsys, "create", "train-{000..001}.tar", "-o", "train.json")
        document = json.loads((folder / "train.json").read_text())
        assert (code, out) == (0, "")
        assert "train.json: 2 shards, 5 samples" in err
        assert document["name"] == "train"
        assert [shard["nsamples"] for shard in document["shardlist"]] == [3, 2]
        assert all(len(shard["md5sum"]) == 32 for shard in document["shardlist"])
        assert len(wids.ShardListDataset("train.json")) == 5

    @pytest.mark.parametrize("given", [["."], ["train-*.tar"], ["train-000.tar", "train-001.tar"]])
    def test_folders_globs_and_names_mean_the_same(self, folder: Path, given: list[str], capsys):
        """A folder, a glob and names of the same shards give the same spec."""
        assert run(capsys, "create", *given, "-o", "x.json", "--no-digest")[0] == 0
        urls = [shard["url"] for shard in json.loads(Path("x.json").read_text())["shardlist"]]
        assert urls == ["train-000.tar", "train-001.tar"]
        assert "md5sum" not in Path("x.json").read_text()

    def test_list_comes_from_standard_input(self, folder: Path, capsys, monkeypatch):
        """`-` reads one shard per line, and ignores empty lines."""
        monkeypatch.setattr("sys.stdin", io.StringIO("train-001.tar\n\ntrain-000.tar\n"))
        assert run(capsys, "create", "-", "-o", "x.json")[0] == 0
        assert len(json.loads(Path("x.json").read_text())["shardlist"]) == 2

    def test_indexes_for_other_tools(self, folder: Path, capsys):
        """Where DALI's and Energon's indexes lie beside shards, check finds wrong ones."""
        assert run(capsys, "create", "train-000.tar", "-o", "x.json")[0] == 0
        wids.write_dali_index("train-000.tar")
        wids.write_energon_index("train-000.tar")
        assert wids.check_foreign_index("train-000.idx", "train-000.tar") > 0
        assert wids.check_foreign_index("train-000.tar.idx", "train-000.tar") == 4
        assert run(capsys, "check", "x.json")[0] == 0
        Path("train-000.idx").write_text("v1.2 1\ntxt 9999 1 a.txt\n")
        code, out, _ = run(capsys, "check", "x.json")
        assert code != 0
        assert "entry 0 is wrong" in out

    def test_an_empty_list_is_refused(self, folder: Path, capsys, monkeypatch):
        """An empty standard input is refused with the expectation."""
        monkeypatch.setattr("sys.stdin", io.StringIO("\n"))
        code, _, err = run(capsys, "create", "-", "-o", "x.json")
        assert code == 1
        assert "standard input named no shards" in err

    def test_spec_in_another_folder_finds_its_shards(self, folder: Path, capsys):
        """Shards are relative to the spec's folder, not to the working directory."""
        assert run(capsys, "create", "train-000.tar", "-o", "specs/x.json")[0] == 0
        assert len(wids.ShardListDataset("specs/x.json")) == 3

    def test_header_options(self, folder: Path, capsys):
        """Name, description and base are in the spec; with a base, names stay as given."""
        Path("about.txt").write_text("All about it.\n")
        given = ["-n", "mine", "-i", "about.txt", "-b", "https://host/x", "-o", "x.json"]
        assert run(capsys, "create", "train-000.tar", *given)[0] == 0
        document = json.loads(Path("x.json").read_text())
        assert document["name"] == "mine"
        assert document["info"] == "All about it.\n"
        assert document["base"] == "https://host/x"
        assert document["shardlist"][0]["url"] == "train-000.tar"

    @pytest.mark.filterwarnings("always")
    def test_no_spec_lacks_a_broken_shard_in_silence(self, folder: Path, capsys):
        """Nothing is written without --skip-broken, whose spec says what it lacks when opened."""
        whole = Path("train-001.tar").read_bytes()
        Path("train-001.tar").write_bytes(whole[:1000])
        Path("x.json").write_text("{}")
        code, out, err = run(capsys, "create", "train-{000..001}.tar", "-o", "x.json", "--json")
        assert (code, Path("x.json").read_text()) == (1, "{}")
        assert list(json.loads(out)["failures"]) == ["train-001.tar"]
        assert "train-001.tar failed" in err
        assert "x.json was not written: 1 of 2 shards" in err
        assert "--resume" in err
        assert "--skip-broken" in err
        Path("x.json").unlink()
        create = ("create", "train-{000..001}.tar", "-o", "x.json", "--resume")
        code, out, _ = run(capsys, *create, "--skip-broken", "--json")
        report = json.loads(out)
        assert (code, report["num_shards"], report["nsamples"]) == (0, 1, 3)
        document = json.loads(Path("x.json").read_text())
        assert len(document["shardlist"]) == 1
        assert document["left_out"][0]["url"] == "train-001.tar"
        assert document["left_out"][0]["reason"].startswith("at byte ")
        for command in ("info", "check", "ls", "merge"):
            more = ["-o", "merged.json"] if command == "merge" else []
            code, _, err = run(capsys, command, "x.json", *more)
            assert code == 0
            assert re.search("x.json: 1 of 2 shards .*train-001.tar", err)
        for source in ("x.json", "merged.json", ["x.json"], document):
            with pytest.warns(wids.WidsWarning, match="1 of 2 shards are left out"):
                wids.ShardListDataset(source)
        Path("train-001.tar").write_bytes(whole)
        assert run(capsys, *create)[0] == 0
        assert "left_out" not in json.loads(Path("x.json").read_text())

    def test_resume_reads_a_changed_shard_again(self, folder: Path, capsys):
        """A shard that is newer than the spec is read again."""
        run(capsys, "create", "train-000.tar", "-o", "x.json")
        first = Path("x.json").read_text()
        Path("x.json").write_text(first.replace('"nsamples": 3', '"nsamples": 9'))
        os.utime("x.json", (1, 1))
        run(capsys, "create", "train-000.tar", "-o", "x.json", "--resume")
        assert Path("x.json").read_text() == first

    def test_resume_reads_shards_again_for_another_digest(self, folder: Path, capsys):
        """A shard whose entry lacks the requested digest is read again."""
        run(capsys, "create", "train-000.tar", "-o", "x.json")
        run(capsys, "create", "train-000.tar", "-o", "x.json", "--resume", "--sha256")
        (shard,) = json.loads(Path("x.json").read_text())["shardlist"]
        assert {"md5sum", "sha256"} <= set(shard)

    def test_resume_does_not_fetch_what_the_spec_has(self, folder: Path, shard_server, capsys):
        """Remote shards with an entry are not fetched again."""
        url = shard_server.put("a.tar", Path("train-000.tar").read_bytes())
        assert run(capsys, "create", url, "-o", "x.json")[0] == 0
        before = Path("x.json").read_text()
        requests = len(shard_server.requests)
        assert run(capsys, "create", url, "-o", "x.json", "--resume")[0] == 0
        assert len(shard_server.requests) == requests
        assert Path("x.json").read_text() == before

    def test_resume_from_what_is_no_spec_is_refused(self, folder: Path, capsys):
        """A file that is not a spec is refused by name, and unchanged."""
        Path("x.json").write_text("no json")
        code, _, err = run(capsys, "create", "train-000.tar", "-o", "x.json", "--resume")
        assert (code, "x.json: expected the spec of an earlier run" in err) == (1, True)
        assert Path("x.json").read_text() == "no json"

    def test_output_that_cannot_be_written_is_told_before_the_work(self, folder: Path, capsys):
        """An output that cannot be written is refused before shards are read."""
        Path("here").mkdir()
        Path("train-000.tar").write_bytes(b"never read")
        for output, message in (
            ("here", "here: is a folder"),
            ("train-001.tar/x.json", "train-001.tar: File exists"),
        ):
            code, _, err = run(capsys, "create", "train-000.tar", "-o", output)
            assert code == 1
            assert message in err
            assert "train-000.tar" not in err

    def test_interrupt_ends_quietly(self, folder: Path, monkeypatch, capsys):
        """Ctrl-C gives exit code 130 and no traceback."""

        def interrupt(*_: object, **__: object) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr("wids.tools.creating.build_spec", interrupt)
        assert run(capsys, "create", "train-000.tar") == (130, "", "")


class TestInfoAndLs:
    """`wids info` and `wids ls`."""

    def test_info_sums_up(self, spec: str, capsys):
        """`info` prints samples, bytes and shards, one per line."""
        code, out, _ = run(capsys, "info", spec)
        facts = dict(line.strip().split(": ", 1) for line in out.strip().splitlines())
        assert code == 0
        assert (facts["filename"], facts["name"], facts["total samples"]) == (spec, "train", "5")
        assert (facts["total shards"], facts["last shard"]) == ("2", "train-001.tar")
        nbytes = sum(path.stat().st_size for path in Path().glob("*.tar"))
        assert facts["total size"].startswith(f"{nbytes:,} bytes")
        assert "fields" in facts
        assert "\t" not in out

    def test_info_as_json(self, spec: str, capsys):
        """`info --json` prints integers."""
        facts = json.loads(run(capsys, "info", spec, "--json")[1])
        sizes = sum(path.stat().st_size for path in Path().glob("*.tar"))
        assert (facts["nsamples"], facts["filesize"], facts["num_shards"]) == (5, sizes, 2)

    @pytest.mark.parametrize("source", [".", "train-*.tar", "train-{000..001}.tar"])
    def test_info_counts_what_no_spec_says(self, folder: Path, source: str, capsys):
        """The samples of a folder or pattern are counted, with and without sidecars."""
        for options in (["--sidecars"], []):
            run(capsys, "create", "train-{000..001}.tar", "-o", "out/x.json", *options)
            code, out, _ = run(capsys, "info", source)
            facts = dict(line.strip().split(": ", 1) for line in out.strip().splitlines())
            nbytes = sum(path.stat().st_size for path in Path().glob("*.tar"))
            assert code == 0
            assert facts["total samples"] == "5"
            assert facts["total size"].startswith(f"{nbytes:,} bytes")
            assert facts["avg sample size"] != "unknown"
            json_facts = json.loads(run(capsys, "info", source, "--json")[1])
            assert " ".join(json_facts["fields"]) + " (of the first shard)" == facts["fields"]
            assert (json_facts["nsamples"], json_facts["filesize"]) == (5, nbytes)
        assert run(capsys, "info", source, "-t")[1].splitlines()[1].split("\t")[2:4] == [
            str(nbytes),
            "5",
        ]

    def test_info_counts_remote_shards_by_their_sidecars(
        self, folder: Path, shard_server, capsys, monkeypatch
    ):
        """Remote shards are counted by their sidecars, without fetching a shard."""
        monkeypatch.setenv("WIDS_CACHE", str(folder / "cache"))
        run(capsys, "create", "train-000.tar", "-o", "x.json", "--sidecars")
        for name in ("train-000.tar", "train-000.tar.widx"):
            url = shard_server.put(name, Path(name).read_bytes())
        facts = json.loads(run(capsys, "info", url.removesuffix(".widx"), "--json")[1])
        assert facts["nsamples"] == 3
        assert facts["fields"]
        assert not list((folder / "cache").glob("*.tar"))

    def test_ls_lists_shards_with_their_first_index(self, spec: str, capsys):
        """`ls` prints a line per shard, with numbers aligned to the right."""
        lines = run(capsys, "ls", spec)[1].splitlines()
        assert [line.split()[:3] for line in lines] == [
            ["shard", "first", "samples"],
            ["0", "0", "3"],
            ["1", "3", "2"],
        ]

    @pytest.mark.parametrize(
        ("wanted", "keys"),
        [
            ("1:4", ["key01", "key02", "key10"]),
            (":1", ["key00"]),
            ("-2:", ["key10", "key11"]),
            ("4", ["key11"]),
            ("-1", ["key11"]),
            ("9:", []),
        ],
    )
    def test_ls_lists_samples_of_a_range(self, spec: str, wanted: str, keys: list[str], capsys):
        """Ranges are those of Python, with negative numbers from the end."""
        rows = json.loads(run(capsys, "ls", spec, "--json", wanted)[1])
        assert rows == json.loads(run(capsys, "ls", spec, wanted, "--json")[1])
        assert [row["key"] for row in rows] == keys
        assert all(set(row["fields"]) == {".png", ".cls", ".txt"} for row in rows)


class TestShowAndCat:
    """`wids show` and `wids cat`."""

    def test_show_says_what_each_field_is(self, spec: str, capsys):
        """`show` prints key, shard, and a line with size and value for each field."""
        code, out, _ = run(capsys, "show", spec, "4")
        assert code == 0
        assert "sample 4 of 5" in out
        assert "train-001.tar, sample 1 in it" in out
        assert "PNG image, 8 x 4, RGB" in out
        assert "'caption 1'" in out

    def test_show_as_json(self, spec: str, capsys):
        """`show --json` has sizes and plain values; negative indexes count from the end."""
        shown = json.loads(run(capsys, "show", spec, "-1", "--json")[1])
        assert (shown["index"], shown["key"], shown["shardindex"]) == (4, "key11", 1)
        assert shown["fields"][".cls"] == {
            "kind": "class",
            "nbytes": 1,
            "summary": "1",
            "details": {"value": 1, "name": None},
            "value": 1,
        }
        assert shown["fields"][".png"]["nbytes"] == len(red_and_blue())

    def test_bad_field_spoils_no_other(self, make_shard: MakeShard, capsys):
        """The error of a field is printed on its line, and the other fields are shown."""
        cut = red_and_blue()[:50]
        path = make_shard(
            "x.tar", [{"__key__": "a", ".png": cut, ".pkl": b"\x80\x04.", ".txt": "fine"}]
        )
        code, out, _ = run(capsys, "show", str(path), "0")
        assert code == 0
        assert out.count("cannot be decoded") == 1
        assert "bytes: 80 04 2e" in out  # a pickle is never read
        assert "'fine'" in out

    def test_strangers_names_and_texts_cannot_drive_the_terminal(
        self, make_shard: MakeShard, capsys
    ):
        """Escape sequences in keys, extensions and values are printed as text."""
        evil = "\x1b[2J\x07"
        sample = {
            "__key__": f"k{evil}",
            f".t{evil}": "x",
            ".txt": evil,
            ".json": f'{{"a": "{evil}"}}',
        }
        path = make_shard("x.tar", [sample])
        for command in (["show"], ["ls"]):
            out, err = run(capsys, *command, str(path), "0")[1:]
            assert not {"\x1b", "\x07"} & set(out + err)

    def test_letters_that_cannot_be_written_become_escapes(self, make_shard: MakeShard):
        """Letters that the output's encoding lacks are printed as escapes."""
        path = make_shard("x.tar", [{"__key__": "a", ".txt": "grün 日本", ".cls": "1"}])
        ascii_only = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
        latin = {"PYTHONIOENCODING": "latin-1"}
        for settings, shown in (
            (ascii_only, rb"gr\xfcn \u65e5\u672c"),
            (latin, b"gr\xfcn \\u65e5\\u672c"),
        ):
            command = [sys.executable, "-m", "wids", "show", str(path), "0"]
            done = subprocess.run(
                command, env={**os.environ, **settings}, capture_output=True, check=True
            )
            assert shown in done.stdout
            assert b".cls" in done.stdout

    def test_cat_writes_the_bytes(self, folder: Path, capfdbinary):
        """`cat` writes the bytes of a field, given with its dot or without."""
        for field in (".png", "png"):
            assert main(["cat", "train-000.tar", "2", field]) == 0
            assert capfdbinary.readouterr().out == red_and_blue()

    def test_samples_are_named_by_their_keys(self, spec: str, capsys):
        """A key names the sample that has it."""
        assert "sample 4 of 5" in run(capsys, "show", spec, "key11")[1]

    def test_a_number_with_leading_zeros_is_a_key(self, tmp_path: Path, capfdbinary):
        """The usual keys are numbers, whose first one is not always 0."""
        with wids.ShardWriter(str(tmp_path / "numbered-%d.tar")) as writer:
            for number in range(1, 4):
                writer.write({"__key__": f"{number:06d}", ".txt": f"caption {number}"})
        for named, caption in (("1", b"2"), ("000001", b"1"), ("0", b"1"), ("-1", b"3")):
            assert main(["cat", str(tmp_path / "numbered-0.tar"), named, ".txt"]) == 0
            assert capfdbinary.readouterr().out == b"caption " + caption


class TestErrors:
    """How commands fail."""

    def test_error_is_one_line_without_a_traceback(self, folder: Path):
        """Any error of the data gives one line on standard error and code 1."""
        Path("bad.json").write_text('{"shardlist": [{"nsamples": 1}]}')
        for arguments in (
            ["info", "missing.json"],
            ["info", "bad.json"],
            ["show", "train-000.tar", "99"],
            ["create", "train-000.tar", "-i", "missing.txt"],
        ):
            done = run_python("-m", "wids", *arguments)
            assert (done.returncode, done.stdout) == (1, "")
            assert len(done.stderr.splitlines()) == 1
            assert done.stderr.startswith("wids: ")

    def test_reader_that_stops_early_is_no_error(self, folder: Path, make_shard: MakeShard):
        """`wids ls ... | head -c 1` ends quietly."""
        samples = [{"__key__": f"{n:06}", ".txt": "x"} for n in range(3000)]
        make_shard("large.tar", samples)  # more lines than a pipe holds
        write_command(folder / "wids", "-m", "wids")
        done = run_in_shell("./wids ls large.tar : --json | head -c 1")
        assert (done.stdout, done.stderr) == ("[", "")

    @pytest.mark.parametrize(
        ("arguments", "code"),
        [("ls large.tar", 1), ("cat large.tar 0 .txt", 1), ("create large.tar -o x.json", 0)],
    )
    def test_closed_standard_output_is_told(
        self, folder: Path, make_shard: MakeShard, arguments: str, code: int
    ):
        """Printing to a closed standard output is an error; printing nothing is not."""
        make_shard("large.tar", [{"__key__": "a", ".txt": "x"}])
        done = run_in_shell(f"{sys.executable} -m wids {arguments} >&-")
        assert done.returncode == code
        assert ("standard output is closed" in done.stderr) == bool(code)
        assert "Traceback" not in done.stderr


class TestStart:
    """How the command starts."""

    def test_version(self, capsys):
        """`--version` says the package's version."""
        with pytest.raises(SystemExit) as stopped:
            main(["--version"])
        assert stopped.value.code == 0
        assert capsys.readouterr().out.strip() == f"wids {wids.__version__}"

    @pytest.mark.parametrize("command", ["create", "info", "ls", "show", "cat"])
    def test_help_teaches_by_examples(self, command: str, capsys):
        """Every command's help ends with examples that call it."""
        with pytest.raises(SystemExit) as stopped:
            main([command, "--help"])
        shown = capsys.readouterr().out
        assert stopped.value.code == 0
        assert f" {command} " in shown.split("examples:")[1]

    def test_no_command_imports_torch_and_the_help_not_even_numpy(self, spec: str):
        """The help imports no library; indexing and showing import no torch."""
        code = (
            "import sys\n"
            "import wids.importing.importers\n"
            "from wids.cli import main\n"
            "try: main(['--help'])\n"
            "except SystemExit: assert not {'torch', 'numpy', 'PIL'} & set(sys.modules)\n"
            f"main(['show', {spec!r}, '0']); main(['create', 'train-000.tar', '-o', '-'])\n"
            "sys.exit('torch' in sys.modules)"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
        assert done.returncode == 0, done.stderr


def test_interrupted_while_modules_load_is_no_traceback(monkeypatch):
    """Ctrl-C during the import of modules gives exit code 130 and no traceback."""
    from wids import __main__ as started

    class Interrupting:
        """An importer that is interrupted."""

        def find_spec(self, name: str, *_: object) -> None:
            """Stand for Ctrl-C."""
            if name == "wids.cli":
                raise KeyboardInterrupt

    monkeypatch.delitem(sys.modules, "wids.cli")
    monkeypatch.setattr(sys, "meta_path", [Interrupting(), *sys.meta_path])
    assert started.main() == 130
