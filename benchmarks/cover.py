"""Compares the cheapest cover with the fixed cut, on measurements of `costmodel reproduce`.

    costmodel reproduce dlbricks --corpus dlbricks --threads 1 -G 1-10
    python benchmarks/cover.py SYSTEM [CORPUS]

First table: each model in turn is taken as new. Its single layers count as measured, and so do the sequences of several
layers that other models of the corpus have; whole models do not. Columns for both ways to cut the model: the share of
its layers in sequences that other models have, the number of sequences, the planner's estimate of the seconds that
measuring the missing ones takes, and the error of the constructed latency, computed from all measurements.

Second table: a corpus without measurements, cut at fixed places, or covered in as little time as possible for all
models together. Columns: the number of sequences, the number of unique ones, the seconds of one run of each unique
sequence according to its bound, and the seconds that finding the cover took.
"""

import math
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from costmodel.ir.footprint import weight_bytes
from costmodel.ir.graph import LayerGraph
from costmodel.ir.sequence import LayerSequence
from costmodel.measure.duration import estimated_group_seconds
from costmodel.measure.protocol import Protocol
from costmodel.onnx_io.model import read_model
from costmodel.partition.cover import Price, cheapest_cover, corpus_cover
from costmodel.partition.decomposition import CHEAPEST, FIXED, Decomposition, decompose
from costmodel.partition.granularity import GRANULARITIES
from costmodel.paths import find_home
from costmodel.runtimes.base import get_runtime, lowering_key
from costmodel.runtimes.lowering_cache import lower_cached
from costmodel.serving.covering import run_us
from costmodel.store.store import Store
from costmodel.systems.system import System
from costmodel.training.corpus import corpus_models


@dataclass(frozen=True)
class World:
    """The measurements of a corpus.

    Attributes:
        system: System of the measurements.
        graphs: Graph of layers of each model, by name of the model.
        whole_us: End-to-end latency of each model in microseconds, by name of the model.
        latencies_us: Latency of each sequence in microseconds, by signature.
        owners: Names of the models that have a sequence, by signature.
    """

    system: System
    graphs: Mapping[str, LayerGraph]
    whole_us: Mapping[str, float]
    latencies_us: Mapping[str, float]
    owners: Mapping[str, set[str]]


@dataclass(frozen=True)
class Outcome:
    """The result of cutting one model in one way.

    Attributes:
        shared: Share of the model's layers in measured sequences that other models have.
        sequences: Number of sequences.
        seconds: Estimated seconds that measuring the missing sequences takes.
        ratio: Constructed latency divided by end-to-end latency; None if a sequence was never measured.
    """

    shared: float
    sequences: int
    seconds: float
    ratio: float | None


def load(store: Store, name: str, corpus: str) -> World:
    """Loads the measurements of those models of a corpus that a system has measured end to end."""
    system, runtime, cache = store.system(name), get_runtime(), find_home().cache
    level = system.settings.level
    latencies_us = store.latencies_us(name)
    items = {item.name: item for item in corpus_models(corpus)}
    wholes, owners = {}, defaultdict(set)
    for model in store.models():
        if model.lowering == lowering_key(runtime, level) and model.name in items and model.whole in latencies_us:
            wholes[model.name] = latencies_us[model.whole]
            for segment in model.segments:
                owners[segment.signature].add(model.name)
    graphs = {model: lower_cached(runtime, read_model(items[model].path, name=model), level, cache) for model in wholes}
    return World(system, graphs, wholes, latencies_us, owners)


def price_of(system: System, known: Collection[str] = ()) -> Price:
    """Returns a price function: the time of one run of each sequence that is not measured, 0 for the others."""

    def price(windows: Mapping[str, LayerSequence]) -> dict[str, float]:
        return {s: 0.0 if s in known else run_us(sequence, system) for s, sequence in windows.items()}

    return price


