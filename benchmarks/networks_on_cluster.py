"""Measures how much quicker two workers price networks than one.

    costmodel import data/amd-epyc-zen5-2c-ort1.31-1t-training.parquet
    python -m benchmarks.networks_on_cluster amd-epyc-zen5-2c-ort1.31-1t [--networks 1000000] [--layers 50]

Prices the same random networks of stored layers on a Dask cluster on this host, with one worker and with two, in turn,
and compares the first results with those of one process. The quickest time of each kind counts. The host needs a CPU
for each worker; what else runs on it is printed, because it decides what a second worker can add.
"""

import argparse
import os
import tempfile
import time
from pathlib import Path

import numpy as np

from costmodel import CostModel
from costmodel.serving.networks import price_networks
from costmodel.serving.networks_on_cluster import price_networks_on
from tests.fleet import cluster

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("system")
parser.add_argument("--networks", type=int, default=1_000_000)
parser.add_argument("--layers", type=int, default=50)
parser.add_argument("--blocks", type=int, default=200)
parser.add_argument("--rounds", type=int, default=2)
options = parser.parse_args()

predictor = CostModel.load(options.system).predictor
known = sorted(predictor.store.latencies_us(options.system))[: options.blocks]
blocks = [[layer] for layer in predictor.store.sequences(known).values() if len(layer.layers) == 1]
networks = np.random.default_rng(17).integers(0, len(blocks), (options.networks, options.layers), dtype=np.int16)
print(f"{options.networks:,} networks of {options.layers} layers, {len(blocks)} different ones", flush=True)

with tempfile.TemporaryDirectory() as root, cluster(Path(root)) as fleet:
    times_s: dict[int, list[float]] = {1: [], 2: []}
    for _ in range(options.rounds):
        for count in times_s:
            for number in range(count):
                name = f"{count}-{number}"
                fleet.start_dask_worker(name)
                stream = fleet.machines[name].stderr
                while stream is not None and "Registered to" not in stream.readline():
                    pass
            price_networks_on(fleet.address, predictor, blocks, networks[: 1000 * count])  # loads the modules
            started_s = time.perf_counter()
            found = price_networks_on(fleet.address, predictor, blocks, networks)
            times_s[count].append(time.perf_counter() - started_s)
            print(f"{count} workers: {times_s[count][-1]:.1f} s, load {os.getloadavg()[0]:.1f}", flush=True)
            for name in list(fleet.machines):
                fleet.kill(name)
    here = price_networks(predictor, blocks, networks[:10_000])
    same = np.array_equal(here.latency_us, found.latency_us[:10_000])
    one, two = min(times_s[1]), min(times_s[2])
    print(
        f"1 worker {one:.1f} s, 2 workers {two:.1f} s: {one / two:.2f} times as quick; same as in one process: {same}"
    )
