"""Access control by host name, origin, method and token, and the headers of all responses."""

import socket

import pytest
import requests
from helpers.browsing import Command, browsing
from helpers.shards import write_shard

from wids.browse.guard import new_token


@pytest.fixture(scope="module")
def shard(tmp_path_factory):
    sample = {"__key__": "k", ".txt": "x", ".html": "<b>x</b>"}
    return str(write_shard(tmp_path_factory.mktemp("guard") / "a.tar", [sample]))


@pytest.fixture(scope="module")
def served(shard):
    with browsing([shard]) as server:
        yield server


@pytest.mark.parametrize(
    "host", ["localhost", "127.0.0.1", "LOCALHOST:1234", "127.0.0.1:9", "[::1]:80"]
)
def test_the_names_of_the_loopback_are_answered_at_any_port(served, host: str):
    """Loopback names are accepted with any port, as through an SSH tunnel."""
    assert served.get("api/dataset", {"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "localhost.evil.example",
        "127.0.0.1.evil.example:80",
        "192.168.0.1",
        "x:y:z",
        "localhost@evil.example",
    ],
)
def test_other_names_are_refused(served, host: str):
    """Requests for other host names are refused, also for static files."""
    for path in ("", "api/dataset", "static/page.css", "raw"):
        response = served.get(path, {"Host": host}, i=0, f=0)
        assert response.status_code == 400
        assert b"not known by that name" in response.content


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH"])
def test_only_questions_are_answered(served, method: str):
    """Methods other than GET and HEAD are refused."""
    response = requests.request(method, served.url + "api/dataset", timeout=100)
    assert response.status_code == 405
    assert response.headers["Allow"] == "GET, HEAD"


def test_pages_of_other_sites_may_link_but_not_ask(served):
    """Requests from other sites are refused, and links from them work."""
    for site in ("cross-site", "same-site"):
        asked = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "no-cors"}
        assert served.get("thumb", asked, i=0, f=0, s=96).status_code == 403
        link = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "navigate"}
        assert served.get("", link).status_code == 200
    own = {"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors"}
    assert served.get("api/dataset", own).status_code == 200


def test_every_answer_is_marked_as_safe_to_show(served):
    """All responses, errors included, have the security headers."""
    for path, query in (
        ("", {}),
        ("static/main.js", {}),
        ("api/page", {}),
        ("api/none", {}),
        ("raw", {"i": 0, "f": 0}),
        ("raw", {"i": 9, "f": 0}),
    ):
        headers = served.get(path, **query).headers
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Referrer-Policy"] == "no-referrer"
        assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
        assert "default-src 'none'" in headers["Content-Security-Policy"]
        assert "unsafe" not in headers["Content-Security-Policy"]


def test_no_path_of_a_url_is_a_path_of_a_file(served):
    """No spelling of a path reaches a file other than those of the page."""
    host, port = served.url.removeprefix("http://").strip("/").split(":")
    for path in (
        "/static/../app.py",
        "/static/%2e%2e/app.py",
        "/../../etc/passwd",
        "/static//etc/passwd",
        "/%2fetc%2fpasswd",
        "/static/..%5capp.py",
    ):
        with socket.create_connection((host, int(port)), timeout=100) as connection:
            connection.sendall(
                f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()
            )
            answer = connection.makefile("rb").read()
        assert answer.startswith(b"HTTP/1.1 404"), path
        assert b"root:" not in answer


def test_beyond_the_loopback_the_token_opens_the_door_once(shard):
    """Without the token, requests are refused; with it, a cookie is set and the URL loses the
    token. A program sends it with each request, and needs no cookie.
    """
    with browsing([shard], host="0.0.0.0", token=True) as server:
        port = server.url.rstrip("/").rpartition(":")[2]
        server.url = f"http://127.0.0.1:{port}/"
        token = server.token
        assert server.get("api/dataset").status_code == 403
        assert server.get("static/main.js").status_code == 403
        assert server.get("", token="wrong").status_code == 403
        assert server.get("", token="ü").status_code == 403
        opened = server.get("", i=3, token=token)
        assert opened.status_code == 303
        assert opened.headers["Location"] == ".?i=3"
        cookie = opened.headers["Set-Cookie"]
        assert "HttpOnly" in cookie
        assert server.ask("dataset")["num_samples"] == 1
        again = server.get("", i=3, token=token)
        assert (again.status_code, again.headers["Location"]) == (303, ".?i=3")
        refused = {"Host": "evil.example"}
        assert server.get("api/dataset", refused).status_code == 400
        for question in ("api/dataset", "api/sample?i=0", "raw?i=0&f=0"):
            server.session.cookies.clear()
            assert server.get(question, token=token).status_code == 200
            assert server.get(question, token="wrong").status_code == 403


def test_tokens_are_long_and_never_the_same():
    """Tokens are long and distinct."""
    tokens = {new_token() for _ in range(100)}
    assert len(tokens) == 100
    assert min(map(len, tokens)) >= 32


def test_other_users_of_the_machine_are_not_answered(tmp_path, open_page):
    """On the loopback, too, requests need the token or the cookie."""
    path = write_shard(tmp_path / "a.tar", [{"__key__": "k", ".cls": "1"}])
    with Command(path, tmp_path, token=True) as server:
        address, _, token = server.url.partition("?token=")
        for question in ("", "api/dataset", "api/page", "raw?i=0&f=0", "thumb?i=0&f=0&s=96"):
            assert requests.get(address + question, timeout=100).status_code == 403
        page = open_page(server.url)
        page.locator(".tile").wait_for()
        assert token not in page.url
        (cookie,) = page.context.cookies()
        assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Lax")
        page.reload()
        page.locator(".tile").click()
        page.get_by_role("heading", name="k", exact=True).wait_for()
