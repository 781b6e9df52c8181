"""Users, passwords, signatures and commands in locations: whatever is said, nobody reads them."""

import json
import logging
import traceback
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from helpers.browsing import browsing
from helpers.server import ShardServer
from helpers.shards import write_shard
from torch.utils.data import DataLoader

import wids
from wids.base.urls import has_odd_port
from wids.cli import main
from wids.errors import WidsError
from wids.fetching.transport import FetchPolicy
from wids.tar.tarindex import TarIndex

HERE = "127.0.0.1:1"  # nobody listens there
LOCATIONS = [
    f"http://user:HUSHHUSH@{HERE}/x.tar?sig=HUSHHUSH",
    f"HTTP://user:HUSHHUSH@{HERE}/x.tar?HUSHHUSH#HUSHHUSH",
    f"http://HUSHHUSH@{HERE}/x.tar",
    f"http://user:SEC/HUSHHUSH@{HERE}/x.tar",
    f"//me:HUSHHUSH@{HERE}/x.tar",
    f"//me:HUSHHUSH@{HERE}/x.json?sig=HUSHHUSH",
    f"http:/me:HUSHHUSH@{HERE}/x.tar",
    f"http:me:HUSHHUSH@{HERE}/x.tar",
    f"http:\\\\me:HUSHHUSH@{HERE}\\x.tar",
    f"me:HUSHHUSH@{HERE}/x.tar?sig=HUSHHUSH",
    f"{HERE}/x.tar?X-Amz-Signature=HUSHHUSH",
    f"{HERE}/x.json?sig=HUSHHUSH",
    f"http://{HERE}/x%3Fsig=HUSHHUSH",
    f"http%3A%2F%2Fme%3AHUSHHUSH%40{HERE}%2Fx.tar%3Fsig%3DHUSHHUSH",
    f"http://me%3AHUSHHUSH%40{HERE}/x.json",
    f"http://me:HUSHHUSH@{HERE}/\x01x.tar?sig=HUSHHUSH",
    f"http://me:HUSHHUSH@[{HERE}/x.tar",
    f"tar::http://me:HUSHHUSH@{HERE}/x.tar",
    f"ftp://me:HUSHHUSH@{HERE}/x.tar?sig=HUSHHUSH",
    f"file://me:HUSHHUSH@{HERE}/x.tar?sig=HUSHHUSH",
    "file:///nowhere/x.tar?sig=HUSHHUSH",
    "s3://KEY:HUSHHUSH@bucket/x.tar",
    "az://[container/x.tar?sig=HUSHHUSH",
    "AZ://container`/x.json?sig=HUSHHUSH",
    "hf://datasets/a/b?sig=HUSHHUSH",
    "pipe:curl -u me:HUSHHUSH http://h/x.tar",
    "PIPE:env TOKEN=HUSHHUSH fetch",
    "pipe:no-such-program-here --key HUSHHUSH",
    f"pipe:curl -H 'Authorization: HUSHHUSH' {HERE}",
    f"http://user:HUSHHUSH/PW@{HERE}/x.tar",
    f"http://user:HUSHHUSH#1@{HERE}/x.tar",
    f"http://user:HUSHHUSH?1@{HERE}/x.tar",
    "HTTP://user:HUSHHUSH@ho st/x?sig=HUSHHUSH",
    "http://me:HUSHHUSH@ho\u2100st/x.tar",
    "az://a:HUSHHUSH@c/x.tar",
]


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Try everything once, and nowhere but on this machine."""
    monkeypatch.setattr(FetchPolicy, "wait_seconds", lambda *_: 0.0)
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{HERE}")
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    monkeypatch.chdir(tmp_path)


def _shows_it(text: str) -> bool:
    return "hushhush" in text.lower()  # a host name is made lower


def _dataset(location: str, spec: Path) -> list[str]:
    """Open it alone, with and without permissions, by a spec, by range; read from it."""
    said = []
    rows = [{"url": location, "nsamples": 1}]
    openings: list[tuple[Any, dict[str, Any]]] = [
        *((source, {}) for source in (location, [location], rows, str(spec))),
        ([{**rows[0], "index": location}], {"remote": "range"}),
        *((rows, options) for options in ({"allow_pipe": True}, {"base": location})),
        ([("http://127.0.0.1:1/a.tar", 1)], {"cache_dir": location}),
    ]
    for source, options in openings:
        try:
            with wids.ShardListDataset(source, **options) as dataset:
                # A shard's entry can be read like the JSON; its repr is for people.
                said += [dataset.data_info, repr(dataset), str(dataset.shards[0])]
                dataset[0]
        except Exception as error:  # noqa: BLE001 (whatever it is, it says something)
            said += _said_by(error)
    return said


def _said_by(error: BaseException) -> list[str]:
    """Return what its message, its repr and its traceback say, with all causes."""
    return [str(error), repr(error), *traceback.format_exception(error)]


def _page(location: str, spec: Path) -> list[str]:
    """Look at it on the page."""
    del spec
    said = []
    questions = ("api/dataset", "api/page", "api/sample?i=0", "api/shards")
    try:
        with browsing([(location, 1)], title=location) as server:
            for response in map(server.get, questions):
                said.append(response.text + str(response.headers))
    except WidsError as error:
        said += _said_by(error)
    return said


def _functions(location: str, spec: Path) -> list[str]:
    """Ask the functions that take locations."""
    del spec
    said = []
    calls: list[Callable[[], Any]] = [
        lambda: wids.ShardCache().get(location),
        lambda: wids.ShardCache(allow_pipe=True).get(location),
        lambda: wids.DatasetSpec.load(location),
        lambda: wids.DatasetSpec.parse("{", location),
        lambda: TarIndex.from_tar(location),
        lambda: wids.ShardWriter(location),
        lambda: wids.TarWriter(location),
    ]
    for call in calls:
        try:
            said.append(repr(call()))
        except Exception as error:  # noqa: BLE001
            said += _said_by(error)
    return said


def _command(*arguments: str) -> Callable[[str, Path], list[str]]:
    """Return what runs a command on the location, and on a spec that names it."""

    def run(location: str, spec: Path) -> list[str]:
        for given in (location, str(spec)):
            with suppress(SystemExit):
                main([each.replace("LOCATION", given) for each in arguments])
        return []

    return run


OUTLETS: dict[str, Callable[[str, Path], list[str]]] = {
    "dataset": _dataset,
    "page": _page,
    "functions": _functions,
    "info": _command("info", "LOCATION"),
    "info --json": _command("info", "--json", "LOCATION"),
    "info --table": _command("info", "--table", "LOCATION"),
    "ls": _command("ls", "LOCATION"),
    "ls --json": _command("ls", "--json", "LOCATION"),
    "ls 0": _command("ls", "LOCATION", "0"),
    "show": _command("show", "LOCATION", "0"),
    "cat": _command("cat", "LOCATION", "0", ".txt"),
    "check": _command("check", "LOCATION"),
    "check --json": _command("check", "--json", "LOCATION"),
    "digests": _command("check", "--digests", "LOCATION"),
    "info --stats": _command("info", "--stats", "LOCATION"),
    "order": _command("order", "LOCATION"),
    "import": _command("import", "LOCATION", "-o", "out-%d.tar"),
    "import to it": _command("import", "good.tar", "-o", "LOCATION"),
    "create": _command("create", "LOCATION", "-o", "out.json"),
    "create to it": _command("create", "good.tar", "-o", "LOCATION"),
    "reshard": _command("reshard", "LOCATION", "-o", "out-%d.tar"),
    "reshard to it": _command("reshard", "good.tar", "-o", "LOCATION"),
    "merge": _command("merge", "LOCATION", "LOCATION", "-o", "out.json"),
    "repair": _command("check", "LOCATION", "--repair", "out.tar"),
    "export": _command("export", "LOCATION", "out.csv"),
    "browse": _command("browse", "LOCATION", "--host", "192.0.2.1", "--no-browser"),
}


def _locations_of(outlet: str) -> list[str]:
    """Return all locations for the functions, and a part of them for each command.

    Commands print the errors of the functions, and each location meets nine of them.
    """
    if outlet in ("dataset", "functions"):
        return LOCATIONS
    return LOCATIONS[list(OUTLETS).index(outlet) % 3 :: 3]


@pytest.mark.filterwarnings("always")
@pytest.mark.parametrize("outlet", OUTLETS)
def test_no_outlet_shows_a_secret(
    outlet: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Tracebacks, warnings, logs, descriptions, commands and the page hide what may be secret."""
    write_shard(tmp_path / "good.tar", [{"__key__": "a", ".txt": "x"}])
    leaks = []
    for location in _locations_of(outlet):
        spec = tmp_path / "spec.json"
        shards = [{"url": location, "nsamples": 1, "filesize": 10_240}]
        spec.write_text(json.dumps({"wids_version": 1, "base": location, "shardlist": shards}))
        caplog.clear()
        with warnings.catch_warnings(record=True) as warned, caplog.at_level(logging.DEBUG, "wids"):
            warnings.simplefilter("always")
            said = OUTLETS[outlet](location, spec)
        captured = capfd.readouterr()
        said += [str(each.message) for each in warned] + [caplog.text, captured.out, captured.err]
        for text in said:
            for line in text.splitlines():
                if _shows_it(line):
                    leaks.append(f"{location!r}: {line[:300]}")
    assert not leaks, "\n".join(dict.fromkeys(leaks))


