"""Rank, number of ranks and number of nodes, from torch and the environment of the launcher."""

import itertools
import json
import operator
import os
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, SupportsIndex

from wids.base.arguments import check_integer
from wids.base.threads import DaemonThreadPool
from wids.base.urls import display_url
from wids.base.warn import WarningsOnce, lines_of_callers, warn
from wids.log import logger

__all__ = ["Replica", "check_dealing", "check_lanes", "lanes_here", "number_of_lanes", "ranks_here"]


class Replica:
    """Rank of this process and number of ranks, determined at first use.

    They come from the arguments, else from the process group of torch, else from `RANK` and
    `WORLD_SIZE` of the environment (with a warning); else this is the only process. Without a
    process group they are determined at each use, since a group may be made later. If only the
    number of ranks is given and it is above 1, the first use raises an error, since each process
    would be rank 0.

    Args:
        num_replicas: Number of ranks, or None.
        rank: Rank of this process, or None.

    Raises:
        ValueError: `num_replicas` is below 1, or `rank` is not in its range or unknown.

    >>> Replica(4, 0).find()
    (4, 0)
    """

    def __init__(self, num_replicas: int | None, rank: int | None) -> None:
        self._given = num_replicas, rank
        self._settled: tuple[int, int] | None = None
        self._warnings = WarningsOnce()  # it is looked up at each use
        self._compared = False
        self._made_at = lines_of_callers()
        # Given values are checked now. The group is often made after this call.
        if None not in self._given or _process_group() is not None:
            self.find()
        elif num_replicas is not None:
            _check_ranks(num_replicas, 0)

    @property
    def settled(self) -> bool:
        """Whether rank and number of ranks can no longer change."""
        return self._settled is not None

    def find(self) -> tuple[int, int]:
        """Return the number of ranks and the rank of this process."""
        if self._settled is not None:
            return self._settled
        num_replicas, rank = self._given
        group = None
        if num_replicas is None or rank is None:
            group = _process_group()
            size, own = group or _launched(self._warnings) or self._alone()
            num_replicas = size if num_replicas is None else num_replicas
            rank = own if rank is None else rank
        found = _check_ranks(num_replicas, rank, given=None not in self._given)
        if None not in self._given or group is not None:
            self._settled = found
            self._warn_of_contradiction(group or found)
        return found

    def check_pass(self, num_replicas: int, rank: int) -> None:
        """Check that a process group that was made after a pass began has the ranks of that pass.

        Args:
            num_replicas: Number of ranks that the pass was begun for.
            rank: The rank that it was begun for.

        Raises:
            RuntimeError: The ranks of the group are others, so samples would come twice or never.
        """
        if None not in self._given:
            return
        if self._settled is None and _process_group() is not None:
            self.find()
        if self._settled in (None, (num_replicas, rank)):
            return
        size, own = self._settled
        raise RuntimeError(
            f"the process group of torch was made after this pass began: the pass is that of rank "
            f"{rank} of {num_replicas}, but this process is rank {own} of {size}, so ranks would "
            "read the same samples; make the group before the loop over the loader begins, or pass "
            "num_replicas and rank to the sampler"
        )

    @property
    def comparable(self) -> bool:
        """Whether this is one of several ranks of the process group, and was not compared yet."""
        group = None if self._compared else _process_group()
        return group is not None and group[0] > 1 and group == self.find()

    def compare(self, state: Mapping[str, Any], samples: object) -> None:
        """Warn if another rank of the process group begins its first pass with another state.

        All samplers of a job have the same state and the same shards at the start of a pass. They
        have not if each rank lists a folder for itself while a shard is added or replaced, or is
        given another seed. In a process that was forked from a rank, nothing is compared.

        Args:
            state: State of the sampler, of plain values.
            samples: What it draws from, whose shards are compared, too.
        """
        if not self.comparable:
            return
        self._compared = True
        number, store = next(_COMPARED[self._made_at]), _store_of_group()
        if store is None or store is _Inherited.store:
            return
        tables = _tables_of(samples)
        told = {**state, _TABLES: [digests for _, digests in tables]}
        other = _first_of_ranks(store, f"wids/sampler {number} of {self._made_at}", told)
        parts = [
            f"{name} is {state[name]!r}, there {other.get(name)!r}"
            for name in state
            if state[name] != other.get(name)
        ]
        parts += _words_of_tables(tables, other.get(_TABLES))
        if not parts:
            return
        rank = self.find()[1]
        warn(
            f"the sampler of rank {rank} begins with another order than that of the rank that was "
            f"first: {'; '.join(parts)}; so some samples come twice and some never, and ranks may "
            "wait for each other at the end. Open the same spec or the same commit of a hub on all "
            "ranks, since each process lists a folder for itself; give all samplers the same "
            "arguments; and use such a sampler on all ranks or on none"
        )

    def _warn_of_contradiction(self, group: tuple[int, int]) -> None:
        """Warn if only one of the two was given, and the process group says otherwise."""
        names = ("num_replicas", "rank")
        for name, given, known, other in zip(names, self._given, group, names[::-1], strict=True):
            if given is not None and given != known:
                warn(
                    f"{name}={given} was given without {other}, but in the process group of torch "
                    f"{name} is {known}: samples come on several ranks or on none; pass both or "
                    "neither"
                )

    def _alone(self) -> tuple[int, int]:
        """Return number of ranks and rank of a single process; raise if only one was given."""
        num_replicas, _ = self._given
        if num_replicas is not None and num_replicas > 1:
            raise ValueError(
                f"rank is unknown: num_replicas={num_replicas} was given without it, and there is "
                "no process group and no RANK in the environment; pass rank too, or make the "
                "process group before the first use of the sampler"
            )
        return 1, 0


