"""Listings of remote folders: what every store gives alike, and what goes wrong there."""

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace

import pytest
from helpers.downloads import QUICK
from helpers.server import Faults, ShardServer
from helpers.stores import Hub, use_s3

from wids.errors import FetchError
from wids.fetching.fetch import Fetcher
from wids.fetching.hub import HubSource
from wids.fetching.objectstore import ObjectSource
from wids.fetching.transport import AbsentError, Lister

NAMES = [
    "a b.tar",
    "a%20b.tar",
    "a*[1]{2}.tar",
    "a+b&c=d.tar",
    "deep/er/c.tar",
    "shard-10.tar",
    "shard-9.tar",
    "ä?x=#1.tar",
]


@dataclass
class Listed:
    """A source that lists, the URL of a folder, and what puts files into it."""

    source: Lister
    url: str
    put: Callable[[dict[str, bytes]], object]


@pytest.fixture(params=["s3", "hub"])
def listed(
    request: pytest.FixtureRequest, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Listed]:
    """Each kind of source that lists."""
    if request.param == "hub":
        hub.page_length = 7
        source = HubSource(QUICK)
        found = Listed(
            source,
            "hf://datasets/me/birds/my set",
            lambda files: hub.commit({f"my set/{name}": data for name, data in files.items()}),
        )
    else:
        client = use_s3(request.getfixturevalue("s3_endpoint"), monkeypatch, "listed")
        source = ObjectSource(QUICK)

        def put(files: dict[str, bytes]) -> None:
            for name, data in files.items():
                client.put_object(Bucket="listed", Key=f"my set/{name}", Body=data)

        found = Listed(source, "s3://listed/my set", put)
    yield found
    source.close()


def test_all_files_of_a_folder_are_listed_with_their_sizes(listed: Listed) -> None:
    """Files with unusual names and in folders below are listed; each URL opens its file."""
    files = {name: name.encode() for name in NAMES}
    listed.put(files)
    folder = listed.source.pin(listed.url)
    pages = list(listed.source.pages(folder))
    assert pages[-1].cursor is None or listed.url.startswith("s3:")
    found = {file.url: file.nbytes for page in pages for file in page.files}
    assert found == {f"{folder}/{name}": len(data) for name, data in files.items()}
    fetcher = Fetcher(QUICK)
    for name, file in fetcher.list_folder(listed.url).files.items():
        assert fetcher.read(file.url) == files[name]
    fetcher.close()


def test_a_listing_goes_on_where_it_broke_off(listed: Listed) -> None:
    """A page that came is not asked for again, and no file is missing or listed twice."""
    listed.put({f"{number:04d}.tar": b"x" for number in range(30)})
    folder = listed.source.pin(listed.url)
    first = next(listed.source.pages(folder))
    rest = [file.url for page in listed.source.pages(folder, first.cursor) for file in page.files]
    assert [file.url for file in first.files] + rest == sorted(
        {file.url for file in first.files} | {*rest}
    )


