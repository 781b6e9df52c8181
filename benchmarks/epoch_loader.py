"""How fast does a shuffled epoch come through a DataLoader with two workers?

Batches of 64, in chunks of 2,000 samples for the libraries that have indexes, through a shuffle
buffer of 2,000 for webdataset. "raw" hands all fields over as `bytes`; "decoded" opens the JPEG
with pillow, resizes it to 224 x 224 and stacks the batch, which is what most training jobs do.

Raw batches are bounded by what torch pays to pickle a batch in the worker and unpickle it in the
parent; decoded ones by pillow. The gap that a library can close is the one to the floor. Starting
the workers is part of an epoch, as it is in training without `persistent_workers`.

    python benchmarks/epoch_loader.py --record    # some minutes
    python benchmarks/table.py                    # writes the tables
"""

import common
import data

PEERS = ("floor", "ours", "wids011-lru100", "wids011", "webdataset")
DECODED_SAMPLES = 1536  # enough for a second or two; the floor decodes a few hundred a second
KINDS = {"images raw": "images", "images decoded": "images", "tokens raw": "tokens"}


def main() -> None:
    arguments = common.parse_arguments(__doc__, PEERS)
    tables, shared = {}, {"batch_size": 64, "workers": 2}
    for name, kind in KINDS.items():
        if arguments.data and kind == "tokens":
            continue  # a folder that is given stands for the images
        decode = name.endswith("decoded")
        folder = arguments.data or data.prepare(kind, arguments.size)
        samples = DECODED_SAMPLES if decode else 10**9
        tables[name] = common.measure(
            "epoch_loader",
            arguments.peers,
            folder,
            rounds=arguments.rounds,
            options={**shared, "decode": decode, "samples": samples},
        )
    settings = common.size_settings(arguments) | shared | {"decoded_samples": DECODED_SAMPLES}
    print(common.save(arguments.out, "epoch_loader", settings, tables))


if __name__ == "__main__":
    main()