def outcome(world: World, cut: Decomposition, known: Collection[str]) -> Outcome:
    """Evaluates one cut of a model."""
    others = {s for s in cut.unique if s in world.latencies_us and world.owners.get(s, set()) - {cut.model}}
    shared = sum(len(segment.layers) for segment in cut.segments if segment.sequence.signature in others)
    missing = [sequence for signature, sequence in cut.unique.items() if signature not in known]
    latencies_us = [world.latencies_us.get(q.signature, run_us(q, world.system)) for q in missing]
    seconds = estimated_group_seconds(latencies_us, sum(map(weight_bytes, missing)), 0, Protocol()) if missing else 0.0
    ratio = None
    if cut.unique.keys() <= world.latencies_us.keys():
        constructed_us = math.fsum(world.latencies_us[segment.sequence.signature] for segment in cut.segments)
        ratio = constructed_us / world.whole_us[cut.model]
    return Outcome(shared / sum(len(segment.layers) for segment in cut.segments), len(cut.segments), seconds, ratio)


def held_out(world: World, granularity: int) -> dict[str, list[Outcome]]:
    """Evaluates both ways to cut for each model, taken as new; returns the results by way."""
    found: dict[str, list[Outcome]] = {FIXED: [], CHEAPEST: []}
    for model, graph in world.graphs.items():
        known = {s for s, owners in world.owners.items() if owners - {model}} | decompose(model, graph).unique.keys()
        known &= world.latencies_us.keys()
        covers = (
            decompose(model, graph, granularity),
            cheapest_cover(model, graph, granularity, price_of(world.system, known)),
        )
        for cover in covers:
            found[cover.cover].append(outcome(world, cover, known))
    return found


def row_of(found: Sequence[Outcome], comparable: Sequence[bool]) -> str:
    """Formats the means over models; errors are means over the models marked in `comparable`."""
    ratios = np.log([o.ratio for o, used in zip(found, comparable, strict=True) if used and o.ratio is not None])
    errors = ""
    if len(ratios):
        off = abs(ratios)
        errors = f"{np.exp(ratios.mean()):8.3f} {off.mean():7.1%} {np.mean(off <= math.log(1.05)):7.0%}"
    return (
        f"{np.mean([o.shared for o in found]):10.0%} {np.mean([o.sequences for o in found]):10.1f} "
        f"{np.mean([o.seconds for o in found]):8.2f} {errors:24} {len(ratios):7}"
    )


def timed(job: Callable[[], list[Decomposition]]) -> tuple[list[Decomposition], float]:
    """Runs a job; returns its result and the seconds that it took."""
    begin = time.perf_counter()
    return job(), time.perf_counter() - begin


def print_corpus(world: World, granularity: int) -> None:
    """Prints the rows of the second table at one granularity."""
    price = price_of(world.system)
    jobs: dict[str, Callable[[], list[Decomposition]]] = {
        FIXED: lambda: [decompose(model, graph, granularity) for model, graph in world.graphs.items()],
        CHEAPEST: lambda: corpus_cover(world.graphs, granularity, price),
    }
    for way, job in jobs.items():
        cuts, took_s = timed(job)
        unique = {signature: sequence for cut in cuts for signature, sequence in cut.unique.items()}
        seconds = math.fsum(price(unique).values()) / 1e6
        total = sum(len(cut.segments) for cut in cuts)
        print(f"{granularity:3} {way:9} {total:10} {len(unique):10} {seconds:8.2f} {took_s:8.1f}")


def main(system: str, corpus: str = "dlbricks") -> None:
    """Prints both tables."""
    world = load(Store(find_home().store_url, create=False), system, corpus)
    if not world.graphs:
        raise SystemExit(f"{system} has measured no model of {corpus} end to end")
    print(f"{system}, {corpus}: {len(world.graphs)} models, each in turn taken as new\n")
    errors = f"{'geomean':>8} {'error':>7} {'in 5%':>7} {'models':>7}"
    print(f"{'G':>3} {'cover':9} {'of others':>10} {'sequences':>10} {'seconds':>8} {errors}")
    for granularity in GRANULARITIES:
        found = held_out(world, granularity)
        comparable = [all(o.ratio is not None for o in both) for both in zip(*found.values(), strict=True)]
        for way, outcomes in found.items():
            print(f"{granularity:3} {way:9} {row_of(outcomes, comparable)}")
    print("\nnothing measured, all models together\n")
    print(f"{'G':>3} {'cover':9} {'sequences':>10} {'different':>10} {'seconds':>8} {'took':>8}")
    for granularity in GRANULARITIES:
        print_corpus(world, granularity)


if __name__ == "__main__":
    main(*sys.argv[1:])
