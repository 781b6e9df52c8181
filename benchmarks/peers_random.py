"""How fast is one whole sample at a random place, in the libraries of today?

The same samples, in each library's own format where it has one, read one by one in random order
from a warm page cache in one process, all fields as `bytes`; three rows read 256 a call. Readers
are made as each library's documentation advises. webshart, Energon and wids read the tars as they
are. SPDL, DALI, FFCV and webdataset have no random access.

    python benchmarks/peers_random.py --record    # some minutes; the environments take a gigabyte
    python benchmarks/table.py
"""

import common
import data

PEERS = (
    *("floor", "ours", "ours-gather", "lmdb-read", "datasets", "datasets-256"),
    *("lance", "lance-256", "webshart", "litdata", "mosaic", "grain", "energon"),
)


def main() -> None:
    arguments = common.parse_arguments(__doc__, PEERS)
    options = {"reads": 4_000, "budget_seconds": 1.5}
    folder = arguments.data or data.prepare("images", arguments.size)
    peers = common.installable(arguments.peers)
    rows = common.measure("random_read", peers, folder, rounds=arguments.rounds, options=options)
    settings = common.size_settings(arguments) | options | {"compared": ["floor", "ours"]}
    print(common.save(arguments.out, "peers_random", settings, {"random samples, raw": rows}))


if __name__ == "__main__":
    main()
