"""How many JPEGs a second are decoded and brought to 224 x 224, and how good are the pictures?

Photographs of two sizes: the crops of 256-400 x 256-300 pixels that the other benchmarks read, and
crops of 1000 x 800, where scaled decoding pays. Every way makes one pass over the same files per
round, in turn, in one process; with `--threads 2` two threads share the files of a pass.

Likeness is the mean PSNR to the reference: decoded whole, resized by Pillow's BILINEAR, which is
antialiased. A way that shows 30 to 37 dB there skips pixels: edges and fine patterns flicker. The
recipe of the faster peers (libjpeg-turbo's fast DCT and upsampling, OpenCV's INTER_LINEAR) is such
a one and stands in the table as what antialiasing is compared with.

    python benchmarks/decode_images.py                # two minutes
    python benchmarks/decode_images.py --threads 2
    python benchmarks/decode_images.py --record       # writes results/README.md, too
"""

import argparse
import concurrent.futures
import io
import re
import statistics
import tarfile
import time
from collections.abc import Callable
from importlib import metadata
from typing import Any

import common
import cv2
import data
import numpy as np
import simplejpeg
import torch
from PIL import Image

from wids.codecs.framing import Resize
from wids.codecs.images import ImageDecoder

Way = Callable[[bytes], np.ndarray]
SIDE = 224
DOCUMENT = common.RECORDED / "README.md"
MARKED = re.compile(r"(<!-- decode_images -->\n).*?(<!-- /decode_images -->)", re.DOTALL)


def by_pillow(encoded: bytes) -> np.ndarray:
    """Decode as most pipelines do; this is the reference for the likeness too."""
    with Image.open(io.BytesIO(encoded)) as image:
        return np.asarray(image.convert("RGB").resize((SIDE, SIDE), Image.Resampling.BILINEAR))


def by_fast_recipe(encoded: bytes) -> np.ndarray:
    pixels = simplejpeg.decode_jpeg(encoded, fastdct=True, fastupsample=True)
    return cv2.resize(pixels, (SIDE, SIDE), interpolation=cv2.INTER_LINEAR)


def by_opencv(encoded: bytes, interpolation: int) -> np.ndarray:
    pixels = cv2.imdecode(np.frombuffer(encoded, np.uint8), cv2.IMREAD_COLOR_RGB)
    return cv2.resize(pixels, (SIDE, SIDE), interpolation=interpolation)


def by_wids(**settings: Any) -> Way:
    return ImageDecoder("numpy", "RGB", Resize((SIDE, SIDE)), **settings)


WAYS: dict[str, Way] = {
    "Pillow: decode, BILINEAR (the reference)": by_pillow,
    "wids": by_wids(),
    "wids, scaled=False": by_wids(scaled=False),
    "wids, fast=True": by_wids(fast=True),
    "wids, antialias=False": by_wids(antialias=False),
    "wids, antialias=False, fast=True": by_wids(antialias=False, fast=True),
    'wids, backend="pillow"': by_wids(backend="pillow"),
    "OpenCV alone, INTER_AREA": lambda encoded: by_opencv(encoded, cv2.INTER_AREA),
    "OpenCV alone, INTER_LINEAR": lambda encoded: by_opencv(encoded, cv2.INTER_LINEAR),
    "simplejpeg fast modes, OpenCV INTER_LINEAR": by_fast_recipe,
}


