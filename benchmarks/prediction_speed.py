"""Measures the speed of predictions in process: for single layers, models of search spaces, and one model.

    costmodel import data/amd-epyc-zen5-2c-ort1.31-1t-training.parquet
    costmodel train --system amd-epyc-zen5-2c-ort1.31-1t
    python benchmarks/prediction_speed.py amd-epyc-zen5-2c-ort1.31-1t [--regressor gnn]

Each query is timed several times with a fresh cost model, and the fastest time of each kind counts:

* cold: no layer is in the cost model's caches. Single layers are given as text, as from a program that generates them.
* new surroundings, new models: the layers are in the caches, but are queried in other models than before.
* warm: the same query as before, as in a search that comes back to the same layers.

Ratios are relative to the cold query of the same row. The models of search spaces are stored ones, with layers
exchanged for others of the same space, and are given as decompositions. The one model is read and lowered in advance;
only `CostModel.predict` is timed.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random

from costmodel import CostModel, read_model
from costmodel.ir.footprint import Footprint
from costmodel.ir.sequence import LayerSequence
from costmodel.partition.decomposition import Decomposition, Segment
from costmodel.paths import find_home
from costmodel.serving.loaded_regressor import Regression
from costmodel.serving.predictor import Predictor
from costmodel.store.store import Store
from costmodel.training.artefact import load_bundle
from costmodel.training.corpus import corpus_models

MIB = 2.0**20
SPACES = ("nas_bench_201", "mobilenet_v3_space", "elastic_resnet", "elastic_vit", "elastic_bert", "darts_space")
TYPICAL_LAYERS = 50


@dataclass(frozen=True)
class World:
    """The store, the cost model and the layers of the benchmark.

    Attributes:
        store: Store with the measurements.
        loaded: Cost model of which fresh copies are made.
        texts: Measured single layers in canonical form.
    """

    store: Store
    loaded: CostModel
    texts: Sequence[str]

    def fresh(self) -> Predictor:
        """Makes a predictor with empty caches."""
        known = self.loaded.predictor
        assert known.regression is not None
        return Predictor(self.store, known.system, Regression(known.regression.bundle))

    def layers(self) -> dict[str, LayerSequence]:
        """Parses the layers anew, so that they hold no cached attributes."""
        made = (LayerSequence.from_text(text) for text in self.texts)
        return {sequence.signature: sequence for sequence in made}


def best_s(*jobs: Callable[[], object], repeats: int = 1) -> list[float]:
    """Returns the seconds of the fastest of some runs of each job; the jobs take turns."""
    times: list[list[float]] = [[] for _ in jobs]
    for _ in range(repeats):
        for job, taken in zip(jobs, times, strict=True):
            start = time.perf_counter()
            job()
            taken.append(time.perf_counter() - start)
    return [min(taken) for taken in times]


def rates(label: str, layers: int, cold_s: float, **others_s: float) -> None:
    """Prints one row of rates, in layers a second."""
    columns = "".join(
        f"{name.replace('_', ' ')} {layers / s:>9,.0f} (x{cold_s / s:.1f})   " for name, s in others_s.items()
    )
    print(f"{label:<34}{layers:>7} layers   cold {layers / cold_s:>9,.0f}   {columns}", flush=True)


def ask_layers(world: World, repeats: int, *, measured: bool) -> None:
    """Times queries of single layers."""
    found = []
    for _ in range(repeats):
        predictor = world.fresh()
        (cold,) = best_s(lambda predictor=predictor: predictor.costs(world.layers(), measured=measured))
        layers = world.layers()
        (moved,) = best_s(lambda p=predictor, q=layers: p.costs(q, footprint=Footprint(MIB, MIB), measured=measured))
        (warm,) = best_s(lambda p=predictor, q=layers: p.costs(q, measured=measured), repeats=3)
        found.append((cold, moved, warm))
    cold, moved, warm = map(min, zip(*found, strict=True))
    if measured:
        rates("single layers, measured", len(world.texts), cold, warm=warm)
    else:
        rates("single layers, predicted", len(world.texts), cold, new_surroundings=moved, warm=warm)


def drawn(world: World, count: int) -> list[Decomposition]:
    """Draws models of search spaces: stored ones, with layers exchanged for others of the same space."""
    stored = [m for m in world.store.models() if m.family in SPACES and m.granularity == 1]
    sequences = world.store.sequences({segment.signature for model in stored for segment in model.segments})
    pools: dict[tuple[str, str], list[str]] = {}
    for model in stored:
        for segment in model.segments:
            pools.setdefault((model.family, sequences[segment.signature].kind), []).append(segment.signature)
    random = Random(0)
    models = []
    for number in range(count):
        model = random.choice(stored)
        segments = []
        for segment in model.segments:
            pool = pools[model.family, sequences[segment.signature].kind]
            signature = random.choice(pool) if random.random() < 0.5 else segment.signature
            segments.append(Segment(sequences[signature], segment.layers, segment.predecessors))
        models.append(Decomposition(f"{model.family}_{number}", 1, tuple(segments)))
    return models


def ask_spaces(world: World, repeats: int, count: int, *, measured: bool) -> None:
    """Times queries of many models of search spaces, whose layers repeat."""
    models, others = drawn(world, 2 * count)[:count], drawn(world, 2 * count)[count:]
    layers = sum(len(model.segments) for model in models)
    unique = len({signature for model in models for signature in model.unique})
    found = []
    for _ in range(repeats):
        predictor = world.fresh()

        def ask(chosen: Sequence[Decomposition], predictor: Predictor = predictor) -> None:
            bare = [replace(model) for model in chosen]  # copies without the cached attributes of a decomposition
            for model in bare:
                predictor.estimate(model, measured=measured)

        (cold,) = best_s(lambda: ask(models))
        (moved,) = best_s(lambda: ask(others))
        (warm,) = best_s(lambda: ask(models), repeats=3)
        found.append((cold, moved * layers / sum(len(model.segments) for model in others), warm))
    cold, moved, warm = map(min, zip(*found, strict=True))
    source = "measured" if measured else "predicted"
    rates(f"{count} models ({unique} unique), {source}", layers, cold, new_models=moved, warm=warm)


def ask_model(world: World, repeats: int, *, measured: bool) -> None:
    """Times queries of one model of about fifty layers, read and lowered in advance."""
    read = [read_model(model.path) for model in corpus_models("light")]
    sizes = {model.name: len(world.loaded.decompose(model).segments) for model in read}
    model = min(read, key=lambda model: abs(sizes[model.name] - TYPICAL_LAYERS))
    world.loaded.predict(model)
    cold, warm = [], []
    for _ in range(repeats):
        cost_model = CostModel(world.fresh(), world.loaded._runtime, world.loaded._cache)
        (first,) = best_s(lambda asked=cost_model: asked.predict(model, measured=measured))
        (again,) = best_s(lambda asked=cost_model: asked.predict(model, measured=measured), repeats=30)
        cold.append(first)
        warm.append(again)
    source = "what is measured used" if measured else "all predicted"
    print(
        f"{f'{model.name}, {source}':<44}{sizes[model.name]:>4} layers   cold {min(cold) * 1e3:6.2f} ms   "
        f"warm {min(warm) * 1e3:6.2f} ms"
    )


def main() -> None:
    """Prints a row for each kind of query."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("system")
    parser.add_argument("--regressor", default=None, help="name of the trained regressor, if not the champion")
    parser.add_argument("--layers", type=int, default=5000)
    parser.add_argument("--models", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    home = find_home()
    loaded = CostModel.load(given.system)
    store = Store(home.store_url)
    if given.regressor is not None:
        path = sorted((home.bundles / given.system).glob(f"*{given.regressor}"))[-1]
        predictor = replace(loaded.predictor, regression=Regression(load_bundle(path)))
        loaded = CostModel(predictor, loaded._runtime, loaded._cache)
    regression = loaded.predictor.regression
    assert regression is not None
    measured = sorted(store.latencies_us(given.system))
    single = [s for s in store.sequences(measured).values() if len(s.layers) == 1]
    texts = [s.text for s in Random(0).sample(single, min(given.layers, len(single)))]
    world = World(store, loaded, texts)
    print(f"{given.system}, {regression.bundle.name}; layers a second, and ratios to cold")
    for measured_too in (False, True):
        ask_layers(world, given.repeats, measured=measured_too)
        ask_spaces(world, given.repeats, given.models, measured=measured_too)
    for measured_too in (False, True):
        ask_model(world, given.repeats, measured=measured_too)


if __name__ == "__main__":
    main()
