"""How fast is training from a bucket by byte range, beside LanceDB on the same server?

Command: `python benchmarks/bucket_training.py --lance PYTHON` (needs Debian's nginx-light and moto;
0.7 GB of disk; the interpreter has lancedb and pylance).

3,000 samples of 100 kB of random bytes: as tars with sidecars for wids, and as a table of Lance
with as many rows in a file as the tars have samples. The server speaks the API of S3, behind a
proxy that adds 20 ms to each round trip: nginx gives objects and ranges of them, and moto the
listings, since moto alone gives 15 ranges a second. Both clients make one pass in batches of 64, in
the same order, each in a fresh process: wids by a `wids.Loader` with two threads, LanceDB by `take`
in as many threads as `--threads` says, since it reads ahead of no loop itself.

webshart is not among them: it reads local folders and huggingface.co, whose address is fixed.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import boto3
import common
import numpy as np
import webserver
from moto.server import ThreadedMotoServer

import wids
from wids.tar.sidecar import SIDECAR_SUFFIX
from wids.tar.tarindex import TarIndex

SHARDS, PER_SHARD, NBYTES, BATCH, ROUND_TRIP_SECONDS = 6, 500, 100_000, 64, 0.02
KEYS = {"aws_access_key_id": "someone", "aws_secret_access_key": "secret"}
PEER = str(Path(__file__).parent / "peers/lancedb040_bucket.py")
WORKER = """
import gc, json, sys, time
import torch, wids
rows, folder = json.loads(sys.argv[1])
dataset = wids.ShardListDataset(
    rows, cache_dir=folder, remote="range", transformations="bytes", memory=256_000_000
)
sampler = wids.DistributedShardSampler(dataset, num_replicas=1, rank=0, interleave=2)
gc.collect()  # what the imports left
wall, cpu = time.perf_counter(), time.process_time()
first, nbytes, count = 0.0, 0, 0
for batch in wids.Loader(dataset, batch_size=64, sampler=sampler, tensors=False, num_workers=2):
    first = first or time.perf_counter() - wall
    count += len(batch["__key__"])
    nbytes += len(batch[".jpg"].values)
