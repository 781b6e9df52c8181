"""What an order costs: counts that can be checked by hand, bounds that must hold."""

import json
from pathlib import Path

import pytest
from helpers.server import ShardServer

import wids
from wids.tools.orderreport import Cluster, order_report


def test_without_interleave_a_node_reads_shard_by_shard():
    """With interleave=1, each shard is downloaded and opened once."""
    report = order_report([64] * 20, Cluster(batch_size=8), interleave=1)
    assert report.node_shards_mean == report.node_shards_max == 1
    assert report.downloads == report.downloads_least == 20
    assert report.worker_opens == 20
    assert report.shards_per_batch == 1
    assert report.epoch_steps == report.steps == 160


def test_bytes_are_those_of_shards_or_of_samples():
    """A node that reads a few samples of every shard downloads them all, or only the samples."""
    report = order_report([100] * 40, Cluster(nodes=8), partition="uniform", nbytes=4_000_000)
    assert (report.whole_nbytes, report.range_nbytes) == (4_000_000, 500_000)
    assert (report.whole_requests, report.range_requests) == (40, 500)
    report = order_report([100] * 40, Cluster(nodes=2, ranks_per_node=4), nbytes=40 * (50 << 20))
    assert (report.whole_requests, report.range_requests) == (20 * 13, 2000)
    assert report.lines()[-1] == "requests for them            at least 260, at most 2,000"
    assert order_report([100] * 40, Cluster()).whole_nbytes is None


@pytest.mark.parametrize("remote", ["whole", "range"])
def test_requests_are_those_that_a_server_sees(
    shard_server: ShardServer, tmp_path: Path, remote: str
):
    """Of an epoch of one rank; sidecars and the spec are not counted."""
    with wids.ShardWriter(
        f"{tmp_path}/%d.tar", maxcount=60, spec=f"{tmp_path}/spec.json", sidecars=True
    ) as writer:
        for number in range(180):
            writer.write({"__key__": f"{number:03d}", ".bin": bytes(100_000)})
    for path in tmp_path.iterdir():
        shard_server.put(path.name, path.read_bytes())
    url, cache_dir = f"{shard_server.url}/spec.json", tmp_path / "cache"
    with wids.open(url, remote=remote, cache_dir=cache_dir) as dataset:
        report = order_report(
            dataset.lengths, Cluster(), nbytes=sum(map(len, shard_server.files.values()))
        )
        for _ in wids.Loader(dataset, 8, sampler=wids.DistributedShardSampler(dataset, 1, 0)):
            pass
    made = sum(request.path.endswith(".tar") for request in shard_server.requests)
    if remote == "whole":
        assert made >= report.whole_requests == 6
    else:
        assert 0 < made <= report.range_requests == 180


def test_interleave_is_the_number_of_shards_in_use():
    """A node needs as many shards at once as are mixed, and few more."""
    cluster = Cluster(nodes=2, ranks_per_node=4, workers=2, batch_size=16, cache_shards=10)
    report = order_report([500] * 100, cluster, interleave=8)
    assert (report.streams, report.interleave) == (2, 8)
    assert 8 <= report.node_shards_mean <= report.node_shards_max <= 12
    assert report.downloads_least == 50
    assert report.downloads <= 1.2 * report.downloads_least
    assert report.new_shards_max <= 3


def test_workers_read_from_the_same_shards():
    """More workers do not make a node need more shards."""
    few, many = (
        order_report([200] * 60, Cluster(ranks_per_node=2, workers=w, batch_size=8), interleave=4)
        for w in (1, 8)
    )
    assert few.node_shards_mean == many.node_shards_mean
    assert many.worker_shards <= few.node_shards_max + 4


def test_a_small_cache_downloads_again():
    """A cache smaller than the shards in use downloads them again."""
    roomy = order_report([100] * 40, Cluster(cache_shards=10), interleave=8)
    tight = order_report([100] * 40, Cluster(cache_shards=4), interleave=8)
    assert roomy.downloads < 2 * roomy.downloads_least < tight.downloads


def test_more_interleave_mixes_better():
    """A larger interleave has more shards in a batch, up to a full shuffle."""
    cluster = Cluster(batch_size=32)
    reports = [order_report([100] * 200, cluster, interleave=k) for k in (1, 4, 16, 64)]
    mixing = [report.shards_per_batch for report in reports]
    assert mixing == sorted(mixing)
    assert mixing[-1] <= 32
    assert reports[0].shards_per_batch_uniform == pytest.approx(29.6, abs=0.5)


@pytest.mark.parametrize("shards", [10, 25, 50, 100])
@pytest.mark.parametrize("uneven", [False, True])
def test_the_ends_of_an_epoch_are_as_mixed_as_its_middle(shards, uneven):
    """Batches at both ends have as many shards as in the middle, whatever the seed."""
    lengths = [1000 + uneven * (i * 389 % 401 - 200) for i in range(shards)]
    cluster = Cluster(ranks_per_node=8, cache_shards=18)
    reports = [order_report(lengths, cluster, interleave=16, seed=seed) for seed in range(4)]
    # Of few shards, the ends are a single batch.
    ends = [
        end / each.shards_per_batch
        for each in reports
        for end in (each.shards_per_batch_first, each.shards_per_batch_last)
    ]
    assert sum(ends) / len(ends) >= 0.95
    assert min(ends) >= 0.8
    for report in reports:
        assert report.shards_per_batch_least >= 0.55 * report.shards_per_batch
        assert report.downloads_least == shards
        # Shards of uneven lengths end when they end, now and then some at once.
        assert report.downloads <= shards + uneven
        assert report.new_shards_max <= 3 + 2 * uneven


def test_the_ends_are_those_of_the_whole_epoch():
    """The last batches are those of the epoch, also if only its beginning is simulated."""
    lengths = [1000] * 40
    cluster = Cluster(batch_size=100)
    whole = order_report(lengths, cluster, interleave=8)
    part = order_report(lengths, cluster, interleave=8, max_samples=8000)
    assert part.shards_per_batch_last == whole.shards_per_batch_last
    assert part.shards_per_batch_first == whole.shards_per_batch_first


def test_fewer_samples_than_a_batch_are_reported():
    """An epoch shorter than a batch is one batch."""
    report = order_report([3, 2], Cluster(batch_size=32))
    assert report.shards_per_batch == report.shards_per_batch_least == 2
    assert report.shards_per_batch_first == report.shards_per_batch_last == 2


def test_a_part_of_a_large_epoch_is_scaled_up():
    """Counts of a partly simulated epoch are close to those of the whole."""
    lengths = [1000] * 300
    whole = order_report(lengths, Cluster(cache_shards=32))
    part = order_report(lengths, Cluster(cache_shards=32), max_samples=100_000)
    assert part.steps < part.epoch_steps == whole.epoch_steps
    assert part.downloads == pytest.approx(whole.downloads, rel=0.25)
    assert part.node_shards_mean == pytest.approx(whole.node_shards_mean, rel=0.1)


def test_reports_read_well_and_travel_as_json():
    """A report prints one number per line, and converts to JSON."""
    report = order_report([100] * 50, Cluster(), interleave=4)
    assert json.loads(json.dumps(report.to_dict()))["downloads"] == 50
    assert "downloads per node and epoch 50 (at least 50)" in report.lines()
