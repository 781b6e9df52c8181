"""`Fetcher`: documents, byte ranges, schemes, and the rules of redirects and credentials."""

import base64
import datetime as dt
import ipaddress
import multiprocessing
import os
import signal
import socket
import ssl
import threading
import time
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import pytest
from helpers.downloads import QUICK, SHARD
from helpers.server import Faults, ShardServer, serve, stop
from helpers.spawned import read_until_interrupted
from hypothesis import given
from hypothesis import strategies as st

from wids.errors import FetchError
from wids.fetching.fetch import Fetcher, FetchPolicy, RangesNotServedError, open_url
from wids.fetching.responses import OneVersion, coalesce


@pytest.fixture
def fetcher() -> Iterator[Fetcher]:
    """A fetcher with short waits."""
    fetcher = Fetcher(QUICK)
    yield fetcher
    fetcher.close()


# Documents


def test_a_cut_document_is_never_half(fetcher: Fetcher, shard_server: ShardServer) -> None:
    """A truncated document raises an error."""
    shard_server.faults = Faults(times=1, cut_at=3)
    assert fetcher.read(shard_server.put("spec.json", b'{"a": 1}')) == b'{"a": 1}'
    shard_server.faults = Faults(cut_at=3)
    with pytest.raises(FetchError, match="gave up after 5 attempts"):
        fetcher.read(f"{shard_server.url}/spec.json")


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("ftp://host/a.tar", "cannot fetch ftp: URLs"),
        ("pipe:echo x", "allow_pipe=True"),
        ("http://host/a\r\nHost: evil", "control characters"),
        ("http://", "http"),
        ("file://elsewhere/a.tar", "a file of this machine"),
        ("http://[::1/a", "http"),
        ("hf://buckets/me/birds/a.tar", "S3 gateway"),
        *(
            (url, "hf://datasets/<owner>/<name>/<path>")
            for url in ("hf://datasets/me/birds", "hf://datasets/me", "hf://")
        ),
    ],
)
def test_urls_that_cannot_be_fetched(url: str, message: str) -> None:
    """Malformed and unknown URLs are refused with a reason."""
    with pytest.raises(FetchError, match=message):
        open_url(url)


# Byte ranges


def test_ranges_come_in_the_order_asked(fetcher: Fetcher, shard_server: ShardServer) -> None:
    """Adjacent ranges share a request, distant ones do not, and empty ones need none."""
    url = shard_server.put("a.tar", SHARD)
    ranges = [(200_000, 200_010), (0, 100), (150, 300), (7, 7), (50, 120)]
    assert fetcher.read_ranges(url, ranges) == [SHARD[start:stop] for start, stop in ranges]
    assert len(shard_server.requests) == 2
    assert shard_server.nbytes == 310
    assert fetcher.read_ranges(url, []) == []


def test_the_bound_on_connections_is_that_of_all_threads(
    shard_server: ShardServer,
) -> None:
    """Six threads that each want a batch of ranges make no more than eight requests at once."""
    patient = Fetcher()  # which a busy machine does not make try again
    url = shard_server.put("a.tar", bytes(range(256)) * 16_384)
    shard_server.faults = Faults(rate=200_000)
    shard_server.hold_until(5)
    ranges = [(number * 65_536, number * 65_536 + 1000) for number in range(12)]
    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(lambda _: patient.read_ranges(url, ranges), range(6)))
    assert found == [patient.read_ranges(url, ranges)] * 6
    assert 4 < shard_server.connections <= 8
    threads = [thread for thread in threading.enumerate() if thread.name == "wids-ranges"]
    patient.close()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    assert patient.read_ranges(url, ranges[:1]) == found[0][:1]
    patient.close()


@pytest.mark.parametrize(
    "kind",
    ["segments", *(pytest.param(each, marks=pytest.mark.slow) for each in ("ranges", "count"))],
)
def test_an_interrupt_ends_a_process_whose_server_stalls(
    tmp_path: Path, shard_server: ShardServer, kind: str
) -> None:
    """Ctrl-C ends the process while threads wait for bytes."""
    urls = [shard_server.put(f"{number}.tar", SHARD) for number in range(3)]
    # A second connection is made once the first has brought bytes for a while, and stalls, too.
    begun = kind == "segments"
    shard_server.faults = Faults(stall_at=50_000 if begun else 100, rate=4e4, piece=4096)
    process = multiprocessing.get_context("spawn").Process(
        target=read_until_interrupted, args=(kind, urls, tmp_path / "cache")
    )
    process.start()
    shard_server.wait_for_requests(2)
    deadline = time.monotonic() + 200
    while process.is_alive() and time.monotonic() < deadline:
        # Again, where the first comes while Python cannot be interrupted, as in a `__del__`.
        os.kill(process.pid or 0, signal.SIGINT)
        process.join(10)
    ended = not process.is_alive()
    process.kill()
    process.join()
    assert ended


