"""How fast does a shuffled epoch come, raw and decoded, in the libraries of today?

Batches of 64 with two workers, or two threads where a library has threads in their place, each
shuffled in the library's own way. "raw" hands all fields over as `bytes`; FFCV and wids.Loader put
them into buffers of a batch. "decoded" opens the JPEG with pillow, resizes it to 224 x 224 and
stacks the batch, but for DALI, FFCV and wids.Loader, which have decoders of their own. The start of
the workers is part of an epoch, except where the library keeps them (LanceDB, Energon).

    python benchmarks/peers_epoch.py --record    # some minutes
    python benchmarks/table.py
"""

import common
import data

SHARED = ("datasets", "lance", "litdata", "mosaic", "grain", "energon", "spdl", "webdataset")
RAW = ("ours", "loader-0", "lmdb", *SHARED, "ffcv-raw")
DECODED = ("ours", "jpeg", *SHARED, "ffcv", "dali")
LABELS = {"ours": "wids, DataLoader", "loader-0": "wids.Loader"}
DECODED_SAMPLES = 1536


def main() -> None:
    arguments = common.parse_arguments(__doc__, sorted({*RAW, *DECODED}))
    folder = arguments.data or data.prepare("images", arguments.size)
    wanted = common.installable(arguments.peers)
    tables, shared = {}, {"batch_size": 64, "workers": 2}
    for name, peers in {"epoch, raw": RAW, "epoch, decoded": DECODED}.items():
        decode = peers is DECODED
        options = shared | {"decode": decode, "samples": DECODED_SAMPLES if decode else 10**9}
        chosen = [peer for peer in peers if peer in wanted]
        rows = common.measure(
            "epoch_loader", chosen, folder, rounds=arguments.rounds, options=options
        )
        tables[name] = [row | {"label": LABELS.get(row["peer"], row["label"])} for row in rows]
    settings = common.size_settings(arguments) | shared | {"compared": ["ours"]}
    settings["decoded_samples"] = DECODED_SAMPLES
    print(common.save(arguments.out, "peers_epoch", settings, tables))


if __name__ == "__main__":
    main()
