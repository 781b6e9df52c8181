"""The frame of the benchmarks: peers in processes of their own, passes in turn, medians, results.

Each peer runs in its own process and virtual environment (`benchmarks/worker.py`). It opens the
data, reads all of it once unmeasured, and then waits. A round lets every peer make one pass, one
after the other, so that what disturbs the machine disturbs all of them; the table shows medians
over the rounds with the smallest and the largest. All peers read the same samples in the same
order, and a run fails where two of them saw different numbers of bytes for it.
"""

import argparse
import contextlib
import json
import os
import platform
import statistics
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import data

HERE = Path(__file__).resolve().parent
VENVS = data.BENCH / "venvs"
RECORDED = HERE / "results"  # what the tables in the docs are made of


@dataclass(frozen=True)
class Peer:
    """One row of a table: which adapter runs, where, and how it is called.

    Attributes:
        name: The row's label.
        module: The adapter, a module of `benchmarks/peers`.
        options: Keyword arguments for the adapter.
        requirements: What its virtual environment holds; none: this interpreter's environment.
    """

    name: str
    module: str
    options: dict[str, Any] = field(default_factory=dict)
    requirements: tuple[str, ...] = ()


OLD_WIDS = ("wids==0.1.11", "braceexpand==0.1.7", "pyyaml==6.0.3")
FFCV = ("ffcv==1.0.2", "numba==0.68.1", "llvmlite==0.50.0", "psutil==7.2.2")
DALI = (
    *("nvidia-dali-cuda120==2.4.0", "nvidia-nvimgcodec-cu12==0.9.0.20", "optree==0.20.0"),
    *("gast==0.7.0", "astunparse==1.6.3", "six==1.17.0", "makefun==1.16.0"),
)
WEBDATASET = ("webdataset==1.0.2", "braceexpand==0.1.7", "pyyaml==6.0.3")
LMDB = ("lmdb==3.0.0",)
LANCE = (
    *("lancedb==0.40.0", "pylance==14.0.2", "lance-namespace==0.13.0", "overrides==7.7.0"),
    *("lance-namespace-urllib3-client==0.13.0", "deprecation==2.1.0"),
)
LITDATA = ("litdata==0.2.76", "lightning-utilities==0.15.3", "tifffile==2026.3.3")
MOSAIC = (
    *("mosaicml-streaming==0.13.0", "transformers==4.57.3", "tokenizers==0.22.2"),
    *("huggingface-hub==0.36.2", "xxhash==3.8.2", "catalogue==2.0.10", "zstd==1.5.7.2"),
    *("brotli==1.2.1", "python-snappy==0.7.3", "cramjam==2.14.0"),
)
GRAIN = (
    *("grain==0.2.18", "array-record==0.8.6", "absl-py==2.5.1", "etils==1.15.0"),
    *("portpicker==1.6.0", "protobuf==7.36.2"),
)
ENERGON = (
    *("megatron-energon==7.4.1", "multi-storage-client==1.3.1", "wcmatch==10.2.1", "lark==1.3.1"),
    *("rapidyaml==0.15.2", "s3fs==2026.9.0", "aiobotocore==3.10.0", "botocore==1.43.117"),
    *("aiohttp==3.14.5", "aioitertools==0.13.0", "aiosignal==1.4.0", "frozenlist==1.8.0"),
    *("aiohappyeyeballs==2.7.1", "multidict==7.2.1", "yarl==1.25.1", "propcache==0.5.4"),
    *("opentelemetry-api==1.45.2", "prettytable==3.18.0", "filetype==1.2.0", "xattr==1.3.0"),
    *("mfusepy==3.1.1", "pyroute2==0.9.7", "deprecation==2.1.0", "tzdata==2025.3"),
)
SPDL = ("spdl==0.8.0", "spdl-core==0.8.0", "spdl-io==0.8.0")
PEERS = {
    "floor": Peer("floor: mmap slices", "floor"),
    "ours": Peer("wids", "ours"),
    "ours-views": Peer("wids, memoryviews", "ours", {"kind": "memoryview"}),
    "ours-streams": Peer("wids, streams as in 0.1.11", "ours", {"kind": "streams"}),
    "ours-gather": Peer("wids, gather_bytes of 256", "ours", {"batch": 256}),
    "loader": Peer("wids.Loader, 2 threads", "ours_loader"),
    "loader-1": Peer("wids.Loader, 1 thread", "ours_loader", {"workers": 1}),
    "loader-0": Peer("wids.Loader, no thread", "ours_loader", {"workers": 0}),
    "ours-kept": Peer("wids, DataLoader, persistent_workers", "ours", {"kept": True}),
    "lmdb-read": Peer("LMDB 3.0", "lmdb300", {}, LMDB),
    "lmdb": Peer("LMDB 3.0, DataLoader", "lmdb300", {}, LMDB),
    "lmdb-0": Peer("LMDB 3.0, one process", "lmdb300", {"workers": 0}, LMDB),
    "ffcv-raw": Peer("FFCV 1.0.2", "ffcv102_raw", {}, FFCV),
    "wids011": Peer("wids 0.1.11", "wids011", {}, OLD_WIDS),
    "wids011-lru100": Peer("wids 0.1.11, lru_size=100", "wids011", {"lru_size": 100}, OLD_WIDS),
    "webdataset": Peer("webdataset 1.0.2", "webdataset102", {}, WEBDATASET),
    "lance": Peer("LanceDB 0.40", "lancedb040_torch", {}, LANCE),
    "lance-256": Peer("LanceDB 0.40, batches of 256", "lancedb040_torch", {"batch": 256}, LANCE),
    "datasets": Peer("Hugging Face datasets 5.2", "datasets520"),
    "datasets-256": Peer("Hugging Face datasets, batches of 256", "datasets520", {"batch": 256}),
    "litdata": Peer("LitData 0.2.76", "litdata0276", {}, LITDATA),
    "mosaic": Peer("MosaicML Streaming 0.13", "mosaic0130", {}, MOSAIC),
    "grain": Peer("Grain 0.2.18, ArrayRecord", "grain0218", {}, GRAIN),
    "webshart": Peer("webshart 0.4.6", "webshart046", {}, ("webshart==0.4.6",)),
    "energon": Peer("Megatron Energon 7.4", "energon741", {}, ENERGON),
    "spdl": Peer("SPDL 0.8", "spdl080", {}, SPDL),
    "jpeg": Peer("wids.Loader", "ours_jpeg", {"threads": True}),
    "jpeg-rough": Peer(
        "wids.Loader, antialias=False", "ours_jpeg", {"threads": True, "antialias": False}
    ),
    "jpeg-fast": Peer(
        "wids.Loader, antialias=False, fast=True",
        "ours_jpeg",
        {"threads": True, "antialias": False, "fast": True},
    ),
    "jpeg-workers": Peer("wids, DataLoader", "ours_jpeg"),
    "files": Peer("files, pillow", "files"),
    "ffcv": Peer("FFCV 1.0.2", "ffcv102", {}, FFCV),
    "dali": Peer("DALI 2.4", "dali24", {}, DALI),
    "dali-rough": Peer("DALI 2.4, antialias=False", "dali24", {"antialias": False}, DALI),
}


