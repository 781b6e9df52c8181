"""The whole of it in a minute: real images, a real server, a model that learns, exact epochs.

    make demo          # or: python examples/demo.py [FOLDER]

Runs the other examples of this folder one after the other, on shards that a web server on this
machine serves. Every figure is computed as it runs; the exit status is 1 where a step fails.
"""

import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from serve import CountingServer

HERE = Path(__file__).resolve().parent
STARTED = time.perf_counter()
LEAST_RISE = 0.5  # of the accuracy: guessing gives 0.1, two epochs 0.9


def step(number: int, title: str) -> None:
    seconds = time.perf_counter() - STARTED
    print(f"\n[{number}/5] {title}   ({seconds:.0f} s)", flush=True)


def program(name: str) -> str:
    """Name a program of this environment as one would type it from here: `.venv/bin/wids`."""
    path = os.path.relpath(Path(sys.executable).parent / name)
    return name if path.startswith("..") else path


def run(script: str, *arguments: str, ranks: int = 0) -> None:
    """Run an example as anyone would, its output shown; stop the demo where it fails."""
    options = ["--standalone", "--nproc-per-node", str(ranks)] if ranks else []
    shown = [program("torchrun" if ranks else "python"), *options, f"examples/{script}", *arguments]
    print("$", *shown, flush=True)
    launcher = ["-m", "torch.distributed.run", *options] if ranks else []
    command = [sys.executable, *launcher, str(HERE / script), *arguments]
    status = subprocess.run(command, check=False).returncode
    if status:
        sys.exit(f"demo: {script} failed with status {status}; its own message stands above")


def train(train_url: str, test_url: str) -> None:
    """Train in this process; stop the demo where the accuracy did not clearly rise."""
    from train import train as train_network

    shares = []
    for epoch, (samples, share) in enumerate(train_network(train_url, test_url)):
        shares.append(share)
        bar = "#" * round(40 * share)
        seen = f"epoch {epoch}, {samples:,} samples:" if epoch else "untrained:"
        print(f"  {seen:<23} accuracy {share:6.1%} |{bar:<40}|", flush=True)
    if shares[-1] < shares[0] + LEAST_RISE:
        sys.exit(
            f"demo: the accuracy rose from {shares[0]:.1%} to {shares[-1]:.1%} only, expected "
            f"{LEAST_RISE:.0%} more: the network did not learn from these samples"
        )


def main(folder: Path) -> None:
    os.environ["WIDS_CACHE"] = str(folder / "cache")
    os.environ["OMP_NUM_THREADS"] = "1"  # two ranks on two cores; torchrun would warn otherwise
    data = folder / "digits"

    step(1, "Write real handwritten digits as tar shards, and the JSON specs that name them")
    run("make_dataset.py", str(data))

    server = CountingServer(data)
    train_url, test_url = server.url("train.json"), server.url("test.json")
    step(2, f"Serve {data} at {server.url('')}, and read samples by index from there")
    run("quickstart.py", train_url)
    run("browse_by_index.py", train_url, "1237", "-1")

    step(3, "Train a small network: DataLoader, 2 workers, shards in a new order each epoch")
    train(train_url, test_url)

    step(4, "Train on 2 ranks under torchrun: DistributedShardSampler, every epoch exact")
    run("train_ddp.py", train_url, test_url, ranks=2)
    check_requests(server.requests)
    step(5, "Done. What to try next")
    print(next_steps(data))


def check_requests(requests: Counter[str]) -> None:
    """Say how often each shard was fetched; more than once means that the cache failed."""
    shards = {name: count for name, count in requests.items() if name.endswith(".tar")}
    if max(shards.values()) > 1:
        sys.exit(f"demo: expected each shard to be fetched once, the server saw {shards}")
    print(f"  All of this fetched each of the {len(shards)} shards from the server once.")


def next_steps(data: Path) -> str:
    """Name commands that work as they stand, on what the demo left behind."""
    python, wids = program("python"), program("wids")
    commands = {
        "look at any sample": f"{python} examples/browse_by_index.py {data}/train.json 42",
        "what a spec holds": f"{wids} info {data}/train.json",
        "train on the files themselves": f"{python} examples/train.py {data}/train.json "
        f"{data}/test.json",
        "a spec for your own tar files": f"{wids} create YOUR/SHARDS/*.tar -o mine.json",
    }
    lines = [f"  # {what}\n  {command}" for what, command in commands.items()]
    return "\n".join([*lines, "  README.md and docs/index.md say the rest."])


def empty_folder(arguments: list[str]) -> Path:
    """Choose where to work: a folder given, if it is empty, else a new `.demo`."""
    if not arguments:
        shutil.rmtree(".demo", ignore_errors=True)
        return Path(".demo")
    folder = Path(arguments[0])
    if folder.is_dir() and any(folder.iterdir()):
        sys.exit(f"demo: {folder} holds files already; name an empty or a new folder")
    return folder


if __name__ == "__main__":
    main(empty_folder(sys.argv[1:]))
