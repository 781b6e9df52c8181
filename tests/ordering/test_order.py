"""The order itself: permutations, chunks, exactness, locality; an independent slow reference."""

import hashlib
import random
from collections import Counter
from itertools import chain
from math import gcd, isqrt

import numpy as np
import pytest
from helpers.orders import order_options
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from wids.ordering.order import PARTITIONS, Chunks, OrderSpec, Share
from wids.ordering.permute import derive_key, facts_hash, permute, shuffled

THOROUGH = settings(deadline=None, suppress_health_check=list(HealthCheck), database=None)
LENGTHS = st.lists(st.sampled_from([0, 1, 2, 5, 17, 40]), min_size=1, max_size=12)
TAILS = st.sampled_from(["pad", "drop", "ragged"])
WORD = (1 << 64) - 1


# A reference in Python's integers, without NumPy: it deals out whole epochs, position by position.


def slow_key(*parts):
    key = 0
    for part in parts:
        key = ((key ^ part) + 0x9E3779B97F4A7C15) & WORD
        key = ((key ^ key >> 30) * 0xBF58476D1CE4E5B9) & WORD
        key = ((key ^ key >> 27) * 0x94D049BB133111EB) & WORD
        key ^= key >> 31
    return key


def slow_hash(key, number):
    return slow_key(key ^ number)


def slow_shuffled(items, key):
    return [items[i] for i in sorted(range(len(items)), key=lambda i: slow_hash(key, i) >> 32)]


