"""A spec and new shards made by a Ray cluster of two workers are those that one process makes.

Run by `tools/test_frameworks.sh ray`, in an environment with Ray.
"""

import tempfile
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

import numpy as np
import ray

import wids
from wids.specs.build import build_spec
from wids.tools.reshard import reshard


@ray.remote
def _call(function: Any, *args: Any, **kwargs: Any) -> Any:
    return function(*args, **kwargs)


class RayExecutor(Executor):
    """Ray's tasks as `concurrent.futures` has them."""

    def submit(self, function: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        return _call.remote(function, *args, **kwargs).future()


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def main() -> None:
    ray.init(num_cpus=2, include_dashboard=False, logging_level="ERROR")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with wids.ShardWriter(folder / "x-%d.tar", maxcount=10) as writer:
            for number in range(45):
                writer.write({"__key__": f"{number:03}", "txt": str(number)})
        shards = sorted(map(str, folder.glob("x-*.tar")))
        missing = str(folder / "missing.tar")
        built = build_spec([*shards, missing], folder=folder, executor=RayExecutor())
        alone = build_spec([*shards, missing], folder=folder, workers=1)
        # The error has Ray's words around it, so the specs are compared that lack the shard.
        assert built.readable.to_json() == alone.readable.to_json()
        assert list(built.failures) == [missing]
        with wids.ShardListDataset(shards) as dataset:
            order = np.arange(len(dataset))[::-1].copy()
            reshard(dataset, order, folder / "ray/y-%d.tar", maxcount=7, executor=RayExecutor())
            reshard(dataset, order, folder / "one/y-%d.tar", maxcount=7, workers=1)
        assert contents(folder / "ray") == contents(folder / "one")
    ray.shutdown()
    print(f"ray {ray.__version__}: {len(shards)} shards indexed and resharded as by one process")


if __name__ == "__main__":
    main()