@pytest.mark.parametrize("faults", [Faults(stall_at=5000), Faults(status=503, retry_after="50")])
def test_closing_ends_what_another_thread_fetches(
    shard_server: ShardServer, faults: Faults
) -> None:
    """Closing raises an error in a fetching thread at once, also between two tries."""
    url = shard_server.put("a.tar", SHARD)
    shard_server.faults = faults
    fetcher = Fetcher()
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(fetcher.read, url)
        assert shard_server.wait_for_requests(1) == 1
        # The client may be about to wait when the server has answered, so that one is too early.
        while not wait([reading], timeout=0.01).done:
            fetcher.close()
        with pytest.raises(FetchError, match=r"a\.tar: its connections were closed while"):
            reading.result()
    assert len(shard_server.requests) == 1
    shard_server.heal()
    assert fetcher.read(url) == SHARD
    fetcher.close()


@pytest.mark.parametrize("start", [0, 1000])
def test_a_server_without_ranges_is_told_apart(
    fetcher: Fetcher, shard_server: ShardServer, start: int
) -> None:
    """A server without ranges raises an error by which the caller can fetch the whole shard."""
    url = shard_server.put("a.tar", SHARD * 20)
    shard_server.faults = Faults(ignore_range=True)
    with pytest.raises(RangesNotServedError, match="the whole file"):
        fetcher.read_ranges(url, [(start, start + 2000)])


@pytest.mark.parametrize("span", [(len(SHARD) - 10, len(SHARD) + 10), (10**9, 10**9 + 5)])
def test_ranges_past_the_end_are_errors(
    fetcher: Fetcher, shard_server: ShardServer, span: tuple[int, int]
) -> None:
    """A range beyond the end of the file raises an error that names the file."""
    url = shard_server.put("a.tar", SHARD)
    with pytest.raises(FetchError, match=r"asked for bytes \["):
        fetcher.read_ranges(url, [span])


@given(
    st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 300))),
    st.integers(0, 500),
    st.integers(1, 4000),
)
def test_spans_cover_each_range_once(
    pairs: list[tuple[int, int]], max_gap_nbytes: int, max_nbytes: int
) -> None:
    """Each range lies in exactly one span, and spans have no more waste than allowed."""
    ranges = [(start, start + nbytes) for start, nbytes in pairs]
    spans = coalesce(ranges, max_gap_nbytes, max_nbytes)
    members = sorted(number for span in spans for number in span.members)
    assert members == [number for number, (start, stop) in enumerate(ranges) if start < stop]
    for span in spans:
        inside = sorted(ranges[number] for number in span.members)
        assert (span.start, span.stop) == (inside[0][0], max(stop for _, stop in inside))
        assert span.stop - span.start <= max(max_nbytes, *(b - a for a, b in inside))
        reached = inside[0][1]
        for first, last in inside:
            assert first - reached <= max_gap_nbytes
            reached = max(reached, last)


# Commands


def test_a_command_gives_its_output(tmp_path: Path) -> None:
    """With `allow_pipe`, `pipe:` runs a command without a shell."""
    (tmp_path / "a b").write_bytes(b"content")
    fetcher = Fetcher(QUICK, allow_pipe=True)
    assert fetcher.read(f"pipe:cat '{tmp_path}/a b'") == b"content"
    assert fetcher.read(f"pipe:cp '{tmp_path}/a b' {{local}}") == b"content"
    assert fetcher.read("pipe:sh -c 'printf x; printf y'") == b"xy"


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("false", "status 1"),
        ("sh -c 'echo half; echo why >&2; exit 3'", "status 3.*standard error: why"),
        ("no-such-command", "cannot run 'no-such-command'"),
        ("cat a | head", "for a shell"),
        ("cat a > {local}", "for a shell"),
        ("", "names no command"),
        ("echo 'x", "No closing quotation"),
    ],
)
def test_a_failing_command_gives_nothing(command: str, message: str) -> None:
    """The output of a failing command is not used; the error has its messages."""
    with pytest.raises(FetchError, match=message):
        Fetcher(QUICK, allow_pipe=True).read(f"pipe:{command}")