def _check_ranks(num_replicas: int, rank: int, *, given: bool = True) -> tuple[int, int]:
    """Return number of ranks and rank as ints; raise ValueError if they are out of range."""
    num_replicas = check_integer("num_replicas", num_replicas, 1)
    if not 0 <= check_integer("rank", rank) < num_replicas:
        hint = "; only one of the two was given, the other comes from the process group or the "
        hint = "" if given else f"{hint}environment, or is that of a single process: pass both"
        raise ValueError(f"rank must lie in [0, num_replicas = {num_replicas}), got {rank}{hint}")
    return num_replicas, operator.index(rank)


def _process_group() -> tuple[int, int] | None:
    """Return the size of torch's process group and the rank in it; None without a group."""
    # A program that has not imported torch has no group, and is spared the import.
    if sys.modules.get("torch") is None:
        return None
    # Looked up now, not at import: groups are made later, and tests replace these functions.
    import torch.distributed as dist

    if dist.is_available() and dist.is_initialized():
        return dist.get_world_size(), dist.get_rank()
    return None


# Numbers the samplers of this process by their first pass, for each line of the program that led to
# some: all ranks run the same program, but some of its lines may run on one rank alone.
_COMPARED: defaultdict[str, Iterator[int]] = defaultdict(itertools.count)
_DIGITS = 8  # of the digest of a block of shards
_ANSWER_SECONDS = 5.0  # a store whose machine does not answer must not stop the pass


