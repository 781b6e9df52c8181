"""How fast do decoded pictures of 224 x 224 come in batches, beside the peers?

Shuffled epochs over the same JPEGs of 256-400 x 256-300 pixels, in batches of 64, two workers or
threads each. All rows but two make each pixel of the pixels that it covers: pillow, torch and DALI
by an antialiased triangle, FFCV by OpenCV's INTER_AREA. The rows with antialias=False look at four
neighbours only; `decode_images.py` measures what that does to the picture. FFCV reads a file of its
own, with the JPEGs encoded again, and keeps a middle square of each picture.

    python benchmarks/decode_loader.py             # some minutes
    python benchmarks/decode_loader.py --record    # writes results/README.md, too
"""

import re
import statistics
from typing import Any

import common
import data

PEERS = (
    *("jpeg", "jpeg-rough", "jpeg-fast", "jpeg-workers"),
    *("ffcv", "dali", "dali-rough", "webdataset", "files"),
)
SAMPLES = 4096  # of an epoch, enough for one to four seconds
OPTIONS = {"batch_size": 64, "workers": 2, "decode": True, "samples": SAMPLES}
DOCUMENT = common.RECORDED / "README.md"
MARKED = re.compile(r"(<!-- decode_loader -->\n).*?(<!-- /decode_loader -->)", re.DOTALL)


def rates(row: dict[str, Any]) -> list[float]:
    return [one["samples"] / one["seconds"] for one in row["passes"]]


def times(row: dict[str, Any], other: dict[str, Any]) -> float:
    """Compare two rows: the median of the ratios within a round, which share their luck."""
    pairs = zip(rates(row), rates(other), strict=True)
    return statistics.median(one / two for one, two in pairs)


def markdown(rows: list[dict[str, Any]], rounds: int) -> str:
    """Lay out the table, each row beside the best of the other libraries."""
    others = [row for row in rows if not row["peer"].startswith("jpeg")]
    best = max(others, key=lambda row: row["median"])
    lines = [
        f"| library | images/s | smallest - largest | x {best['label']} |",
        "|---|--:|--:|--:|",
    ]
    for row in rows:
        spread = f"{row['min']:,.0f} - {row['max']:,.0f}"
        lines.append(
            f"| {row['label']} | {row['median']:,.0f} | {spread} | {times(row, best):.2f} |"
        )
    machine = common.machine()
    lines.append(
        f"\nMedians of {rounds} epochs of {SAMPLES} pictures, taken in turn; two workers or "
        f"threads, {machine['cores']} cores of {machine['cpu']}, Python {machine['python']}."
    )
    return "\n".join(lines)


def main() -> None:
    arguments = common.parse_arguments(__doc__, PEERS)
    folder = arguments.data or data.prepare("images", arguments.size)
    peers = common.installable(arguments.peers)
    rows = common.measure("epoch_loader", peers, folder, rounds=arguments.rounds, options=OPTIONS)
    settings = common.size_settings(arguments) | OPTIONS
    print(common.save(arguments.out, "decode_loader", settings, {"224 x 224": rows}))
    text = markdown(rows, arguments.rounds)
    print(text)
    if arguments.out == common.RECORDED and set(peers) == set(PEERS) and DOCUMENT.exists():
        DOCUMENT.write_text(MARKED.sub(rf"\g<1>\n{text}\n\n\2", DOCUMENT.read_text()))


if __name__ == "__main__":
    main()
