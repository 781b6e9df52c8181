"""How soon does `wids browse` show something?

Asked are: ten million samples in 10,000 local shards with sidecars, from the command to the first
page of JSON, and in Chromium from the address to pictures in view; sixty JPEG thumbnails drawn for
the first time and sent again; a key found among ten million; and what the first page of a remote
dataset fetches.

The 10,000 shards are links to ten files, which no program can tell from 10,000 files but the disk;
opening one costs what it costs. Rounds of all questions follow each other, each with a server of
its own; the table has medians, the smallest and the largest.

    python benchmarks/browse.py             # three minutes
    python benchmarks/browse.py --record    # writes the recorded tables, too
"""

import argparse
import functools
import http.server
import io
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import common
import data
import requests

import wids
from wids.tar.sidecar import SIDECAR_SUFFIX

DOCUMENT = common.RECORDED / "README.md"
MARKED = re.compile(r"(<!-- figures -->\n).*?(<!-- /figures -->)", re.DOTALL)
CONNECTIONS = 6  # as browsers have them
PAGE = 60


def link_shards(folder: Path, num_shards: int, shard_samples: int, files: int = 10) -> Path:
    """Make a spec of many shards that are links to a few files, with their sidecars."""
    spec = folder / "spec.json"
    if spec.exists():
        return spec
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(files):
        path = folder / f"file-{number}.tar"
        with wids.TarWriter(str(path)) as writer:
            small = {".cls": number, ".jpg": small_picture(number)}
            for place in range(shard_samples):
                writer.write({"__key__": f"{number}/{place:06d}", **small})
        wids.TarIndex.from_tar(path).save(f"{path}{SIDECAR_SUFFIX}")
    rows = []
    for shard in range(num_shards):
        path, name = folder / f"file-{shard % files}.tar", f"shard-{shard:05d}.tar"
        for suffix in ("", SIDECAR_SUFFIX):
            os.link(f"{path}{suffix}", folder / f"{name}{suffix}")
        rows.append({"url": name, "nsamples": shard_samples, "filesize": path.stat().st_size})
    spec.write_text(json.dumps({"wids_version": 1, "name": "linked", "shardlist": rows}))
    return spec


def small_picture(number: int) -> bytes:
    """Make a JPEG of a few hundred bytes, so that ten files stay small."""
    from PIL import Image

    stream = io.BytesIO()
    Image.new("RGB", (32, 32), (number * 25, 90, 160)).save(stream, "JPEG")
    return stream.getvalue()


@contextmanager
def command(spec: str) -> Iterator[str]:
    """Run `wids browse` as a user does; gives its URL."""
    words = [sys.executable, "-m", "wids", "browse", spec, "--json", "--port", "0", "--no-token"]
    # pip compiles what it installs, so that a user's command compiles nothing.
    compiled = {"PYTHONPYCACHEPREFIX": str(data.BENCH / "bytecode"), "PYTHONDONTWRITEBYTECODE": ""}
    process = subprocess.Popen(
        words, stdout=subprocess.PIPE, text=True, env={**os.environ, **compiled}
    )
    try:
        yield json.loads(process.stdout.readline())["url"]
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(30)
        process.stdout.close()


def timed(call: Callable[[], Any]) -> float:
    """Return the seconds that a call takes."""
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def ask(url: str, **query: Any) -> Any:
    """Send one question; it must be answered."""
    response = requests.get(url, params=query, timeout=60)
    response.raise_for_status()
    return response


def thumbnails(url: str, tiles: list[dict[str, Any]]) -> None:
    """Fetch the pictures of a page over as many connections as a browser opens."""
    local = threading.local()

    def fetch(tile: dict[str, Any]) -> None:
        if not hasattr(local, "session"):
            local.session = requests.Session()
        answer = local.session.get(
            f"{url}thumb?i={tile['index']}&f={tile['picture']}&s=192", timeout=60
        )
        if answer.headers["Content-Type"] not in ("image/jpeg", "image/png"):
            raise RuntimeError(f"sample {tile['index']}: {answer.headers['Content-Type']}")

    with ThreadPoolExecutor(CONNECTIONS) as pool:
        list(pool.map(fetch, tiles))


