"""How much of a remote video does a clip of 16 frames cost?

Command: `python benchmarks/video_clip.py` (needs Debian's nginx-light and PyAV; 0.2 GB of disk).

Videos of 100 MB and 25 frames a second, with a key frame each second, in shards from nginx on the
loopback behind a proxy that adds 20 ms to each round trip. `open_field` gives one as a file, from
which `decode_video` decodes 16 frames at several times, from the key frame before on. Bytes and
requests are those in the log of the server, the sidecar's included.
"""

import argparse
import io
import shutil
import tempfile
import time
from fractions import Fraction
from pathlib import Path

import av
import common
import numpy as np
from webserver import delayed, nginx

import wids
from wids.tar.sidecar import SIDECAR_SUFFIX
from wids.tar.tarindex import TarIndex

NBYTES, RATE = 100_000_000, 25
BITS_PER_SECOND = {"two minutes": 6_500_000, "half a minute": 28_000_000}
PLACES = (0.1, 0.5, 0.77)


def make_video(path: Path, bits_per_second: int) -> float:
    """Write a shard of one video of 100 MB; return its seconds."""
    picture = np.random.default_rng(0).integers(0, 256, (480, 640, 3), np.uint8)
    stream, count = io.BytesIO(), 0
    with av.open(stream, "w", format="mp4") as output:
        track = output.add_stream("mpeg4", rate=Fraction(RATE))
        track.width, track.height, track.pix_fmt = 640, 480, "yuv420p"
        track.bit_rate, track.codec_context.gop_size = bits_per_second, RATE
        nbytes_a_frame = bits_per_second // 8 // RATE
        rows = max(16, 480 * nbytes_a_frame // 140_000)  # of noise; the rest costs little
        while stream.tell() < NBYTES:
            pixels = np.zeros_like(picture)
            pixels[:rows] = np.roll(picture[:rows], 7 * count, axis=1)
            output.mux(track.encode(av.VideoFrame.from_ndarray(pixels, "rgb24")))
            count += 1
        output.mux(track.encode())
    with wids.TarWriter(path) as writer:
        writer.write({"__key__": "0", ".mp4": stream.getvalue()})
    TarIndex.from_tar(path).save(Path(f"{path}{SIDECAR_SUFFIX}"))
    return count / RATE


def measure(url: str, root: Path, name: str, seconds: float) -> list[dict[str, str]]:
    """Decode clips of one video; return a row for each."""
    rows = []
    path = root / "www" / name
    for place in PLACES:
        log = root / "access.log"
        log.write_text("")
        folder = tempfile.mkdtemp(dir=root)
        began = time.perf_counter()
        options = {"start_seconds": place * seconds, "num_frames": 16}
        dataset = wids.ShardListDataset([(f"{url}/{name}", 1)], remote="range", cache_dir=folder)
        with dataset, dataset.open_field(0, ".mp4") as file:
            frames, _ = wids.decode_video(file, max_nbytes=1 << 30, **options)
        took = time.perf_counter() - began
        time.sleep(0.5)  # the server writes its lines when the answers are out
        sent = [int(line.split()[2]) for line in log.read_text().splitlines()]
        share = sum(sent) / path.stat().st_size
        figure = (
            f"{len(frames)} frames, {share:.1%} of the bytes, {len(sent)} requests, {took:.2f} s"
        )
        rows.append({"label": f"{seconds:.0f} s long, at {place:.0%}", "figure": figure})
    return rows


def main() -> None:
    """Make the videos, decode the clips, and save the results."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    common.add_results_options(parser)
    arguments = parser.parse_args()
    common.data.BENCH.mkdir(exist_ok=True)
    root = Path(tempfile.mkdtemp(dir=common.data.BENCH))
    rows = []
    try:
        (root / "www").mkdir()
        for number, bits_per_second in enumerate(BITS_PER_SECOND.values()):
            name = f"{number}.tar"
            seconds = make_video(root / "www" / name, bits_per_second)
            with nginx(root) as url, delayed(url, 0.02) as reached:
                rows += measure(reached, root, name, seconds)
    finally:
        shutil.rmtree(root)
    for row in rows:
        print(f"{row['label']} | {row['figure']}")
    print(common.save(arguments.out, "video_clip", {}, {"clips of a remote video": rows}))


if __name__ == "__main__":
    main()
