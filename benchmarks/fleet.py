"""Measures what a fleet costs besides measuring, and whether it loses anything when machines are killed.

    python -m benchmarks.fleet [--layers 10000] [--of-model 100] [--machines 4] [--kills 20]

A scheduler and machines run as processes on this host, with simulated costs: what is left of the time is overhead. The
first run has no kills. Three figures of it count, each for one layer: the duration of the run; the processor time of
all processes; and the same for a benchmark session in one process without a cluster, which simulates the same runs.
The second run kills a machine again and again (SIGKILL to its process group) and starts it anew, and then counts the
layers that the store lacks and those that were measured twice.
"""

import argparse
import random
import resource
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from costmodel.cluster import Cluster
from costmodel.jobs.fleet.bench import measure_on_cluster
from costmodel.jobs.fleet.dispatcher import Lowering
from costmodel.jobs.session_store import BatchStore
from costmodel.measure.groups import Group
from costmodel.store.store import Store
from tests.fakes import FakeRuntime, elementwise, fake_sessions, fake_system
from tests.fleet import Fleet, cluster

SYSTEM = "simulated"


def groups_of(layers: int, of_model: int) -> list[Group]:
    """Returns the layers in models that have none in common."""
    every = [elementwise(1, size) for size in range(1, layers + 1)]
    return [
        Group(f"model {start // of_model}", tuple(every[start : start + of_model]), footprint_bytes=1 << 20)
        for start in range(0, layers, of_model)
    ]


def run_fleet(folder: Path, groups: Sequence[Group], machines: int, kills: int) -> tuple[Store, float, int]:
    """Measures groups on a fleet in a new folder; returns the store, the duration in seconds, the number of kills."""
    folder.mkdir()
    store = Store(f"sqlite:///{folder / 'store.db'}")
    with cluster(folder) as fleet:
        names = [f"m{number}" for number in range(machines)]
        for name in names:
            fleet.start(name, SYSTEM)
        for name in names:
            fleet.joined(name)
        done = threading.Event()
        killed = [0]
        killer = threading.Thread(target=_kill, args=(fleet, store, names, kills, killed, done))
        started_s = time.perf_counter()
        killer.start()
        with Cluster.connect(fleet.address) as connected:
            measure_on_cluster(store, connected, [SYSTEM], Lowering("fake", "1.0"), groups)
        seconds = time.perf_counter() - started_s
        done.set()
        killer.join()
    return store, seconds, killed[0]


def _kill(fleet: Fleet, store: Store, names: list[str], kills: int, killed: list[int], done: threading.Event) -> None:
    """Kills a machine after each share of the measurements, and starts it again."""
    chance = random.Random(2026)
    while killed[0] < kills and not done.wait(0.05):
        total, *_ = store.count_and_last_measurement(SYSTEM)
        # Evenly over the first four fifths of the run, so that the last one still meets work.
        if total >= LAYERS * 0.8 * (killed[0] + 1) / (kills + 1):
            name = chance.choice(names)
            fleet.kill(name)
            fleet.start(name, SYSTEM)
            killed[0] += 1


def cpu_s() -> float:
    """Returns the processor time of this process and of its children that have ended, in seconds."""
    usages = (resource.getrusage(of) for of in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--layers", type=int, default=10_000)
parser.add_argument("--of-model", type=int, default=100)
parser.add_argument("--machines", type=int, default=4)
parser.add_argument("--kills", type=int, default=20)
options = parser.parse_args()
LAYERS = options.layers
groups = groups_of(LAYERS, options.of_model)

with tempfile.TemporaryDirectory() as root:
    begin_s, begin_cpu_s = time.perf_counter(), cpu_s()
    with fake_sessions(runtime := FakeRuntime())(BatchStore(), fake_system(runtime=runtime), runtime) as session:
        session.run(groups)
    local_s, local_cpu_s = time.perf_counter() - begin_s, cpu_s() - begin_cpu_s
    print(
        f"one process: {local_s / LAYERS * 1e3:.2f} ms a layer, processor {local_cpu_s / LAYERS * 1e3:.2f} ms",
        flush=True,
    )

    begin_cpu_s = cpu_s()
    _, seconds, _ = run_fleet(Path(root) / "quiet", groups, options.machines, 0)
    used_s = cpu_s() - begin_cpu_s
    print(
        f"{options.machines} machines: {seconds:.1f} s, {seconds / LAYERS * 1e3:.2f} ms a layer, processor "
        f"{used_s / LAYERS * 1e3:.2f} ms, of which overhead {(used_s - local_cpu_s) / LAYERS * 1e3:.2f} ms",
        flush=True,
    )

    store, seconds, count = run_fleet(Path(root) / "killed", groups, options.machines, options.kills)
    counts = Counter(m.signature for m in store.measurements(SYSTEM) if not m.environment.get("common_set"))
    wanted = {sequence.signature for group in groups for sequence in group.sequences}
    twice = sum(number > 1 for number in counts.values())
    print(f"{count} kills: {seconds:.1f} s, {len(wanted - counts.keys())} layers lost, {twice} measured twice")
