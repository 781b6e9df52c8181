"""The recipes that turn datasets of other libraries into shards, with files that these wrote.

    moving.py lance | ffcv

Every sample must come once, in its order, with the values that the other library stored.
"""

import io
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

import wids

COUNT = 60


def pixels_of(number):
    """Return a picture whose contents depend on its number: smooth, so that JPEG keeps it."""
    y, x = np.mgrid[:20, :30]  # of one size, as FFCV's own decoder wants them
    return np.stack([x * 8, y * 12, np.full_like(x, number * 4)], axis=-1).astype(np.uint8)


def jpeg_of(number):
    """Return the bytes of that picture as a JPEG."""
    file = io.BytesIO()
    Image.fromarray(pixels_of(number)).save(file, "JPEG")
    return file.getvalue()


def expect(found, due, what):
    """Fail unless a value is the one that was stored."""
    if found != due:
        raise SystemExit(f"{what}: {found!r}, not {due!r}")


def run_lance():
    import lance
    import pyarrow as pa
    from from_lance import export_lance

    numbers = range(COUNT)
    columns = {
        "key": [f"{number:04d}" for number in numbers],
        "jpg": [jpeg_of(number) for number in numbers],
        "label": [number % 10 for number in numbers],
        "caption": [f"größe {number}" for number in numbers],
    }
    lance.write_dataset(pa.table(columns), "x.lance", max_rows_per_file=25)
    export_lance("x.lance", "tables")
    tables = sorted(map(str, Path("tables").glob("*.parquet")))
    subprocess.run(
        [sys.executable, "-m", "wids", "import", *tables, "-o", "train-%06d.tar"], check=True
    )
    dataset = wids.ShardListDataset("train.json", transformations="bytes")
    expect(len(dataset), COUNT, "samples")
    for number, sample in enumerate(dataset):
        expect(sample["__key__"], f"{number:04d}", "key")
        expect(bytes(sample[".jpg"]), jpeg_of(number), "picture")
        expect(int(sample[".cls"]), number % 10, "class")
    expect(wids.ShardListDataset("train.json")[7][".json"], {"caption": "größe 7"}, "caption")


class Pictures:
    """What FFCV's writer takes."""

    def __len__(self):
        return COUNT

    def __getitem__(self, number):
        return pixels_of(number), number % 10


def run_ffcv():
    from ffcv.fields import IntField, RGBImageField
    from ffcv.loader import Loader, OrderOption
    from ffcv.writer import DatasetWriter
    from from_ffcv import write_shards

    fields = {
        "image": RGBImageField(write_mode="proportion", compress_probability=0.5),
        "label": IntField(),
    }
    DatasetWriter("train.beton", fields, num_workers=1).from_indexed_dataset(Pictures())
    write_shards("train.beton", "train-%06d.tar", "train.json")
    dataset = wids.ShardListDataset("train.json", transformations="numpy")
    expect(len(dataset), COUNT, "samples")
    loader = Loader("train.beton", 1, num_workers=1, order=OrderOption.SEQUENTIAL)
    kinds = set()
    for number, (sample, (pictures, labels)) in enumerate(zip(dataset, loader, strict=True)):
        kind = ".png" if ".png" in sample else ".jpg"
        kinds.add(kind)
        expect(sample[".cls"], int(labels[0]), f"class of {number}")
        theirs = np.asarray(pictures[0], np.int16)
        expect(sample[kind].shape, theirs.shape, f"size of {number}")
        # Decoders of JPEG may round otherwise.
        far = int(np.abs(theirs - sample[kind]).max())
        expect(far <= (0 if kind == ".png" else 6), True, f"pixels of {number}, off by {far}")
    expect(kinds, {".png", ".jpg"}, "kinds of pictures")


def main():
    library = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        os.environ["WIDS_CACHE"] = f"{folder}/cache"
        Path(folder, "work").mkdir()
        os.chdir(f"{folder}/work")
        globals()[f"run_{library}"]()
    print(f"{library}: passed")


if __name__ == "__main__":
    main()