@pytest.mark.parametrize(
    "command",
    [
        "sh -c 'echo \"> $1\" >&2; exit 1' -H 'Authorization: HUSHHUSH'",
        "sh -c 'echo \"login $1 failed\" >&2; exit 1' me:HUSHHUSH me:HUSHHUSH",
        "sh -c 'echo no answer of https://me:HUSHHUSH@host/a.tar >&2; exit 1'",
        """sh -c 'false --header "key: HUSHHUSH" || { echo "key: HUSHHUSH" >&2; exit 1; }'""",
    ],
)
def test_what_a_command_says_shows_no_secrets(command: str) -> None:
    """Its headers, logins and `key=value` arguments are hidden in its standard error."""
    with pytest.raises(FetchError, match="its standard error: .*[.]{3}|/host/a") as caught:
        Fetcher(QUICK, allow_pipe=True).read(f"pipe:{command}")
    assert "HUSHHUSH" not in "".join(traceback.format_exception(caught.value))


def test_no_shell_reads_a_command(tmp_path: Path) -> None:
    """Shell characters in a URL are plain arguments."""
    mark = tmp_path / "mark"
    fetcher = Fetcher(QUICK, allow_pipe=True)
    assert fetcher.read(f"pipe:echo $(touch {mark}) `touch {mark}`;touch {mark}").startswith(b"$(")
    for url in [f"pipe:touch {mark}", f"http://127.0.0.1:9/a';touch {mark};'"]:
        with pytest.raises(FetchError):
            Fetcher(FetchPolicy(attempts=1)).read(url)
    assert not mark.exists()


def test_a_talkative_command_does_not_stall() -> None:
    """The error output of a command is read while it runs."""
    code = "import sys; sys.stderr.write('e' * 300000); print('done')"
    fetcher = Fetcher(QUICK, allow_pipe=True)
    assert fetcher.read(f'pipe:python3 -c "{code}"') == b"done\n"


# The hub


