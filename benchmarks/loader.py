"""How fast do raw batches come, by processes and by threads?

Shuffled epochs in batches of 256, all fields raw, two workers or threads. Rows with a DataLoader
pay for carrying each batch out of a worker. The start of the workers is part of an epoch, which
takes some tenths of a second here, but for the row with persistent_workers, which shows what long
epochs come to.
wids.Loader and FFCV copy fields into batches in this process, and LMDB is read by a plain loop,
too. FFCV and LMDB read files of their own, made of the shards beforehand. FFCV compiles its
threads' work, which then runs without Python.

    python benchmarks/loader.py --record    # some minutes
    python benchmarks/table.py              # writes the tables
"""

import common
import data

PEERS = (
    *("floor", "ours", "ours-kept", "loader", "loader-1", "loader-0", "ffcv-raw", "lmdb-0", "lmdb"),
    *("wids011-lru100", "webdataset"),
)
LABELS = {"floor": "floor: mmap slices, DataLoader", "ours": "wids, DataLoader"}


def main() -> None:
    arguments = common.parse_arguments(__doc__, PEERS)
    peers = common.installable(arguments.peers)
    options = {"batch_size": 256, "workers": 2, "decode": False, "samples": 10**9}
    kinds = {"": arguments.data} if arguments.data else dict.fromkeys(data.MAKERS)
    tables = {}
    for kind, given in kinds.items():
        folder = given or data.prepare(kind, arguments.size)
        rows = common.measure(
            "epoch_loader", peers, folder, rounds=arguments.rounds, options=options
        )
        tables[f"{kind or folder.name} raw"] = [
            row | {"label": LABELS.get(row["peer"], row["label"])} for row in rows
        ]
    settings = common.size_settings(arguments) | options | {"compared": ["floor", "ffcv-raw"]}
    print(common.save(arguments.out, "loader", settings, tables))


if __name__ == "__main__":
    main()
