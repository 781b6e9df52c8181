"""Write the samples of an FFCV file as shards; JPEGs are copied as they are stored.

from from_ffcv import write_shards
write_shards("train.beton", "train-%06d.tar", "train.json")
"""

import io

import numpy as np
from ffcv.reader import Reader
from PIL import Image

import wids


def read_beton(path):
    """Yield the samples of a file with the fields `image` and `label`, in its order."""
    reader = Reader(path)
    stored = np.memmap(path, mode="r")
    sizes = dict(reader.alloc_table[["ptr", "size"]].tolist())
    names = list(reader.handlers)
    for number, row in enumerate(reader.metadata):
        values = dict(zip(names, row, strict=True))
        image = values["image"]
        data = stored[image["data_ptr"] :][: sizes[image["data_ptr"]]]
        sample = {"__key__": f"{number:09d}", ".cls": int(values["label"])}
        if image["mode"] == 0:
            yield sample | {".jpg": data.tobytes()}
        else:  # the pixels themselves
            png = io.BytesIO()
            pixels = data.reshape(image["height"], image["width"], 3)
            Image.fromarray(pixels).save(png, "PNG")
            yield sample | {".png": png.getvalue()}


def write_shards(path, pattern, spec):
    """Write the samples of an FFCV file."""
    with wids.ShardWriter(pattern, spec=spec) as writer:
        for sample in read_beton(path):
            writer.write(sample)
