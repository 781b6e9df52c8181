"""How fast is one whole sample at a random place, warm, in one process?

Samples are read one by one in random order, all fields as `bytes`, nothing decoded; one row reads
256 a call, a field after the other, and one gets views in place of copies. The page
cache is warm and every shard has been opened before the clock runs, except where a library closes
shards by its own default: that is what the row "wids 0.1.11" shows beside "lru_size=100".

The floor knows every offset beforehand and does nothing but cut slices. What a library adds to it
is finding the shard and the members, naming the fields, and building the sample.

    python benchmarks/random_read.py --record    # some minutes
    python benchmarks/table.py                   # writes the tables
"""

import common
import data

PEERS = (
    *("floor", "ours", "ours-views", "ours-streams", "ours-gather", "lmdb-read"),
    *("wids011-lru100", "wids011"),
)


def main() -> None:
    arguments = common.parse_arguments(__doc__, PEERS)
    options = {"reads": 20_000, "budget_seconds": 2.0}
    kinds = {"": arguments.data} if arguments.data else dict.fromkeys(data.MAKERS)
    peers = common.installable(arguments.peers)
    tables = {}
    for kind, given in kinds.items():
        folder = given or data.prepare(kind, arguments.size)
        tables[kind or folder.name] = common.measure(
            "random_read", peers, folder, rounds=arguments.rounds, options=options
        )
    settings = common.size_settings(arguments) | options
    print(common.save(arguments.out, "random_read", settings, tables))


if __name__ == "__main__":
    main()