def _first_of_ranks(store: Any, key: str, state: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what the first rank that called this with a key had; without waiting for any."""
    text = json.dumps(dict(state))
    pool = DaemonThreadPool(1, "wids-ranks")
    # A collective call would wait for ranks that do not use the sampler.
    answer = pool.submit(store.compare_set, key, "", text)
    try:
        found: Mapping[str, Any] = json.loads(answer.result(_ANSWER_SECONDS))
    except (RuntimeError, TimeoutError, ValueError):  # the store is gone, silent, or of no use
        return state
    return found


def _store_of_group() -> Any:
    """Return the store of torch's process group; None without a group, or one without a store."""
    c10d = sys.modules.get("torch.distributed.distributed_c10d")
    try:
        return c10d._get_default_store()  # type: ignore[union-attr]  # noqa: SLF001 (no public way)
    except (AttributeError, RuntimeError, ValueError):
        return None


class _Inherited:
    """Store of the process group that this process has from the one that it was forked from.

    Both use one connection, so what either asks would mix with the answers of the other.
    """

    store: Any = None


def _note_fork() -> None:
    _Inherited.store = _store_of_group()


if hasattr(os, "register_at_fork"):  # where processes fork
    os.register_at_fork(after_in_child=_note_fork)


def _launched(warnings: WarningsOnce) -> tuple[int, int] | None:
    """Return number of ranks and rank from the variables of torchrun; None if there are none.

    One rank counts as none. Without these variables, each process of a job that never makes a group
    would read all data.

    Args:
        warnings: Warns that there is no group.
    """
    size = _launched_size()
    if size == 1:
        _warn_if_not_alone(warnings)
        return None
    rank = os.environ.get("RANK", "")
    if not (rank.isdecimal() and int(rank) < size):
        raise ValueError(
            f"WORLD_SIZE={size} of the environment tells of a job of several processes, but RANK "
            f"is {f'{rank!r}' if rank else 'missing'}, and there is no process group: each process "
            "would read all samples; make the group before the first use of the sampler, pass "
            "num_replicas and rank (1 and 0 for a single process), or unset WORLD_SIZE"
        )
    warnings.warn(
        "no group",
        f"there is no torch.distributed process group, so the sampler takes rank {rank} of "
        f"{size} from RANK and WORLD_SIZE of the environment; make the group before the first "
        "pass, or pass num_replicas and rank",
    )
    return size, int(rank)


_TABLES = "shards"  # in what is compared: what tells the shards from others


def _tables_of(samples: Any) -> list[tuple[Any, dict[str, Any]]]:
    """Return the table of shards of each dataset under a sequence, and what it is compared by."""
    if not hasattr(samples, "read_as"):
        return []
    shards: Any = getattr(samples, "shards", None)
    if hasattr(shards, "digests_of_blocks"):
        return [(shards, shards.digests_of_blocks())]
    under = [getattr(samples, name, None) for name in ("base", "left", "right")]
    parts = getattr(samples, "parts", None)
    under += parts if isinstance(parts, list) else []
    return [table for each in under if each is not None for table in _tables_of(each)]


def _words_of_tables(tables: list[tuple[Any, dict[str, Any]]], others: Any) -> list[str]:
    """Return in what the shards of datasets differ from those that another rank told of.

    What only one of the two ranks knows, such as the sizes of its shards, is not compared.
    """
    if not isinstance(others, list) or len(others) != len(tables):
        return [] if others is None else ["the datasets under its view are others in number"]
    words = []
    for (shards, own), other in zip(tables, others, strict=True):
        if own["shards"] != other.get("shards"):
            words.append(f"its dataset has {own['shards']} shards, there {other.get('shards')}")
            continue
        differing = [name for name in own if name in other and own[name] != other[name]]
        if "commit" in differing:
            words.append(f"its commit is {own['commit']}, there {other['commit']}")
        blocks = [
            (number, name)
            for name in differing
            if name != "commit"
            for number in range(0, len(own[name]), _DIGITS)
            if own[name][number : number + _DIGITS] != other[name][number : number + _DIGITS]
        ]
        if blocks:
            first = min(blocks)[0]
            names = [name for number, name in blocks if number == first]
            words.append(_words_of_block(shards, own["step"], first // _DIGITS, names))
    return list(dict.fromkeys(words))  # a dataset may be under a view twice


def _words_of_block(shards: Any, step: int, block: int, names: list[str]) -> str:
    """Return the words for the first block of shards that differs, and in what it does."""
    start, stop = block * step, min((block + 1) * step, len(shards))
    name = display_url(shards[start].url).rpartition("/")[2]
    differing = " and ".join(names)
    if stop - start > 1:
        return f"shards {start} to {stop - 1}, from {name!r} on, differ in {differing}"
    return f"shard {start}, here {name!r}, differs in {differing}"


# Ranks by launchers: torchrun, SLURM's srun, programs of MPI.
_RANKS_OF_LAUNCHERS = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")


def _warn_if_not_alone(warnings: WarningsOnce) -> None:
    """Warn if a launcher tells of other processes, though `WORLD_SIZE` names none.

    Their ranks are not used: the processes need not be the ranks of one training.
    """
    for name in _RANKS_OF_LAUNCHERS:
        told = os.environ.get(name, "")
        if told.isdecimal() and int(told) > 0:
            warnings.warn(
                "not alone",
                f"{name}={told} of the environment tells of a job of several processes, but there "
                "is no torch.distributed process group and no WORLD_SIZE, so each of them reads "
                "all samples; make the group before the first pass, or pass num_replicas and rank "
                "(1 and 0 if each shall read all)",
            )
            return


def _launched_size() -> int:
    """Return the number of processes from the environment; 1 if it is not set."""
    size = os.environ.get("WORLD_SIZE", "")
    return max(1, int(size)) if size.isdecimal() else 1


def check_dealing(dealer: str | None, num_replicas: int, *, meant: bool) -> None:
    """Warn if the samples are not divided among the processes of a job; raise if twice.

    Args:
        dealer: Class of a framework that divides the batches of the sampler; None for none.
        num_replicas: Number of ranks of the sampler.
        meant: Whether it may be intended that each process reads all samples.

    Raises:
        ValueError: The samples would be divided twice.

    >>> check_dealing(None, 4, meant=False)
    """
    if dealer is not None and num_replicas > 1:
        raise ValueError(
            f"samples would be dealt out twice and most of them lost: the sampler is the share of "
            f"one of {num_replicas} ranks, and {dealer} deals its batches out again; do not give "
            "the loader to prepare() or the like, or make the sampler with num_replicas=1, rank=0"
        )
    if dealer is not None or num_replicas > 1 or meant:
        return
    group = _process_group()
    size = group[0] if group else _launched_size()
    if size == 1:
        return
    place = "in the process group" if group else "by WORLD_SIZE of the environment"
    warn(
        f"the sampler is for one process, of {size} {place}: each of them reads all samples; take "
        "DistributedShardSampler(dataset), or with Accelerate prepare the loader"
    )


def check_lanes(lanes: int | str) -> None:
    """Raise ValueError unless `lanes` is "rank", "node" or a number."""
    # Not a look-up in a set: a list that is given by mistake has no hash.
    if not isinstance(lanes, SupportsIndex) and lanes not in ("rank", "node"):
        raise ValueError(f"lanes must be 'rank', 'node' or a number, got {lanes!r}")


def number_of_lanes(lanes: str, num_replicas: int, *, silent: bool = False) -> int:
    """Count ranks or nodes; nodes by variables that have the same value on all of them.

    Args:
        lanes: "rank" or "node".
        num_replicas: Number of ranks.
        silent: Log nothing if the number of nodes is unknown, since it was logged before.

    >>> number_of_lanes("rank", 4)
    4
    """
    if lanes == "rank":
        return num_replicas
    # All ranks must agree on the number, or epochs would not be exact. The launcher gives these
    # variables to all of them; the number of ranks on a node is known only on that node.
    for name in ("GROUP_WORLD_SIZE", "SLURM_JOB_NUM_NODES"):
        nodes = os.environ.get(name, "")
        if nodes.isdecimal() and 1 <= int(nodes) <= num_replicas:
            return int(nodes)
    ranks_a_node = _agreed_ranks_a_node(num_replicas)
    if ranks_a_node:
        return num_replicas // ranks_a_node
    if num_replicas > 1 and not silent:
        logger.warning(
            "the number of nodes is unknown, so the ranks are taken for those of one node; on "
            "several nodes pass lanes=<number of nodes>, or start with torchrun or SLURM"
        )
    return 1


def _agreed_ranks_a_node(num_replicas: int) -> int:
    """Return the number of ranks per node if the launcher gives one that divides all; else 0."""
    told = os.environ.get("LOCAL_WORLD_SIZE", "")
    if not told or sys.modules.get("torch") is None:
        return 0
    import torch.distributed as dist

    if not (dist.is_available() and dist.is_initialized()):
        return 0
    # In a group of another size, some ranks may make no sampler now.
    if dist.get_world_size() != num_replicas:
        return 0
    # All ranks are on this node, and have been told the same: no need to ask them. This also lets
    # one rank alone make a sampler, or ask for its length.
    if told.isdecimal() and int(told) == num_replicas:
        return num_replicas
    told_to: list[str] = [""] * num_replicas
    try:
        dist.all_gather_object(told_to, told)
    except RuntimeError as error:
        raise RuntimeError(
            "counting the nodes failed, since it needs all ranks: make the sampler on all of them "
            "and after the process group, or pass lanes=<number of nodes>, or set GROUP_WORLD_SIZE "
            f"to the number of nodes; torch: {error}"
        ) from error
    agreed = told.isdecimal() and set(told_to) == {told} and int(told) > 0
    return int(told) if agreed and num_replicas % int(told) == 0 else 0


def lanes_here(lanes: int, num_replicas: int) -> int:
    """Return the number of lanes of this machine's ranks; each lane draws from its own shards.

    Args:
        lanes: Lanes of the order.
        num_replicas: Number of ranks.

    >>> lanes_here(lanes=1, num_replicas=8), lanes_here(lanes=8, num_replicas=8)
    (1, 8)
    """
    return max(1, -(-ranks_here(num_replicas) * lanes // num_replicas))


def ranks_here(num_replicas: int) -> int:
    """Return how many of the ranks run on this machine: all, if the launcher gives no number.

    Args:
        num_replicas: Number of ranks.
    """
    # SLURM writes "8(x4)" for eight on each of four nodes.
    for name in ("LOCAL_WORLD_SIZE", "SLURM_TASKS_PER_NODE"):
        told = os.environ.get(name, "").partition("(")[0]
        if told.isdecimal() and int(told) > 0:
            return min(int(told), num_replicas)
    return num_replicas