def test_the_message_of_a_worker_shows_no_secret() -> None:
    """The message of a DataLoader's worker is its traceback, with the causes of the error."""
    # Malformed ones are refused when the dataset is made.
    locations = [each for each in LOCATIONS if not set("\x01[\u2100") & set(each)]
    locations = [each for each in locations if not has_odd_port(each)]
    dataset = wids.ShardListDataset([(each, 1) for each in locations], allow_pipe=True)
    batches = iter(DataLoader(dataset, num_workers=1, collate_fn=list))
    messages = []
    for _ in locations:
        with pytest.raises(WidsError) as caught:
            next(batches)
        messages.append(str(caught.value))
    assert all("Traceback" in message for message in messages)
    assert not [message for message in messages if _shows_it(message)]


@pytest.mark.parametrize(
    "name", ["x.tar?X-Amz-Signature=HUSHHUSH", "me:HUSHHUSH@host.tar"], ids=["query", "login"]
)
def test_files_named_like_a_url_are_read_and_shown_without_secrets(
    tmp_path: Path, name: str
) -> None:
    """Download programs name files after URLs: samples are read, and errors hide the rest."""
    path = tmp_path / name
    write_shard(path, [{"__key__": "a", ".txt": "x" * 600}])
    with wids.ShardListDataset([(str(path), 1)]) as dataset:
        assert dataset[0][".txt"] == "x" * 600
    whole = path.read_bytes()
    said = []
    for content in (whole[:700], b"no tar".ljust(1024), whole[:512] + b"?" * 512):
        path.write_bytes(content)
        with pytest.raises(WidsError) as caught:
            wids.ShardListDataset([(str(path), 1)])[0]
        said += _said_by(caught.value)
        with pytest.raises(WidsError) as caught:
            wids.ShardListDataset([{"url": str(path), "nsamples": 1, "filesize": 1}])[0]
        said += _said_by(caught.value)
    assert not [text for text in said if _shows_it(text)]


