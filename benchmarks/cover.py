"""The cheapest cover against the fixed cut, on what `costmodel reproduce` has measured.

    costmodel reproduce dlbricks --corpus dlbricks --threads 1 -G 1-10
    python benchmarks/cover.py SYSTEM [CORPUS]

First table: one model at a time is taken as new. Known are its single layers, and the sequences of several layers that
other models of the corpus have; what is measured of whole models is not. For both ways to cut it: the share of its
layers in sequences that others have, how many sequences there are, the seconds that measuring the missing ones would
take as the planner estimates it, and the error of the constructed latency by what is measured, known or not.

Second table: a corpus of which nothing is measured, cut at fixed places, and covered in as little time as possible for
all models together. How many sequences, how many different ones, the seconds that one run of each of these would take
by its bound, and the seconds that this program took to find them.
"""

import math
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from costmodel.cache import lower_cached
from costmodel.cover import Price, cheapest_cover, corpus_cover
from costmodel.decomposition import CHEAPEST, FIXED, Decomposition, decompose
from costmodel.duration import group_s
from costmodel.granularity import GRANULARITIES
from costmodel.graph import LayerGraph
from costmodel.groups import weight_bytes
from costmodel.home import find_home
from costmodel.measurement import Protocol
from costmodel.model import read_model
from costmodel.runtimes import get_runtime, lowering_key
from costmodel.sequence import LayerSequence
from costmodel.serving.covering import run_us
from costmodel.store import Store
from costmodel.systems import System
from costmodel.training.corpus import corpus_models


@dataclass(frozen=True)
class World:
    """What is measured of a corpus.

    Attributes:
        system: Where.
        graphs: Layers of each model, by its name.
        whole_us: End-to-end latency of each of these.
        latencies_us: By signature.
        owners: Models that have a sequence, by its signature.
    """

    system: System
    graphs: Mapping[str, LayerGraph]
    whole_us: Mapping[str, float]
    latencies_us: Mapping[str, float]
    owners: Mapping[str, set[str]]


@dataclass(frozen=True)
class Outcome:
    """One model cut in one way.

    Attributes:
        shared: Share of its layers in measured sequences that other models have.
        sequences: How many.
        seconds: That measuring the missing ones takes.
        ratio: Constructed over end-to-end latency; None where a sequence was never measured.
    """

    shared: float
    sequences: int
    seconds: float
    ratio: float | None


def load(store: Store, name: str, corpus: str) -> World:
    """What a system says of a corpus: of the models that are measured end to end."""
    system, runtime, cache = store.system(name), get_runtime(), find_home().cache
    level = system.settings.level
    latencies_us = store.latencies_us(name)
    items = {item.name: item for item in corpus_models(corpus)}
    wholes, owners = {}, defaultdict(set)
    for model in store.models():
        if model.lowering == lowering_key(runtime, level) and model.name in items and model.whole in latencies_us:
            wholes[model.name] = latencies_us[model.whole]
            for piece in model.pieces:
                owners[piece.signature].add(model.name)
    graphs = {model: lower_cached(runtime, read_model(items[model].path, name=model), level, cache) for model in wholes}
    return World(system, graphs, wholes, latencies_us, owners)


def price_of(system: System, known: Collection[str] = ()) -> Price:
    """One run of each sequence that is not known."""

    def price(windows: Mapping[str, LayerSequence]) -> dict[str, float]:
        return {s: 0.0 if s in known else run_us(sequence, system) for s, sequence in windows.items()}

    return price


def outcome(world: World, cut: Decomposition, known: Collection[str]) -> Outcome:
    """What comes of a model."""
    others = {s for s in cut.unique if s in world.latencies_us and world.owners.get(s, set()) - {cut.model}}
    shared = sum(len(piece.layers) for piece in cut.pieces if piece.sequence.signature in others)
    missing = [sequence for signature, sequence in cut.unique.items() if signature not in known]
    latencies_us = [world.latencies_us.get(q.signature, run_us(q, world.system)) for q in missing]
    seconds = group_s(latencies_us, sum(map(weight_bytes, missing)), 0, Protocol()) if missing else 0.0
    ratio = None
    if cut.unique.keys() <= world.latencies_us.keys():
        constructed_us = math.fsum(world.latencies_us[piece.sequence.signature] for piece in cut.pieces)
        ratio = constructed_us / world.whole_us[cut.model]
    return Outcome(shared / sum(len(piece.layers) for piece in cut.pieces), len(cut.pieces), seconds, ratio)


def held_out(world: World, granularity: int) -> dict[str, list[Outcome]]:
    """Each model in turn taken as new, cut in both ways."""
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
    """Means over models; errors are those of the models that are `comparable`."""
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
    """What a job gives, and the seconds that it took."""
    begin = time.perf_counter()
    return job(), time.perf_counter() - begin


def print_corpus(world: World, granularity: int) -> None:
    """A corpus of which nothing is measured."""
    price = price_of(world.system)
    jobs: dict[str, Callable[[], list[Decomposition]]] = {
        FIXED: lambda: [decompose(model, graph, granularity) for model, graph in world.graphs.items()],
        CHEAPEST: lambda: corpus_cover(world.graphs, granularity, price),
    }
    for way, job in jobs.items():
        cuts, took_s = timed(job)
        unique = {signature: sequence for cut in cuts for signature, sequence in cut.unique.items()}
        seconds = math.fsum(price(unique).values()) / 1e6
        total = sum(len(cut.pieces) for cut in cuts)
        print(f"{granularity:3} {way:9} {total:10} {len(unique):10} {seconds:8.2f} {took_s:8.1f}")


def main(system: str, corpus: str = "dlbricks") -> None:
    """Print both tables."""
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