def test_a_missing_bucket_is_an_error_at_once(
    s3_endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names the bucket; there is no other try."""
    use_s3(s3_endpoint, monkeypatch, "listed")
    with pytest.raises(FetchError, match="s3://nobody/train/: no such bucket"):
        Fetcher(QUICK).list_folder("s3://nobody/train/")


@pytest.mark.parametrize("status", [400, 401, 403])
@pytest.mark.parametrize("scheme", ["s3", "az"])
def test_a_refused_listing_is_an_error_at_once(
    shard_server: ShardServer, monkeypatch: pytest.MonkeyPatch, scheme: str, status: int
) -> None:
    """It is asked for once, and the error names what sets the credentials."""
    pytest.importorskip("obstore")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AZURE_STORAGE_ACCOUNT_NAME"):
        monkeypatch.setenv(name, "someone")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "c2VjcmV0")
    monkeypatch.setenv("AWS_ENDPOINT_URL", shard_server.url)
    monkeypatch.setenv("AZURE_STORAGE_ENDPOINT", shard_server.url)
    shard_server.faults = Faults(status=status)
    name = {"s3": "AWS_ACCESS_KEY_ID", "az": "AZURE_STORAGE_ACCOUNT_NAME"}[scheme]
    wanted = pytest.raises(FetchError, match=f"{scheme}://refused/a/?: .*{status}.*{name}")
    with closing(Fetcher(QUICK)) as fetcher, wanted:
        fetcher.list_folder(f"{scheme}://refused/a/")
    assert len(shard_server.requests) == 1


def test_a_key_that_no_library_reads_is_named(
    s3_endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key with an empty part is an error that shows it, not a file that is left out."""
    client = use_s3(s3_endpoint, monkeypatch, "listed")
    client.put_object(Bucket="listed", Key="odd//a.tar", Body=b"x")
    with pytest.raises(FetchError, match="s3://listed/odd/: .*odd//a.tar.* rename or remove"):
        Fetcher(QUICK).list_folder("s3://listed/odd/")


def test_the_marker_of_a_folder_beside_a_file_is_no_file(
    s3_endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key that differs from a file's by a slash at its end does not list the file twice."""
    client = use_s3(s3_endpoint, monkeypatch, "listed")
    for key, body in {"marked/a.tar": b"x", "marked/a.tar/": b"", "marked/b.tar": b"yz"}.items():
        client.put_object(Bucket="listed", Key=key, Body=body)
    files = Fetcher(QUICK).list_folder("s3://listed/marked/").files
    assert {name: file.nbytes for name, file in files.items()} == {"a.tar": 1, "b.tar": 2}


def test_the_files_of_one_commit_are_listed(hub: Hub) -> None:
    """A branch is resolved once; pages of one listing are of one commit, whatever comes later."""
    hub.page_length = 2
    old = hub.commit({f"{number}.tar": b"old" for number in range(5)})
    source = HubSource(QUICK)
    folder = source.pin("hf://datasets/me/birds")
    pages = source.pages(folder)
    urls = [file.url for file in next(pages).files]
    hub.commit({f"new-{number}.tar": b"new" for number in range(5)})
    urls += [file.url for page in pages for file in page.files]
    assert urls == [f"hf://datasets/me/birds@{old}/{number}.tar" for number in range(5)]
    assert source.pin(folder) == folder


def test_the_hub_is_asked_as_its_own_library_asks_it(hub: Hub) -> None:
    """huggingface_hub lists the same files, sizes and digests by the same requests."""
    api = pytest.importorskip("huggingface_hub").HfApi(endpoint=hub.url, token=False)
    hub.page_length = 2
    hub.commit({"a b/ä.tar": b"12", "a b/c.json": b"{}", "a b/d/e.tar": b"345", "f.tar": b"6"})
    hub.commit({}, "other")
    folder = Fetcher(QUICK).list_folder("hf://datasets/me/birds@main/a b").folder
    ours, hub.paths = [path for path in hub.paths if "/tree/" in path], []
    theirs = api.list_repo_tree("me/birds", "a b", recursive=True, repo_type="dataset")
    found = {entry.path: entry for entry in theirs if hasattr(entry, "blob_id")}
    listing = Fetcher(QUICK).list_folder("hf://datasets/me/birds/a b/")
    assert listing.folder == folder
    assert {f"a b/{name}": file.nbytes for name, file in listing.files.items()} == {
        path: entry.size for path, entry in found.items()
    }
    for name, file in listing.files.items():
        large = found[f"a b/{name}"].lfs
        assert file.sha256 == (large and large.sha256)
    assert len(ours) == 2 == len([path for path in hub.paths if "/tree/" in path]) // 2


def test_an_absent_file_of_the_hub_is_named_as_it_was_asked_for(hub: Hub) -> None:
    """The error names the hf: URL beside that of the request."""
    hub.commit({"a.tar": b"a"})
    wanted = pytest.raises(AbsentError, match=r"^hf://datasets/me/birds/b\.tar: http.* 404")
    with closing(Fetcher(QUICK)) as fetcher, wanted:
        fetcher.read("hf://datasets/me/birds/b.tar")


def test_a_private_repository_needs_a_token(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the token the error names HF_TOKEN; the token itself is never shown."""
    hub.commit({"a.tar": b"x"})
    hub.token = "hf_secret"
    with pytest.raises(FetchError, match="hf://datasets/me/birds: .*HF_TOKEN") as caught:
        Fetcher(QUICK).list_folder("hf://datasets/me/birds")
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    assert list(Fetcher(QUICK).list_folder("hf://datasets/me/birds").files) == ["a.tar"]
    hub.next_host, hub.page_length = "https://elsewhere.example", 0
    with pytest.raises(FetchError, match=r"on the same host, found https://elsewhere") as other:
        Fetcher(QUICK).list_folder("hf://datasets/me/birds")
    assert "hf_secret" not in f"{caught.value}{other.value}"


@pytest.mark.parametrize("endless", ["same", "new", "empty"])
def test_a_listing_without_end_is_an_error(hub: Hub, endless: str) -> None:
    """Whatever a server puts on its endless pages, the listing ends by an error."""
    hub.commit({"a.tar": b"x"})
    hub.endless = endless
    policy = replace(QUICK, most_listed=3000)
    with pytest.raises(FetchError, match="hf://datasets/me/birds@.*(twice|3000 files at most)"):
        Fetcher(policy).list_folder("hf://datasets/me/birds")
    assert len(hub.paths) < 50


@pytest.mark.parametrize(
    "page", [b"no json", b"{}", b'[{"type": "file", "path": 1}]', b"[" * 10**5]
)
def test_a_malformed_page_is_an_error(
    hub: Hub, page: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is no listing of the hub is shown in the error."""
    commit = hub.commit({"a.tar": b"x"})
    hub.page = page
    with pytest.raises(FetchError, match=f"hf://datasets/me/birds@{commit}/?: expected"):
        Fetcher(QUICK).list_folder(f"hf://datasets/me/birds@{commit}")