@pytest.mark.filterwarnings("ignore:.*fetched whole.*:wids.WidsWarning")
def test_what_is_read_from_a_server_is_shown_without_secrets(
    shard_server: ShardServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Commands that succeed, views for notebooks and names of datasets have no secret."""
    shard = write_shard(tmp_path / "a-0.tar", [{"__key__": "k", ".txt": "one"}])
    plain = shard_server.put("a-0.tar", shard.read_bytes())
    location = plain.replace("http://", "http://me:hushhush@") + "?sig=hushhush"
    commands = (
        ["create", location, "-o", "made.json"],
        ["info", "made.json"],
        ["show", location, "0"],
        ["show", location, "0", "--json"],
        ["ls", location, "0"],
        ["info", "--stats", location],
    )
    for command in commands:
        assert main(command) == 0, command
    with wids.ShardListDataset("made.json") as dataset:
        said = [repr(dataset), dataset[0]["__dataset__"], dataset.show(0)._repr_html_()]
        said += [str(dataset.show(0)), wids.show(dataset[0])._repr_html_()]
    captured = capsys.readouterr()
    said += [captured.out, captured.err]
    assert not [text for text in said if _shows_it(text)]


def test_tables_at_urls_are_shown_without_secrets(
    shard_server: ShardServer, tmp_path: Path
) -> None:
    """Joins with them, what is missing or has changed, and what a saved view says of them."""
    shard = write_shard(tmp_path / "a.tar", [{"__key__": f"{n}", ".txt": "one"} for n in range(3)])
    secret = ("http://", "http://me:hushhush@")
    urls = [
        shard_server.put(name, data).replace(*secret) + "?sig=hushhush"
        for name, data in (("a.tar", shard.read_bytes()), ("a.csv", b"key,caption\n0,a\n1,b\n"))
    ]
    dataset = wids.open([(urls[0], 3)])
    joined = dataset.join(urls[1], missing="fill")
    beside = dataset.join_tables(urls[1].replace("a.csv", "{shard}.csv"), missing="fill")
    said = [repr(joined), repr(beside)]
    for call in (
        lambda: dataset.join(urls[1]),
        lambda: dataset.join_tables(urls[1].replace("a.csv", "{shard}.csv")),
        lambda: dataset.join_tables(urls[1]),
    ):
        with pytest.raises((ValueError, WidsError)) as caught:
            call()
        said += _said_by(caught.value)
    beside.save(tmp_path / "v.json")
    for changes in ({"digest": "another"}, {"key": urls[:1]}, {"nbytes": None}, {"fields": urls}):
        document = json.loads((tmp_path / "v.json").read_text())
        document["datasets"][1] |= changes
        (tmp_path / "w.json").write_text(json.dumps(document))
        with pytest.raises(WidsError) as caught:
            wids.open(tmp_path / "w.json")
        said += _said_by(caught.value)
    assert len(said) > 10
    assert not [text for text in said if _shows_it(text)]