def slow_permute(place, size, key):
    width = isqrt(size) + 1
    height = -(-size // width)
    height += width & height & 1
    while True:
        high, low = divmod(place, width)
        for number in range(12):
            noise = ((high if number % 2 == 0 else low) + key) & WORD
            noise = (noise + slow_key(0x77696473, number)) & WORD
            noise = (noise * 0xBF58476D1CE4E5B9) & WORD
            noise ^= noise >> 32
            noise = (noise * 0x94D049BB133111EB & WORD) >> 32
            if number % 2 == 0:
                low = (low + (noise * width >> 32)) % width
            else:
                high = (high + (noise * height >> 32)) % height
        place = high * width + low
        if place < size:
            return place


def slow_window(turn, total, bits, key):
    begin = turn >> bits << bits
    keys = slow_hash(key, turn >> bits)
    inside, mask = turn - begin, (1 << bits) - 1
    while True:
        for shift in (0, 16, 32):
            inside ^= inside >> (bits + 1) // 2
            inside = (inside * (keys >> shift | 1) + (keys >> shift + 8)) & mask
        if begin + inside < total:
            return begin + inside


def slow_merge(lengths, block, key, leads, ramp):
    """List the elements of sequences, block by block, and in a block round by round."""
    total, k = sum(lengths), len(lengths)
    number = max(1, total // block)
    ramp = max(1, min(ramp, number // 2))
    for s in range(k):
        most = lengths[s] * ramp // (2 * number)
        leads[s] = max(-most, min(most, leads[s])) if lengths[s] >= number > 1 else 0

    def taken(s, i):
        return lengths[s] * i // number + leads[s] * min(i, number - i, ramp) // ramp

    if k == 1 or key is None:
        return [(s, place) for s in range(k) for place in range(lengths[s])]
    if number < 4:
        line = [(s, place) for s in range(k) for place in range(lengths[s])]
        return [line[slow_permute(position, total, key)] for position in range(total)]
    elements = []
    for i in range(number):
        cells = [(s, place) for s in range(k) for place in range(taken(s, i), taken(s, i + 1))]
        begin, end = len(elements), len(elements) + len(cells)
        first, width = begin // k, (end - 1) // k - begin // k + 1
        step = int(width * 0.618)
        while gcd(step, width) > 1:
            step += 1
        column = {
            position: (position // k - first) * step % width for position in range(begin, end)
        }
        by_row = sorted(column, key=lambda p: (p % k, column[p]))
        elements += [cells[by_row.index(position)] for position in column]
    bits = (k - 1).bit_length()
    return [elements[slow_window(position, total, bits, key)] for position in range(total)]


def slow_epoch(sizes, spec):
    """List the indexes of an epoch."""
    n, key = sum(sizes), slow_key(spec.seed, spec.epoch)
    if spec.partition == "uniform":
        whole = slow_key(key, 5)
        return [slow_permute(p, n, whole) if spec.shuffle else p for p in range(n)]
    mixed = spec.shuffle and (spec.shufflefirst or spec.epoch > 0)
    line, first = [], 0
    for size in sizes:
        line.append((first, size))
        first += size
    if mixed and spec.partition != "contiguous":
        line = slow_shuffled(
            line, slow_key(slow_key(spec.seed) if spec.partition == "fixed" else key, 1)
        )
    samples = [(index, first, size) for first, size in line for index in range(first, first + size)]
    streams, at = [], 0
    for number in range(spec.streams):
        count = n // spec.streams + (number < n % spec.streams)
        pieces = []  # first index and size
        for index, _, _ in samples[at : at + count]:
            whole = pieces and index == sum(pieces[-1]) and index not in {f for f, _ in line}
            if whole:
                pieces[-1] = (pieces[-1][0], pieces[-1][1] + 1)
            else:
                pieces.append((index, 1))
        at += count
        if mixed and spec.partition != "global":
            pieces = slow_shuffled(pieces, slow_key(key, 2, number))
        streams.append(slow_stream(pieces, number, key, spec, n // max(1, len(sizes)), mixed))
    return [streams[p % spec.streams][p // spec.streams] for p in range(n)]


def slow_stream(pieces, number, key, spec, chunk, mixed):
    if not pieces:
        return []
    k = min(spec.interleave, len(pieces)) if mixed else 1
    order, names = slow_key(key, 6, number), []
    turns, rest = divmod(len(pieces), k)
    first = k - rest if turns % 2 else rest
    for start, size in ((0, first), (first, k - first)):
        names += [start + s for s in slow_shuffled(range(size), order)]
    largest = max(size for _, size in pieces)
    by_size = sorted(range(len(pieces)), key=lambda i: -(pieces[i][1] * 65535 // largest))
    sequence = {i: (names + names[::-1])[turn % (2 * k)] for turn, i in enumerate(by_size)}
    sequences = [[piece for i, piece in enumerate(pieces) if sequence[i] == s] for s in range(k)]
    lengths = [sum(size for _, size in each) for each in sequences]
    chunk = max(1, chunk)
    leads = []
    for s in range(k):
        alike = [t for t in range(k) if len(sequences[t]) == len(sequences[s])]
        ways = len(alike) * spec.streams
        lead = (2 * (alike.index(s) * spec.streams + number) + 1 - ways) * chunk // (2 * ways)
        leads.append(lead * (lengths[s] > chunk))
    block = max(2 * k, min(64 * k, chunk // 16))
    turns = slow_merge(lengths, block, slow_key(key, 3, number), leads, -(-k * chunk // block))
    indexes = []
    for s, turn in turns:
        pieces_before, place = iter(sequences[s]), turn
        first, size = next(pieces_before)
        while place >= size:
            place -= size
            first, size = next(pieces_before)
        if spec.shuffle:
            keys = slow_key(key, 4) + first * 0x9E3779B97F4A7C15 & WORD
            place = slow_permute(place, size, keys)
        indexes.append(first + place)
    return indexes


@THOROUGH
@given(lengths=LENGTHS, options=order_options(), epoch=st.integers(0, 3))
def test_the_order_is_that_of_a_slow_reference(lengths, options, epoch):
    """Every position has the index that the definition gives it."""
    sizes = [size for size in lengths if size]
    spec = OrderSpec(**options, epoch=epoch)
    found = Chunks(np.array(sizes, np.int64)).epoch(spec).at(np.arange(sum(sizes)))
    assert found.tolist() == slow_epoch(sizes, spec)


PINNED = "d1df17588fd6603d"


def test_orders_are_pinned():
    """The orders of version 2 never change."""
    words = hashlib.sha256()
    for sizes in ([5], [7, 7, 7], [1, 2, 3, 4, 30], [100] * 40, [3] * 500, list(range(1, 120))):
        for partition in PARTITIONS:
            for streams, interleave in ((1, 16), (3, 4), (8, 1)):
                chunks = Chunks(np.array(sizes, np.int64), first=10)
                spec = OrderSpec(
                    seed=42, epoch=1, partition=partition, streams=streams, interleave=interleave
                )
                found = chunks.epoch(spec).at(np.arange(chunks.num_samples))
                words.update(found.astype("<i8").tobytes())
    assert words.hexdigest()[:16] == PINNED


# Permutations.


@pytest.mark.parametrize("size", [1, 2, 3, 7, 8, 9, 100, 1023, 4097])
def test_permutations_are_bijections(size):
    """All images are different places of the range."""
    places, everything = np.arange(size), list(range(size))
    assert sorted(permute(places, size, derive_key(size)).tolist()) == everything
    assert sorted(shuffled(size, derive_key(size)).tolist()) == everything


@pytest.mark.parametrize("method", [permute, lambda _, size, key: shuffled(size, key)])
@pytest.mark.parametrize("size", [7, pytest.param(23, marks=pytest.mark.slow)])
def test_permutations_are_uniform(method, size):
    """Each place goes everywhere equally often, neighbours part, and both parities come."""
    runs = 2000
    images = np.array([method(np.arange(size), size, derive_key(size, run)) for run in range(runs)])
    counts = np.array([np.bincount(images[:, place], minlength=size) for place in range(size)])
    chi2 = ((counts - runs / size) ** 2 / (runs / size)).sum()
    freedom = (size - 1) ** 2
    assert abs(chi2 - freedom) < 5 * np.sqrt(2 * freedom)
    neighbours = (np.diff(images, axis=1) == 1).mean() * size
    assert abs(neighbours - 1) < 0.12
    inversions = [sum((row[i + 1 :] < row[i]).sum() for i in range(size)) for row in images]
    assert abs(np.mean(np.array(inversions) % 2) - 0.5) < 0.06


def test_keys_of_any_integers_differ():
    """Keys of small, large and negative integers differ, also from those of several."""
    values = [0, 1, -1, 2**63, -(2**63) + 1, 12345]
    keys = {derive_key(a, b) for a in values for b in values} | {derive_key(a) for a in values}
    assert len(keys) == len(values) ** 2 + len(values)


# Chunks.


def test_no_chunk_straddles_two_shards():
    """Chunks lie in one shard, and cover the samples that take part."""
    lengths = np.array([5, 0, 9, 4])
    assert Chunks.cut(0, 18, None, lengths).sizes.tolist() == [5, 9, 4]
    assert Chunks.cut(0, 18, 4, lengths).sizes.tolist() == [4, 1, 4, 4, 1, 4]
    assert Chunks.cut(3, 15, None, lengths).sizes.tolist() == [2, 9, 1]
    assert Chunks.cut(3, 15, None, lengths).bounds.tolist() == [3, 5, 14, 15]
    assert Chunks.cut(0, 0, 4).sizes.tolist() == []


def test_digests_tell_chunks_apart():
    """Other sizes and another first sample have other digests."""
    chunks = [Chunks.cut(0, 10, 4), Chunks.cut(0, 10, 5), Chunks.cut(1, 11, 4), Chunks.cut(0, 9, 4)]
    assert len({facts_hash(each.facts) for each in chunks}) == 4


# Shares of the ranks.


@THOROUGH
@given(
    n=st.integers(0, 200),
    ranks=st.lists(st.integers(1, 12), min_size=1, max_size=4),
    streams=st.integers(1, 9),
    tail=TAILS,
)
def test_ranks_share_the_positions_exactly(n, ranks, streams, tail):
    """Steps hold adjacent positions, on whatever ranks; only the last one is filled or dropped."""
    start = 0
    for replicas in ranks:
        shares = [Share(n, rank, replicas, streams, start, tail) for rank in range(replicas)]
        steps = (n - start) // replicas // 2
        taken = [share.positions(0, steps).tolist() for share in shares]
        assert sorted(chain.from_iterable(taken)) == list(range(start, start + steps * replicas))
        start += steps * replicas
    left = list(range(start, n))
    found = [
        share.positions(0, share.count).tolist()
        for share in (Share(n, rank, replicas, streams, start, tail) for rank in range(replicas))
    ]
    counts = Counter(chain.from_iterable(found))
    lengths = list(map(len, found))
    if tail == "pad":
        assert lengths == [-(-len(left) // replicas)] * replicas
        assert set(left) <= set(counts) <= set(range(n))
    elif tail == "drop":
        assert lengths == [len(left) // replicas] * replicas
        assert sorted(counts.elements()) == left[: len(left) // replicas * replicas]
    else:
        assert max(lengths) - min(lengths) <= 1
        assert sorted(counts.elements()) == left
    if tail == "pad" and n >= 2 * replicas and replicas % streams == 0 and replicas > streams:
        assert all(len(set(each)) == len(each) for each in found)


def test_ranks_of_a_node_share_a_stream():
    """Adjacent ranks draw from one stream."""
    homes = [set((Share(96, rank, 8, 2).positions(0, 12) % 2).tolist()) for rank in range(8)]
    assert homes == [{0}] * 4 + [{1}] * 4


@THOROUGH
@given(lengths=LENGTHS, options=order_options(), chosen=st.integers(0, 99))
def test_any_position_is_found_by_itself(lengths, options, chosen):
    """A position alone, or among far ones, has the index that it has among all."""
    chunks = Chunks.cut(0, sum(lengths), None, np.array(lengths))
    order = chunks.epoch(OrderSpec(**options))
    whole = order.at(np.arange(chunks.num_samples))
    picked = random.Random(chosen).choices(range(max(1, whole.size)), k=3) if whole.size else []
    again = chunks.epoch(OrderSpec(**options))
    assert again.at(np.array(picked, np.int64)).tolist() == whole[picked].tolist()


def test_far_positions_need_no_table_of_all_blocks():
    """Positions at both ends of a long epoch are found together."""
    order = Chunks.cut(0, 10**9, 10_000).epoch(OrderSpec(interleave=64))
    far = np.array([0, 10**9 - 1, 123_456_789, 5, 10**9 // 2])
    alone = [int(order.at(far[i : i + 1])[0]) for i in range(far.size)]
    assert order.at(far).tolist() == alone


# Locality and mixing.


def test_a_fixed_partition_keeps_the_shards_of_a_stream():
    """With "fixed" and "contiguous" a stream keeps its samples over epochs, with "global" not."""
    chunks = Chunks.cut(0, 1000, 10)

    def of_stream(partition, epoch):
        order = chunks.epoch(OrderSpec(partition=partition, epoch=epoch, streams=4))
        return set(order.at(np.arange(1, 1000, 4)).tolist())

    for partition in ("contiguous", "fixed"):
        assert of_stream(partition, 0) == of_stream(partition, 1)
    assert len(of_stream("global", 0) & of_stream("global", 1)) < 150


def test_storage_order_without_shuffling():
    """Without shuffling, a stream is a range of the samples in order; so are first chunks."""
    chunks = Chunks.cut(0, 60, 7)
    order = chunks.epoch(OrderSpec(shuffle=False, streams=3))
    assert order.at(np.arange(60)).tolist() == [20 * (p % 3) + p // 3 for p in range(60)]
    first = chunks.epoch(OrderSpec(shufflefirst=False)).at(np.arange(60))
    assert (first // 7).tolist() == [p // 7 for p in range(60)]
    assert first.tolist() != list(range(60))