def small_files(count: int) -> list[bytes]:
    """Take JPEGs of the benchmark's shards, spread over all of them."""
    files = []
    for path in sorted(data.prepare("images").glob("*.tar")):
        with tarfile.open(path) as shard:
            members = [member for member in shard if member.name.endswith(".jpg")]
            step = max(1, len(members) * data.SIZES["default"].shards // count)
            files += [shard.extractfile(member).read() for member in members[::step]]
    return files[:count]


def large_files(count: int) -> list[bytes]:
    """Cut 1000 x 800 pixels from those photographs that are larger, at random places."""
    rng = np.random.default_rng(3)
    sources = [photo for photo in data.photos() if photo.width >= 1000 and photo.height >= 800]
    files = []
    for number in range(count):
        source = sources[number % len(sources)]
        left = int(rng.integers(source.width - 999))
        top = int(rng.integers(source.height - 799))
        stream = io.BytesIO()
        source.crop((left, top, left + 1000, top + 800)).save(stream, "JPEG", quality=90)
        files.append(stream.getvalue())
    return files


def rate_of(way: Way, files: list[bytes], pool: concurrent.futures.Executor | None) -> float:
    """Make one pass; return images a second."""
    started = time.perf_counter()
    if pool is None:
        for encoded in files:
            way(encoded)
    else:
        list(pool.map(lambda part: [way(encoded) for encoded in part], (files[::2], files[1::2])))
    return len(files) / (time.perf_counter() - started)


def likeness(way: Way, files: list[bytes]) -> float:
    """Return the mean PSNR to the reference, in decibels; 100 where they are equal."""
    values = []
    for encoded in files[:100]:
        error = np.mean((way(encoded).astype(float) - by_pillow(encoded)) ** 2)
        values.append(min(100.0, 10 * np.log10(255**2 / max(error, 1e-12))))
    return statistics.mean(values)


def measure(files: list[bytes], rounds: int, threads: int) -> list[dict[str, Any]]:
    """Let each way make one pass per round, in turn."""
    passes: dict[str, list[float]] = {name: [] for name in WAYS}
    with concurrent.futures.ThreadPoolExecutor(threads) as executor:
        pool = executor if threads > 1 else None
        for way in WAYS.values():
            rate_of(way, files[:20], pool)
        for _ in range(rounds):
            for name, way in WAYS.items():
                passes[name].append(rate_of(way, files, pool))
    versions = {"Pillow": Image.__version__, "OpenCV": cv2.__version__}
    versions |= {"simplejpeg": metadata.version("simplejpeg"), "torch": torch.__version__}
    return [
        {
            "label": name,
            "versions": versions,
            "median": statistics.median(rates),
            "min": min(rates),
            "max": max(rates),
            "psnr": likeness(WAYS[name], files),
            "passes": rates,
        }
        for name, rates in passes.items()
    ]


def markdown(tables: dict[str, list[dict[str, Any]]], settings: dict[str, int]) -> str:
    """Lay out both tables side by side."""
    names = list(tables)
    head = " | ".join(f"{name}: images/s | x Pillow | dB" for name in names)
    lines = [f"| way | {head} |", "|---|" + "--:|--:|--:|" * len(names)]
    for rows in zip(*tables.values(), strict=True):
        cells = []
        for name, row in zip(names, rows, strict=True):
            ratio = row["median"] / tables[name][0]["median"]
            psnr = "equal" if row["psnr"] >= 100 else f"{row['psnr']:.0f}"
            cells.append(f"{row['median']:,.0f} | {ratio:.2f} | {psnr}")
        lines.append(f"| {rows[0]['label']} | {' | '.join(cells)} |")
    machine, versions = common.machine(), tables[names[0]][0]["versions"]
    named = ", ".join(f"{name} {version}" for name, version in versions.items())
    lines.append(
        f"\nMedians of {settings['rounds']} passes over {settings['files']} files, taken in turn; "
        f"{settings['threads']} thread(s) on {machine['cores']} cores of {machine['cpu']}; {named}."
    )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--files", type=int, default=400, help="files of each size")
    parser.add_argument("--rounds", type=int, default=7, help="measured passes of each way")
    parser.add_argument("--threads", type=int, default=1, choices=(1, 2))
    common.add_results_options(parser)
    arguments = parser.parse_args()
    cv2.setNumThreads(1)
    torch.set_num_threads(1)
    settings = {name: getattr(arguments, name) for name in ("files", "rounds", "threads")}
    tables = {
        "256-400 px": measure(small_files(arguments.files), arguments.rounds, arguments.threads),
        "1000 x 800": measure(
            large_files(arguments.files // 4), arguments.rounds, arguments.threads
        ),
    }
    name = "decode_images" if arguments.threads == 1 else "decode_images_threads"
    print(common.save(arguments.out, name, settings, tables))
    text = markdown(tables, settings)
    print(text)
    if arguments.out == common.RECORDED and arguments.threads == 1 and DOCUMENT.exists():
        DOCUMENT.write_text(MARKED.sub(rf"\g<1>\n{text}\n\n\2", DOCUMENT.read_text()))


if __name__ == "__main__":
    main()
