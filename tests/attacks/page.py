"""Hostile parameters for the page's API, and a hostile dataset behind it."""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from helpers.browsing import Browsing, browsing
from helpers.hostile import write_hostile

from attacks.runner import BOUNDED, REFUSED, Family, Scene, Wrong
from wids.browse.columns import ENDPOINTS

NUMBERS = (
    "0",
    "1",
    "15",
    "16",
    "-1",
    "9" * 19,
    "9" * 5000,
    "1e9",
    "0x1",
    " 1",
    "1_0",
    "\u0663",
    "nan",
    "",
    "None",
    "1.0",
)
TEXTS = (
    "x", "cat" * 5000, "<script>alert(1)</script>", "\0", "\ud7ff", "../../etc/passwd", "%00",
    "a\r\nb", "'", '"', "[[[[", "shuffled",
    "shards", "sequential", "true", "__proto__", "constructor", "\u202e", "🙂" * 900, "{" * 999,
    "*", ".*" * 400, "\\" * 400,
)  # fmt: skip
FILTERS = (
    "cls = 1", "json.a.b = 2", "contains(key, 'x')", "not not not contains(txt, 'x')", "(" * 3000,
    "not " * 300 + "cls = 1", "cls in (" + "1," * 900 + "1)", "cls = 1 or " * 150 + "cls = 2",
    "json." + "a." * 900 + "a = 1", "json.__class__ = 1", "cls = 1e999999", "cls = " + "9" * 1900,
    "contains(txt, '" + "a" * 1900 + "')", "cls2 > 5", "npy = 1", "png.x = 1", "1=1) or (1=1",
    "len(range(1000000000)) > 0", "length(repeat('x', 1000000000)) > 0", "true; drop table samples",
    "(select count(*) from read_text('/etc/passwd')) > 0", '"a.json".x = 1', "= 1", "cls", "txt ~",
    "regexp_matches(txt, '(a+)+$')", "txt = '\ud800'", "getenv('HOME') <> ''", ".cls == 1",
)  # fmt: skip
HEADERS = (
    {}, {}, {}, {"Range": "bytes=0-0"}, {"Range": "bytes=" + "9" * 5000 + "-"},
    {"Range": "bytes=-0"}, {"Range": "x=1-2"},
    {"Range": "bytes=0-1," * 900}, {"Host": "evil.example"}, {"Origin": "http://evil.example"},
    {"Cookie": "x" * 5000},
    {"Accept-Encoding": "gzip;q=x"}, {"If-None-Match": "*"}, {"X": "y" * 30_000},
    {"Content-Length": "5"},
)  # fmt: skip
LARGEST = 64 << 20  # bytes of an answer of the API; a field is sent in pieces


@contextmanager
def _served(folder: Path) -> Iterator[Browsing]:
    """Serve the hostile dataset in this process."""
    with browsing(str(write_hostile(folder / "hostile"))) as server:
        server.ask("page")  # so that what is loaded late does not count
        server.ask_until_finished("overview")  # nor the shards that the server keeps open
        yield server


def _value(chance: random.Random, name: str) -> str:
    if name == "where":
        return chance.choice(FILTERS)
    if (
        name in {"i", "f", "s", "at", "count", "p", "from", "place", "shard"}
        and chance.random() < 0.6
    ):
        return chance.choice(["0", "1", "2", "3", "96", "320", str(chance.randrange(20))])
    return chance.choice([*NUMBERS, *TEXTS])


def _question(scene: Scene) -> Callable[[], str]:
    """Ask any endpoint with any parameters, known and unknown, once or twice."""
    chance, server = scene.chance, scene.shared
    endpoint = chance.choice(list(ENDPOINTS))
    known = ENDPOINTS[endpoint].split()
    names = chance.sample(known, chance.randrange(len(known) + 1))
    if endpoint in {"raw", "thumb", "sample", "turns"} and chance.random() < 0.7:
        names = [*names, *({"i", "f"} & set(known))]
    if chance.random() < 0.1:
        names += chance.sample([*TEXTS, "token", *names], 1)
    asked = "&".join(f"{quote(name)}={quote(_value(chance, name))}" for name in names)
    path = endpoint if endpoint in {"raw", "thumb"} else f"api/{endpoint}"
    headers = chance.choice(HEADERS)
    url = f"{server.url}{path}?{asked}"

    def attempt() -> str:
        with server.session.get(
            url, headers=headers, timeout=30, stream=True, allow_redirects=False
        ) as response:
            taken = 0
            for piece in response.iter_content(1 << 20):
                taken += len(piece)
                if taken > LARGEST:
                    break
            if taken > LARGEST and endpoint != "raw":
                raise Wrong(f"{url[:300]}: more than {LARGEST} bytes")
        text = response.headers.get("Content-Type", "")
        if "html" in text or "script" in text or ("svg" in text and endpoint != "thumb"):
            raise Wrong(f"{url[:300]}: answered as {text}")
        if response.status_code >= 500 and "fault of the server" in _said(server, url, headers):
            raise Wrong(f"{url[:300]}: {_said(server, url, headers)}")
        return BOUNDED if response.status_code < 400 else REFUSED

    return attempt


def _said(server: Browsing, url: str, headers: dict[str, str]) -> str:
    return str(server.session.get(url, headers=headers, timeout=30).text[:3000])


PAGE = Family({"question": _question}, usual=20, setup=_served)
