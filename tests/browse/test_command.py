"""`wids browse` as a command: its output, its end, and its errors."""

import io
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import requests
from helpers.browsing import Command
from helpers.pictures import plain
from helpers.server import Faults, ShardServer
from helpers.serving import serve_shard
from helpers.shards import write_shard, write_shards
from PIL import Image

import wids
from wids.browse.server import bind
from wids.cli import main


@pytest.fixture
def shard(tmp_path: Path) -> Path:
    samples = [{"__key__": f"k{number}", ".cls": str(number)} for number in range(5)]
    return write_shard(tmp_path / "five.tar", samples)


def environment(**changes: str) -> dict[str, str]:
    paths = os.pathsep.join(entry for entry in sys.path if entry)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SSH_")}
    return {**kept, "PYTHONPATH": paths, **changes}


def start(*words: Any, **changes: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "wids", "browse", *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(**changes),
    )


def test_json_prints_the_url_and_nothing_else(shard: Path):
    """With --json, the output is one line with the URL, and the server can be ended."""
    process = start(shard, "--json", "--port", "0", "--index", "-1")
    url = json.loads(process.stdout.readline())["url"]
    assert url.startswith("http://127.0.0.1:")
    assert parse_qs(urlsplit(url).query)["i"] == ["4"]
    assert requests.get(url, timeout=100).status_code == 200
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=100) == ("", "")
    assert process.returncode == 0


def test_a_person_is_told_the_url_and_how_to_end_it(shard: Path):
    """Standard output has only the URL; hints, over SSH of the tunnel, go to standard error."""
    process = start(shard, "--port", "0", SSH_CONNECTION="1.2.3.4 5 6.7.8.9 22")
    url = process.stdout.readline().strip()
    assert requests.get(url, timeout=100).status_code == 200
    process.send_signal(signal.SIGINT)
    out, said = process.communicate(timeout=100)
    assert (out, process.returncode) == ("", 0)
    port = urlsplit(url).port
    assert f"ssh -L {port}:localhost:{port} " in said
    assert said.endswith("Ctrl-C ends it\n")


def test_it_ends_while_someone_still_downloads(shard: Path, tmp_path: Path):
    """The server ends although a connection is open."""
    with Command(shard, tmp_path) as server:
        port = urlsplit(server.url).port
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.sendall(b"GET /api/dataset HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert connection.recv(12) == b"HTTP/1.1 200"
            server.process.send_signal(signal.SIGINT)
            assert server.process.wait(100) == 0


@pytest.mark.parametrize("known", [False, True])
def test_it_ends_while_a_server_of_shards_hangs(
    shard: Path, tmp_path: Path, shard_server: ShardServer, known: bool
):
    """Ctrl-C ends the server at once, without messages, while requests wait for a remote server."""
    serve_shard(shard_server, shard)
    spec = {"shardlist": [{"url": shard.name, "nsamples": 5}]}
    url = shard_server.put("five.json", json.dumps(spec).encode())
    process = start(url, "--json", "--port", "0", "--no-token", "--cache-dir", tmp_path / "cache")
    page = json.loads(process.stdout.readline())["url"] + "api/page"
    if known:  # then samples are waited for, else the sidecar
        assert requests.get(page.replace("page", "overview"), timeout=100).ok
    shard_server.faults = Faults(stall_at=0)
    assert requests.get(page, params={"where": "cls = 1"}, timeout=100).json()["total"] == 0
    with pytest.raises(requests.exceptions.ReadTimeout):
        requests.get(page, timeout=0.3)
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=100) == ("", "")
    assert process.returncode == 0


def test_names_of_classes_are_read_from_a_file(shard: Path, tmp_path: Path):
    """The names in the file that an option gives are shown on the page."""
    names = tmp_path / "names.txt"
    names.write_text("cat\ndog\n")
    with Command(shard, tmp_path, "--class-names", str(names)) as server:
        tiles = server.get("api/page").json()["tiles"]
        assert [tile["label"]["name"] for tile in tiles[:3]] == ["cat", "dog", None]


@pytest.fixture
def damaged_tiff(tmp_path: Path) -> Path:
    """Make a shard with a TIFF for which Pillow warns, since its table of tags is truncated."""
    data = plain("TIFF", (32, 32))
    start = int.from_bytes(data[4:8], "little")
    table = data[start : start + 2 + 12 * int.from_bytes(data[start : start + 2], "little")]
    data = data[:4] + len(data).to_bytes(4, "little") + data[8:] + table[:-5]
    with pytest.warns(UserWarning, match="Corrupt EXIF"):
        Image.open(io.BytesIO(data)).load()
    return write_shard(tmp_path / "tiff.tar", [{"__key__": "a", ".tif": data}])