def interpreter(peer: Peer) -> str:
    """Return the Python that runs a peer, making its virtual environment on first use.

    The peer's own packages come first there; torch, numpy and pillow are those of this
    interpreter, so that rows differ in the library alone.
    """
    if not peer.requirements:
        return sys.executable
    folder = VENVS / peer.requirements[0]
    python = folder / "bin" / "python"
    if not (folder / "complete").exists():
        venv.create(folder, with_pip=False, clear=True)
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        site = folder / "lib" / version / "site-packages"
        pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(site)]
        subprocess.run([*pip, *peer.requirements], check=True)
        (site / "shared.pth").write_text(sysconfig.get_path("purelib"))
        (folder / "complete").touch()
    return str(python)


def installable(peers: Sequence[str]) -> list[str]:
    """Return the peers whose environments can be made here, and say of the others that they can't.

    Some have no wheel and want compilers and libraries: FFCV builds against OpenCV and
    libturbojpeg (Debian's libopencv-dev and libturbojpeg0-dev).
    """
    found = []
    for key in peers:
        try:
            interpreter(PEERS[key])
        except subprocess.CalledProcessError as error:
            print(f"{key} is left out, it does not install here: {error}", file=sys.stderr)
        else:
            found.append(key)
    return found


class Worker:
    """A peer's process, warmed up and waiting."""

    def __init__(self, key: str, question: str, folder: Path, options: dict[str, Any]) -> None:
        self.key = key
        peer = PEERS[key]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
        if peer.requirements:
            environment.pop("PYTHONPATH", None)  # else the tree's wids would be measured as 0.1.11
        job = {"module": peer.module, "question": question, "folder": str(folder)}
        job |= {"peer_options": peer.options, "options": options}
        self._process = subprocess.Popen(
            [interpreter(peer), str(HERE / "worker.py"), json.dumps(job)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            text=True,
        )
        self.versions: dict[str, str] = self._answer()

    def _answer(self) -> dict[str, Any]:
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.key}: its process ended, status {self._process.wait()}")
        return json.loads(line)

    def run_pass(self, number: int) -> dict[str, float]:
        """Make one measured pass; the number decides the order of the samples."""
        self._process.stdin.write(f"{number}\n")
        self._process.stdin.flush()
        return self._answer()

    def close(self) -> None:
        """End the process."""
        self._process.stdin.close()
        self._process.wait(timeout=60)
        self._process.stdout.close()


def touch(folder: Path) -> None:
    """Read the shards once, since the kernel may drop cold page cache by itself."""
    for path in sorted(folder.glob("*.tar")):
        with path.open("rb", buffering=0) as stream:
            while stream.read(1 << 22):
                pass