seconds = time.perf_counter() - wall
print(json.dumps([count / seconds, first, time.process_time() - cpu, nbytes]))
"""


def make_data(bucket: Path, lance: str) -> None:
    """Write the samples as tars with sidecars, and as a table of Lance."""
    source = np.random.default_rng(0)
    fields = bucket.parent.parent / "fields"
    fields.mkdir()
    with wids.ShardWriter(f"{bucket}/%03d.tar", maxcount=PER_SHARD) as writer:
        for number in range(SHARDS * PER_SHARD):
            data = source.bytes(NBYTES)
            (fields / str(number)).write_bytes(data)
            writer.write({"__key__": f"{number:06d}", ".jpg": data})
    for path in bucket.glob("*.tar"):
        TarIndex.from_tar(path).save(Path(f"{path}{SIDECAR_SUFFIX}"))
    given = {"folder": str(fields), "uri": f"{bucket}/samples.lance", "rows": PER_SHARD}
    subprocess.run([lance, PEER, "make", json.dumps(given)], check=True)
    shutil.rmtree(fields)


def list_by(endpoint: str, bucket: Path) -> None:
    """Tell the server of listings which objects there are; large ones without their bytes."""
    names = {"endpoint_url": endpoint, "region_name": "us-east-1", **KEYS}
    client = boto3.client("s3", **names)
    client.create_bucket(Bucket=bucket.name)
    for path in bucket.rglob("*"):
        if path.is_file():
            body = path.read_bytes() if path.stat().st_size < 1_000_000 else b""
            client.put_object(Bucket=bucket.name, Key=str(path.relative_to(bucket)), Body=body)


def one_pass(command: list[str], endpoint: str, log: Path) -> list[float]:
    """Make one pass; return its figures, and the number of requests."""
    log.write_text("")
    names = {name.upper(): value for name, value in KEYS.items()}
    environment = os.environ | names | {"AWS_ENDPOINT_URL": endpoint, "AWS_REGION": "us-east-1"}
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    rate, first, cpu, nbytes = json.loads(run.stdout.splitlines()[-1])
    if nbytes != SHARDS * PER_SHARD * NBYTES:
        raise RuntimeError(f"{nbytes} bytes were read")
    return [rate, first, cpu, len(log.read_text().splitlines())]


def measure(root: Path, lance: str, listings: str, given: argparse.Namespace) -> list[Any]:
    """Return a row for each client: medians, and the rate beside that of wids in its round."""
    bucket = root / "www/bench"
    paths = sorted(bucket.glob("*.tar"))
    with wids.ShardListDataset([str(path) for path in paths]) as local:
        order = list(wids.DistributedShardSampler(local, 1, 0, interleave=2))
    rows = [[f"s3://bench/{path.name}", PER_SHARD] for path in paths]
    runs: dict[str, list[list[float]]] = {"wids": []}
    runs |= {f"LanceDB, {threads} threads": [] for threads in given.threads}
    with (
        webserver.nginx(root, listings=listings) as url,
        webserver.delayed(url, ROUND_TRIP_SECONDS) as reached,
    ):
        storage = {**KEYS, "aws_endpoint": reached, "allow_http": "true"}
        table = {"uri": "s3://bench/samples.lance", "storage": storage, "order": order}
        for _ in range(given.rounds):
            folder = tempfile.mkdtemp(dir=root)
            command = [sys.executable, "-c", WORKER, json.dumps([rows, folder])]
            runs["wids"].append(one_pass(command, reached, root / "access.log"))
            for threads in given.threads:
                how = json.dumps({**table, "batch": BATCH, "threads": threads})
                command = [lance, PEER, "read", how]
                runs[f"LanceDB, {threads} threads"].append(
                    one_pass(command, reached, root / "access.log")
                )
    return [row(label, mine, runs["wids"]) for label, mine in runs.items()]


def row(label: str, runs: list[list[float]], ours: list[list[float]]) -> dict[str, Any]:
    """Sum up the passes of one client."""
    rate, first, cpu, requests = (statistics.median(each) for each in zip(*runs, strict=True))
    ratio = statistics.median(run[0] / other[0] for run, other in zip(runs, ours, strict=True))
    figure = (
        f"{rate:,.0f} samples/s ({ratio:.2f} of wids), first batch {first:.2f} s, "
        f"{requests:,.0f} requests, client CPU {cpu:.1f} s"
    )
    return {"label": label, "figure": figure, "rate": rate, "ratio": ratio, "cpu": cpu}


def main() -> None:
    """Make the samples, make the passes, and save the results."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--lance", required=True, help="interpreter with lancedb and pylance")
    parser.add_argument("--threads", type=int, nargs="+", default=[4, 16])
    parser.add_argument("--rounds", type=int, default=3)
    common.add_results_options(parser)
    arguments = parser.parse_args()
    common.data.BENCH.mkdir(exist_ok=True)
    root = Path(tempfile.mkdtemp(dir=common.data.BENCH))
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        bucket = root / "www/bench"
        bucket.mkdir(parents=True)
        make_data(bucket, arguments.lance)
        host, port = server.get_host_and_port()
        list_by(f"http://{host}:{port}", bucket)
        rows = measure(root, arguments.lance, f"http://{host}:{port}", arguments)
    finally:
        server.stop()
        shutil.rmtree(root)
    for each in rows:
        print(f"{each['label']} | {each['figure']}")
    settings = {"rounds": arguments.rounds, "round_trip": ROUND_TRIP_SECONDS}
    tables = {"training from a bucket": rows}
    print(common.save(arguments.out, "bucket_training", settings, tables))


if __name__ == "__main__":
    main()