def test_warnings_are_told_and_those_of_others_are_not(
    damaged_tiff: Path, shard: Path, shard_server: ShardServer
):
    """Warnings of the library are printed, and those of Pillow are not."""
    (damaged_tiff.parent / "classes.json").write_text("no names")
    url = shard_server.put("five.tar", shard.read_bytes())
    rows = [{"url": str(damaged_tiff), "nsamples": 1}, {"url": url}]
    spec = damaged_tiff.parent / "two.json"
    spec.write_text(json.dumps({"shardlist": rows}))
    for options, told in ([], True), (["--json"], False):
        process = start(
            spec, "--port", "0", "--no-token", *options, WIDS_CACHE=str(spec.parent / "cache")
        )
        line = process.stdout.readline()
        page = json.loads(line)["url"] if options else line.strip()
        for question in ("api/page", "api/sample?i=0", "thumb?i=0&f=0&s=96", "api/sample?i=2"):
            assert requests.get(page + question, timeout=60).status_code == 200
        process.send_signal(signal.SIGINT)
        out, said = process.communicate(timeout=100)
        assert (process.returncode, out) == (0, "")
        assert "EXIF" not in said
        assert "UserWarning" not in said
        found = [
            each in said
            for each in ("are fetched whole: there is no usable sidecar", "classes.json: expected")
        ]
        assert found == [told, told]
        assert ("Ctrl-C" in said) is told


def test_a_port_that_is_taken_is_named(
    shard: Path, capsys: pytest.CaptureFixture[str], no_fd_leaks: None
):
    """A port that is in use is an error, no other port is tried, and nothing is left open."""
    with bind("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        assert main(["browse", str(shard), "--port", str(port)]) == 1
    assert f"cannot listen on 127.0.0.1, port {port}" in capsys.readouterr().err


def test_an_address_that_is_not_ours_is_named_with_the_port_that_was_meant(
    shard: Path, capsys: pytest.CaptureFixture[str]
):
    """An address of another machine is an error that names the port."""
    assert main(["browse", str(shard), "--host", "192.0.2.1", "--no-browser"]) == 1
    captured = capsys.readouterr()
    assert "cannot listen on 192.0.2.1, port 8765" in captured.err
    assert (captured.out, captured.err.count("\n")) == ("", 1)


def test_without_a_wish_any_port_will_do():
    """Two servers without --port get different ports, and small responses are not delayed."""
    with bind("127.0.0.1", None) as first, bind("127.0.0.1", None) as second:
        assert first.getsockname() != second.getsockname()
        assert first.proto == socket.IPPROTO_TCP


def test_a_missing_library_is_named(
    shard: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    """Without the extra, the error says what to install."""
    from wids.base.optional import load

    load.cache_clear()
    monkeypatch.setitem(sys.modules, "starlette", None)
    assert main(["browse", str(shard)]) == 1
    assert "wids[browse]" in capsys.readouterr().err
    load.cache_clear()


def test_a_damaged_shard_of_a_folder_hides_no_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    """A damaged shard is left out and named; if no shard is readable, it is an error."""
    write_shard(tmp_path / "a.tar", [{"__key__": "a", ".txt": "first"}])
    (tmp_path / "b.tar").write_bytes(b"no tar")
    write_shard(tmp_path / "c.tar", [{"__key__": "c", ".txt": "last"}])
    with Command(tmp_path, tmp_path) as server:
        assert [each["key"] for each in server.get("api/page").json()["tiles"]] == ["a", "c"]
        rows = server.get("api/shards").json()["shards"]
    assert [row["state"] for row in rows] == ["local", "damaged", "local"]
    assert "b.tar" in rows[1]["message"]
    assert main(["browse", str(tmp_path / "b.tar")]) == 1
    assert "no tar" in capsys.readouterr().err


def test_a_saved_view_is_browsed(tmp_path: Path) -> None:
    """The grid shows its samples alone, in its order; a filter looks among them."""
    write_shards(tmp_path, [{"__key__": f"k{n}", ".cls": str(n)} for n in range(10)], 5)
    dataset = wids.ShardListDataset(tmp_path)
    dataset.select([8, 2, 5, 9]).save(tmp_path / "some.json")
    dataset.join(dataset, replace=True).save(tmp_path / "both.json")
    with Command(tmp_path / "some.json", tmp_path) as server:

        def shown(**query: Any) -> list[str]:
            page = server.ask_until_finished("page", **query)
            return [tile["key"] for tile in page["tiles"]]

        assert shown() == ["k8", "k2", "k5", "k9"]
        assert shown(where="cls >= 5") == ["k8", "k5", "k9"]
        assert sorted(shown(order="shuffled")) == ["k2", "k5", "k8", "k9"]
        assert "saved view" in server.get("api/page", order="shards").json()["error"]
        assert server.get("api/overview").json()["beyond_view"]
        facts = server.get("api/dataset").json()
        assert facts["num_chosen"] < facts["num_samples"]
    with Command(tmp_path / "both.json", tmp_path) as server:
        fields = server.get("api/sample", i=7).json()["fields"]
        assert [(each["extension"], each["stored"]) for each in fields] == [(".cls", None)]