def search_whole(url: str) -> int:
    """Search all shards for a text that no key contains."""
    while not (found := ask(f"{url}api/page", q="no such key").json()["filtering"])["finished"]:
        time.sleep(0.01)
    return int(found["found"])


def of_many(spec: Path, browser: Any) -> dict[str, float]:
    """Measure the dataset of many shards."""
    started = time.perf_counter()
    with command(str(spec)) as url:
        ask(f"{url}api/page", at=0, count=PAGE)
        figures = {"from the command to the first page": time.perf_counter() - started}
        total = ask(f"{url}api/dataset").json()["num_samples"]
        figures["any other page"] = timed(lambda: ask(f"{url}api/page", at=total // 2, count=PAGE))
        shuffled = {"order": "shards", "replicas": 8, "rank": 3, "epoch": 2}
        figures["a page of an epoch, over 60 shards"] = timed(
            lambda: ask(f"{url}api/page", at=total // 20, count=PAGE, **shuffled)
        )
        if browser is not None:
            figures["in Chromium, from the address to all pictures in view"] = in_chromium(
                browser, url
            )
        figures["all keys searched"] = timed(lambda: search_whole(url))
    return figures


def in_chromium(browser: Any, url: str) -> float:
    """Open the page in a fresh window, until each picture that is in view has been drawn."""
    context = browser.new_context(viewport={"width": 1280, "height": 860})
    page = context.new_page()
    drawn = (
        "(() => { const seen = [...document.querySelectorAll('.tile img')].filter("
        "image => image.getBoundingClientRect().top < innerHeight); "
        "return seen.length > 0 && seen.every(image => image.naturalWidth > 0); })()"
    )

    def open_page() -> None:
        page.goto(url, wait_until="commit")
        while not page.evaluate(drawn):
            time.sleep(0.005)

    seconds = timed(open_page)
    context.close()
    return seconds


def of_pictures(spec: Path) -> dict[str, float]:
    """Measure sixty photographs of 20 kB or so."""
    with command(str(spec)) as url:
        tiles = ask(f"{url}api/page", at=300, count=PAGE).json()["tiles"]
        first = timed(lambda: thumbnails(url, tiles))
        again = min(timed(lambda: thumbnails(url, tiles)) for _ in range(3))
    return {"60 thumbnails, drawn": first, "60 thumbnails, again": again}


class Counting(http.server.SimpleHTTPRequestHandler):
    """Serves files with byte ranges, and counts the bytes of shards."""

    nbytes = 0
    requests = 0

    def log_message(self, *_: Any) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        """Send a file, or the range of it that is asked for."""
        path = Path(self.translate_path(self.path))
        if not path.is_file():
            self.send_error(404)
            return
        content = path.read_bytes()
        first, last = 0, len(content) - 1
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if asked:
            first, last = int(asked[1]), min(int(asked[2]), last)
        self.send_response(206 if asked else 200)
        self.send_header("Content-Range", f"bytes {first}-{last}/{len(content)}")
        self.send_header("Content-Length", str(last + 1 - first))
        self.end_headers()
        if path.suffix == ".tar":
            Counting.nbytes += last + 1 - first
            Counting.requests += 1
        self.wfile.write(content[first : last + 1])


def of_remote(folder: Path) -> dict[str, float]:
    """Measure the first page of a remote dataset: bytes fetched beside bytes shown."""
    names = sorted(path.name for path in folder.glob("shard-*.tar"))
    for name in names:
        sidecar = folder / f"{name}{SIDECAR_SUFFIX}"
        if not sidecar.exists():
            wids.TarIndex.from_tar(folder / name).save(sidecar)
    handler = functools.partial(Counting, directory=str(folder))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    base = f"http://127.0.0.1:{server.server_address[1]}"
    rows = [{"url": f"{base}/{name}", "nsamples": len(wids.Shard(folder / name))} for name in names]
    spec = folder / "remote.json"
    spec.write_text(json.dumps({"wids_version": 1, "shardlist": rows}))
    paths = [str(folder / name) for name in names]
    with wids.ShardListDataset(paths, transformations="memoryview") as local:
        page = (local[index] for index in range(min(PAGE, len(local))))
        wanted = sum(len(v) for sample in page for k, v in sample.items() if k[0] == ".")
    Counting.nbytes = Counting.requests = 0
    with command(str(spec)) as url:
        seconds = timed(
            lambda: thumbnails(url, ask(f"{url}api/page", at=0, count=PAGE).json()["tiles"])
        )
    server.shutdown()
    server.server_close()
    whole = sum((folder / name).stat().st_size for name in names)
    return {
        "first remote page": seconds,
        "bytes fetched for it, of the bytes of its samples": Counting.nbytes / wanted,
        "of the bytes of the dataset": Counting.nbytes / whole,
    }


def shown(name: str, value: float) -> str:
    """Write a figure with its unit."""
    if "bytes" in name:
        return f"{value:.3g} x"
    return f"{value * 1000:,.0f} ms"


def table(results: dict[str, Any]) -> str:
    """Lay the figures out as Markdown."""
    lines = ["| | median | smallest - largest |", "|---|--:|--:|"]
    for name, values in results["figures"].items():
        low, high = shown(name, min(values)), shown(name, max(values))
        lines.append(f"| {name} | {shown(name, statistics.median(values))} | {low} - {high} |")
    about = results["machine"]
    return "\n".join(
        [
            *lines,
            "",
            (
                f"Medians of {results['rounds']} rounds; {results['num_shards']:,} shards, "
                f"{results['num_samples']:,} samples. {about['cores']} cores of {about['cpu']}, "
                f"load {about['load']:.1f}, Python {about['python']}."
            ),
        ]
    )


@contextmanager
def chromium() -> Iterator[Any]:
    """Start the browser of this machine, or give None where there is none."""
    path = shutil.which("chromium")
    if path is None:
        yield None
        return
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        dot = "data:image/gif;base64,R0lGODlhAQABAAAAACwAAAAAAQABAAA="
        in_chromium(browser, f"data:text/html,<a class=tile><img src='{dot}'></a>")  # warms it up
        yield browser
        browser.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--shards", type=int, default=10_000)
    parser.add_argument("--samples", type=int, default=1_000, help="in each shard")
    parser.add_argument("--size", choices=sorted(data.SIZES), default="default")
    parser.add_argument("--data", type=Path, help="photographs in shards, instead of making them")
    common.add_results_options(parser)
    arguments = parser.parse_args()
    pictures = arguments.data or data.prepare("images", arguments.size)
    linked = pictures.parent / f"linked-{arguments.shards}-{arguments.samples}"
    many = link_shards(linked, arguments.shards, arguments.samples)
    figures: dict[str, list[float]] = {}
    with command(str(pictures / "spec.json")) as url:
        ask(f"{url}api/page", at=0, count=PAGE)  # compiles what a page needs
    with chromium() as browser:
        for number in range(arguments.rounds):
            found = of_many(many, browser) | of_pictures(pictures / "spec.json")
            found |= of_remote(pictures)
            for name, value in found.items():
                figures.setdefault(name, []).append(value)
            print(f"round {number + 1} of {arguments.rounds}", file=sys.stderr)
    results = {
        "name": "browse",
        "machine": common.machine(),
        "rounds": arguments.rounds,
        "num_shards": arguments.shards,
        "num_samples": arguments.shards * arguments.samples,
        "figures": figures,
    }
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "browse.json").write_text(json.dumps(results, indent=1) + "\n")
    print(table(results))
    if arguments.out == common.RECORDED and DOCUMENT.exists():
        text = DOCUMENT.read_text()
        new = MARKED.sub(lambda hit: f"{hit[1]}\n{table(results)}\n\n{hit[2]}", text)
        DOCUMENT.write_text(new)


if __name__ == "__main__":
    main()