def measure(
    question: str,
    peers: Sequence[str],
    folder: Path,
    *,
    rounds: int,
    options: dict[str, Any],
) -> list[dict[str, Any]]:
    """Run the peers in turn and sum up each one's passes.

    Args:
        question: Which function of the adapters is asked: "random_read" or "epoch_loader".
        peers: Keys of `PEERS`.
        folder: The data, as `data.prepare` returns it.
        rounds: Measured passes per peer.
        options: What the worker needs to know beside the peer, such as the number of reads.

    Returns:
        One row per peer: its label, versions, all passes, and median, minimum and maximum of the
        rate in samples a second.
    """
    touch(folder)
    passes: dict[str, list[dict[str, float]]] = {key: [] for key in peers}
    with contextlib.ExitStack() as stack:
        workers = [
            stack.enter_context(contextlib.closing(Worker(key, question, folder, options)))
            for key in peers
        ]
        for number in range(rounds):
            touch(folder)
            for worker in workers:
                passes[worker.key].append(worker.run_pass(number))
            _check_bytes(number, passes)
            _report(f"{question} {folder.name} round {number + 1} of {rounds}", passes)
    return [_row(worker, passes[worker.key]) for worker in workers]


def _check_bytes(number: int, passes: dict[str, list[dict[str, float]]]) -> None:
    """Fail where peers that read the most samples of a pass saw different bytes.

    A peer that leaves out its last, smaller batch reads fewer: each such peer leaves out others.
    """
    done = {key: each[number] for key, each in passes.items()}
    most = max(each["samples"] for each in done.values())
    seen = {key: each["nbytes"] for key, each in done.items() if each["samples"] == most}
    first, expected = next(iter(seen.items()))
    for key, nbytes in seen.items():
        if nbytes != expected:
            raise RuntimeError(
                f"pass {number}, {most} samples: {key} saw {nbytes} bytes, {first} {expected}"
            )


def _report(title: str, passes: dict[str, list[dict[str, float]]]) -> None:
    rates = ", ".join(f"{key} {_rate(done[-1]):,.0f}/s" for key, done in passes.items())
    print(f"{title}: {rates}", file=sys.stderr, flush=True)


def _rate(one: dict[str, float]) -> float:
    return one["samples"] / one["seconds"]


def _row(worker: Worker, passes: list[dict[str, float]]) -> dict[str, Any]:
    rates = [_rate(one) for one in passes]
    return {
        "peer": worker.key,
        "label": PEERS[worker.key].name,
        "versions": worker.versions,
        "median": statistics.median(rates),
        "min": min(rates),
        "max": max(rates),
        "cpu": statistics.median(one["cpu_seconds"] / one["seconds"] for one in passes),
        "passes": passes,
    }


def machine() -> dict[str, Any]:
    """Describe this machine: what a reader needs to judge the figures."""
    cpuinfo = Path("/proc/cpuinfo")
    models = [
        line.split(":", 1)[1].strip()
        for line in (cpuinfo.read_text().splitlines() if cpuinfo.exists() else [])
        if line.startswith("model name")
    ]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cpu": models[0] if models else platform.processor(),
        "cores": os.cpu_count(),
        "memory_nbytes": memory,
        "system": platform.system(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load": os.getloadavg()[0],
    }


def parse_arguments(description: str, peers: Sequence[str]) -> argparse.Namespace:
    """Read the options that all benchmarks share."""
    parser = argparse.ArgumentParser(description=description.split("\n", 1)[0])
    parser.add_argument("--size", choices=sorted(data.SIZES), default="default")
    parser.add_argument("--rounds", type=int, default=7, help="measured passes per peer")
    parser.add_argument("--peers", nargs="+", choices=list(PEERS), default=list(peers))
    parser.add_argument("--data", type=Path, help="read this folder instead of making data")
    add_results_options(parser)
    return parser.parse_args()


def add_results_options(parser: argparse.ArgumentParser) -> None:
    """Add `--out` and `--record`, which say where results are put.

    The tables in the docs, and the tests that compare them with the recorded results, must not
    change because somebody tries a benchmark, so nothing is recorded unless it is asked for.
    """
    group = parser.add_mutually_exclusive_group()
    group.add_argument(
        "--out",
        type=Path,
        default=data.BENCH / "results",
        help="folder for results (default: .bench/results)",
    )
    group.add_argument(
        "--record",
        action="store_const",
        dest="out",
        const=RECORDED,
        help="put the results into benchmarks/results, which the tables in the docs show",
    )


def save(out: Path, name: str, settings: dict[str, Any], tables: dict[str, Any]) -> Path:
    """Write one benchmark's results with the machine and the settings; return the file."""
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"{name}.json"
    results = {"name": name, "machine": machine(), "settings": settings, "tables": tables}
    path.write_text(json.dumps(results, indent=1) + "\n")
    return path


def size_settings(arguments: argparse.Namespace) -> dict[str, Any]:
    """Say what was measured, for the results file."""
    made = {} if arguments.data else asdict(data.SIZES[arguments.size])
    return {"rounds": arguments.rounds, "size": arguments.size, **made}