def test_the_hub_is_reached_by_its_own_urls(
    fetcher: Fetcher, shard_server: ShardServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """hf:// URLs become paths of the hub, and the token is sent to no other host."""
    monkeypatch.setenv("HF_ENDPOINT", shard_server.url)
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    shard_server.put("datasets/me/birds/resolve/main/train/a.tar", b"data")
    assert fetcher.read("hf://datasets/me/birds/train/a.tar") == b"data"
    assert shard_server.requests[0].headers["Authorization"] == "Bearer hf_secret"
    shard_server.put("datasets/me/birds/resolve/v%2F2/a%20b.tar", b"other")
    assert fetcher.read("hf://datasets/me/birds@v%2F2/a b.tar") == b"other"
    elsewhere = ShardServer()
    server = serve(elsewhere, "127.0.0.2")
    target = elsewhere.put("real.tar", b"moved")
    shard_server.faults = Faults(times=1, location=target)
    assert fetcher.read("hf://datasets/me/birds/train/a.tar") == b"moved"
    assert "Authorization" not in elsewhere.requests[0].headers
    stop(server)


def test_the_hub_token_is_found_in_its_file(
    fetcher: Fetcher, shard_server: ShardServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The token of a user who is logged in to the hub is used."""
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.setenv("HF_ENDPOINT", shard_server.url)
    (tmp_path / "token").write_text("from_file\n")
    shard_server.put("me/model/resolve/main/a.tar", b"data")
    assert fetcher.read("hf://me/model/a.tar") == b"data"
    assert shard_server.requests[0].headers["Authorization"] == "Bearer from_file"


# Redirects, credentials, proxies


@pytest.fixture
def secure_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ShardServer]:
    """The same server behind TLS, with a certificate that requests is told to trust."""
    state = ShardServer()
    server = serve(state)
    certificate = make_certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    state.url = state.url.replace("http:", "https:")
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(certificate))
    yield state
    stop(server)


def make_certificate(folder: Path) -> Path:
    """Write a self-signed certificate for 127.0.0.1, with its key."""
    x509 = pytest.importorskip("cryptography.x509")
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    today = dt.datetime.now(dt.UTC)
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(today - dt.timedelta(days=1))
        .not_valid_after(today + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    path = folder / "certificate.pem"
    path.write_bytes(private + certificate.public_bytes(serialization.Encoding.PEM))
    return path


def test_https_never_falls_back_to_http(
    fetcher: Fetcher, secure_server: ShardServer, shard_server: ShardServer
) -> None:
    """A redirect from https to http is refused before a request is made."""
    target = shard_server.put("a.tar", b"data")
    url = secure_server.put("a.tar", b"safe")
    assert fetcher.read(url) == b"safe"
    secure_server.faults = Faults(location=target)
    with pytest.raises(FetchError, match="redirect from https to plain http"):
        fetcher.read(url)
    assert shard_server.requests == []


@pytest.mark.parametrize("scheme", ["HTTP", "\x0bhttp", "\x01http", "ht\ttp", " http", "ftp"])
def test_no_disguise_leads_from_https_to_http(
    fetcher: Fetcher, secure_server: ShardServer, shard_server: ShardServer, scheme: str
) -> None:
    """Redirects are checked by the URL that would be requested, however the header is written."""
    target = shard_server.put("a.tar", b"data").removeprefix("http")
    secure_server.faults = Faults(location=f"{scheme}{target}")
    with pytest.raises(FetchError):
        fetcher.read(secure_server.put("a.tar", b"safe"))
    assert shard_server.requests == []


def test_an_unknown_certificate_is_refused_at_once(
    fetcher: Fetcher, secure_server: ShardServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An invalid certificate raises an error without another try."""
    monkeypatch.delenv("REQUESTS_CA_BUNDLE")
    with pytest.raises(FetchError, match="certificate"):
        fetcher.read(secure_server.put("a.tar", b"safe"))


def test_netrc_holds_the_credentials(
    fetcher: Fetcher, shard_server: ShardServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Credentials come from ~/.netrc, as curl and requests take them."""
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login me password secret\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    fetcher.read(shard_server.put("a.tar", b"data"))
    kind, _, value = shard_server.requests[0].headers["Authorization"].partition(" ")
    assert (kind, base64.b64decode(value)) == ("Basic", b"me:secret")


def test_credentials_that_change_are_taken_after_a_refusal(
    fetcher: Fetcher, shard_server: ShardServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What is kept of a request ends with a refusal, so that ~/.netrc is read again."""
    url = shard_server.put("a.tar", b"x" * 100)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    for password in ("old", "new"):
        (tmp_path / "netrc").write_text(f"machine 127.0.0.1 login me password {password}\n")
        shard_server.faults = Faults(status=401, times=1)
        with pytest.raises(FetchError, match="netrc"):
            fetcher.read(url)
        for _ in range(2):
            assert fetcher.read(url) == b"x" * 100
    given = [each.headers["Authorization"].split()[1] for each in shard_server.requests]
    sent = list(map(base64.b64decode, given))
    assert sent == [b"me:old"] * 4 + [b"me:new"] * 2


def test_a_proxy_from_the_environment_is_used(
    fetcher: Fetcher, shard_server: ShardServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The proxy in http_proxy is used, as by requests."""
    shard_server.put("/a.tar", b"by proxy")
    monkeypatch.setenv("http_proxy", shard_server.url)
    monkeypatch.setenv("no_proxy", "")
    assert fetcher.read("http://shards.example/a.tar") == b"by proxy"
    assert shard_server.requests[0].path == "http://shards.example/a.tar"


def test_ipv6_addresses_work(fetcher: Fetcher) -> None:
    """A URL may name an IPv6 address."""
    if not socket.has_ipv6:
        pytest.skip("no IPv6 here")
    state = ShardServer()
    try:
        server = serve(state, "::1")
    except OSError:
        pytest.skip("no IPv6 here")
    assert fetcher.read(state.put("a.tar", b"data")) == b"data"
    stop(server)


# Ranges of a URL that was requested before


def test_a_later_redirect_is_followed(fetcher: Fetcher, shard_server: ShardServer) -> None:
    """A URL that gave ranges itself may lead elsewhere from then on."""
    url, moved = shard_server.put("a.tar", SHARD), shard_server.put("b.tar", SHARD)
    for start in range(3):
        assert fetcher.read_ranges(url, [(start, 9)]) == [SHARD[start:9]]
    shard_server.faults = Faults(times=2, location=moved)
    assert fetcher.read_ranges(url, [(5, 9)]) == [SHARD[5:9]]
    assert shard_server.requests[-1].path == "/b.tar"


def test_no_header_of_one_range_is_sent_with_another(
    fetcher: Fetcher, shard_server: ShardServer
) -> None:
    """A condition belongs to one request: another, without one, gives the file as it is now."""
    url = shard_server.put("a.tar", SHARD)
    version = OneVersion()
    for start in range(3):
        fetcher.read_ranges(url, [(start, 9)], version=version)
    assert "If-Range" in shard_server.requests[-1].headers
    other = bytes(reversed(SHARD))
    shard_server.put("a.tar", other)
    assert fetcher.read_ranges(url, [(0, 9)]) == [other[:9]]
    assert "If-Range" not in shard_server.requests[-1].headers


def test_later_ranges_have_the_credentials_of_the_url(
    fetcher: Fetcher, shard_server: ShardServer
) -> None:
    """Each request for a range has the login that the URL names."""
    url = shard_server.put("a.tar", SHARD).replace("://", "://me:secret@")
    for start in range(3):
        assert fetcher.read_ranges(url, [(start, 9)]) == [SHARD[start:9]]
    sent = {each.headers.get("Authorization") for each in shard_server.requests}
    assert sent == {f"Basic {base64.b64encode(b'me:secret').decode()}"}
