"""Compares granularities chosen within a budget with fixed ones, on measurements of `costmodel reproduce`.

    costmodel reproduce dlbricks --corpus dlbricks --threads 1 -G 1-10
    python benchmarks/granularity.py SYSTEM [CORPUS]

Each family of models in turn is taken as new: expected errors, predictions of layers and measured sequences come from
the other families alone. For each model of the family and each budget, auto takes the option that `costmodel bench -G
auto` would take; a fixed granularity is measured if the same estimate of its time fits the budget, and predicted
otherwise. Prints three lines for each budget: the mean of |log(estimate / end to end)| (for a model that is measured as
a whole, the expected error of that measurement), the mean time of the stored runs in seconds (without loading), and the
share of models that are estimated by measurements.
"""

import math
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from costmodel.estimate.accuracy import ConstructionError, construction_error, known_ratios, noise_of
from costmodel.ir.footprint import read_bytes
from costmodel.measure.duration import estimated_group_seconds
from costmodel.measure.groups import evicted_bytes
from costmodel.measure.measurement import Measurement, Protocol, Timing
from costmodel.partition.granularity import GRANULARITIES, GranularityChoice, choose_granularities
from costmodel.paths import find_home
from costmodel.store.store import Store, StoredModel
from costmodel.systems.system import System
from costmodel.training.corpus import corpus_models
from costmodel.training.dataset import Dataset, load_dataset
from costmodel.training.regressors.lightgbm_regressor import LightGBMRegressor

BUDGETS_S = (1, 3, 10, 30, 100, 300)
WHOLE = 0  # stands for the whole model as one sequence


@dataclass(frozen=True)
class World:
    """All measurements of a corpus on a system.

    Attributes:
        system: System of the measurements.
        timings: Timing of each sequence, by signature.
        runs_s: Seconds that the stored runs of a sequence took, by signature.
        weights: Bytes of weights of each sequence, by signature.
        cuts: Cuts by model and granularity: single layers, and the coarser cuts that are measured in full.
        noise: Expected error of each model's end-to-end latency, by name of the model.
    """

    system: System
    timings: Mapping[str, Timing]
    runs_s: Mapping[str, float]
    weights: Mapping[str, int]
    cuts: Mapping[str, Mapping[int, StoredModel]]
    noise: Mapping[str, float]

    @property
    def latencies_us(self) -> dict[str, float]:
        """Latency of each sequence in microseconds, by signature."""
        return {signature: timing.latency_us for signature, timing in self.timings.items()}


@dataclass(frozen=True)
class Outcome:
    """The result of one option for one model: the option as planned, and the actual error and seconds."""

    option: GranularityChoice
    error: float
    seconds: float


def signatures_of(cut: StoredModel) -> list[str]:
    """Returns the signatures of a model's sequences in execution order."""
    return [segment.signature for segment in cut.segments]


def load(store: Store, name: str, corpus: str) -> World:
    """Loads the measurements of a corpus on a system."""
    names = {model.name for model in corpus_models(corpus)}
    measurements: defaultdict[str, list[Measurement]] = defaultdict(list)
    for measurement in store.measurements(name):
        measurements[measurement.signature].append(measurement)
    timings = {signature: Timing.combine([one.timing for one in same]) for signature, same in measurements.items()}
    cuts: dict[str, dict[int, StoredModel]] = {}
    for model in store.models():
        complete = timings.keys() >= {model.whole, *signatures_of(model)}
        if model.name in names and complete and model.granularity in GRANULARITIES:
            cuts.setdefault(model.name, {})[model.granularity] = model
    cuts = {model: of_model for model, of_model in cuts.items() if 1 in of_model}
    used = {s for of_model in cuts.values() for cut in of_model.values() for s in (cut.whole, *signatures_of(cut))}
    return World(
        system=store.system(name),
        timings=timings,
        runs_s={s: float(np.median([sum(m.times_us) for m in measurements[s]])) / 1e6 for s in used},
        weights={s: read_bytes(sequence) for s, sequence in store.sequences(used).items()},
        cuts=cuts,
        noise={model: noise_of(timings[of_model[1].whole]) for model, of_model in cuts.items()},
    )


def priced_us(dataset: Dataset, family: str, known: Mapping[str, float]) -> dict[str, float]:
    """Latency of every sequence of a data set: the known ones, and predictions trained on the other families."""
    used = dataset.without_family(family)
    regressor = LightGBMRegressor(seed=0, threads=2)
    regressor.fit(dataset.features[used], dataset.bounds_us[used], dataset.latencies_us[used])
    predicted = regressor.predict_us(dataset.features, dataset.bounds_us)
    return dict(zip(dataset.signatures, predicted.tolist(), strict=True)) | dict(known)


def seconds_of(world: World, signatures: Iterable[str], latencies_us: Mapping[str, float], footprint: int) -> float:
    """Estimates the seconds that measuring sequences in laps takes, as the planner does."""
    unique = list(dict.fromkeys(signatures))
    loaded = sum(world.weights[signature] for signature in unique)
    swept = evicted_bytes(footprint, loaded, world.system.host)
    return estimated_group_seconds([latencies_us[signature] for signature in unique], loaded, swept, Protocol())


def outcomes(
    world: World,
    model: str,
    known: Mapping[str, float],
    prices_us: Mapping[str, float],
    expected: ConstructionError,
    predicting: float,
) -> dict[int, Outcome]:
    """Evaluates all options for a model that is new; returns the results by granularity, -1 for the prediction.

    Args:
        world: Measurements of the corpus.
        model: Name of the model.
        known: Latencies of the sequences that other families have too, by signature.
        prices_us: Expected latencies of the model's layers, by signature.
        expected: Expected errors of constructed latencies.
        predicting: Expected error of predictions.
    """
    cuts = world.cuts[model]
    layers = cuts[1]
    end_to_end_us = world.timings[layers.whole].latency_us
    each_us = [
        prices_us[segment.signature] / len(segment.layers) for segment in layers.segments for _ in segment.layers
    ]
    footprint = sum(world.weights[signature] for signature in signatures_of(layers))
    found = {}
    for granularity, cut in sorted(cuts.items()):
        signatures, begin = signatures_of(cut), 0
        latencies_us = {}
        for segment in cut.segments:
            latencies_us[segment.signature] = math.fsum(each_us[begin : begin + len(segment.layers)])
            begin += len(segment.layers)
        latencies_us |= {signature: known[signature] for signature in set(signatures) & known.keys()}
        missing = not known.keys() >= set(signatures)
        constructed_us = math.fsum(world.timings[signature].latency_us for signature in signatures)
        found[granularity] = Outcome(
            GranularityChoice(
                granularity,
                expected.by_granularity[granularity],
                seconds_of(world, signatures, latencies_us, footprint) if missing else 0.0,
            ),
            abs(math.log(constructed_us / end_to_end_us)),
            sum(world.runs_s[signature] for signature in set(signatures)) if missing else 0.0,
        )
    whole_s = estimated_group_seconds([math.fsum(each_us)], world.weights[layers.whole], 0, Protocol())
    found[WHOLE] = Outcome(
        GranularityChoice(WHOLE, expected.whole, whole_s), world.noise[model], world.runs_s[layers.whole]
    )
    predicted_us = math.fsum(prices_us[signature] for signature in signatures_of(layers))
    error = abs(math.log(predicted_us / end_to_end_us))
    found[-1] = Outcome(GranularityChoice(-1, predicting, 0.0, measured=False), error, 0.0)
    return found


def held_out(world: World, dataset: Dataset) -> dict[str, dict[int, Outcome]]:
    """Evaluates all options for each model while its family is taken as new."""
    family_of = {model: cuts[1].family for model, cuts in world.cuts.items()}
    latencies_us = world.latencies_us
    known: dict[str, dict[str, float]] = {}
    prices_us: dict[str, dict[str, float]] = {}
    errors: dict[str, float] = {}
    for family in sorted(set(family_of.values())):
        others = [cut for m, cuts in world.cuts.items() if family_of[m] != family for cut in cuts.values()]
        shared = {signature for cut in others for signature in signatures_of(cut)}
        known[family] = {signature: latencies_us[signature] for signature in shared}
        prices_us[family] = priced_us(dataset, family, known[family])
        for model in (m for m in family_of if family_of[m] == family):
            layers = world.cuts[model][1]
            predicted_us = math.fsum(prices_us[family][signature] for signature in signatures_of(layers))
            errors[model] = abs(math.log(predicted_us / latencies_us[layers.whole]))
        print(f"{family} done", file=sys.stderr)
    found = {}
    for model, family in family_of.items():
        others = [m for m in family_of if family_of[m] != family]
        ratios = known_ratios((cut for m in others for cut in world.cuts[m].values()), latencies_us)
        expected = construction_error(ratios, [world.noise[m] for m in others])
        predicting = float(np.mean([errors[m] for m in others]))
        found[model] = outcomes(world, model, known[family], prices_us[family], expected, predicting)
    return found


def taken(of_model: Mapping[int, Outcome], granularity: int | None, budget_s: float) -> Outcome:
    """Chooses the result for a model within a budget: at a fixed granularity if it fits, or at the one auto takes."""
    if granularity is not None:
        fixed = of_model.get(granularity)
        return fixed if fixed is not None and fixed.option.seconds <= budget_s else of_model[-1]
    chosen = choose_granularities({"": [outcome.option for outcome in of_model.values()]}, budget_s)[""]
    assert chosen is not None  # there is always the prediction
    return of_model[chosen.granularity]


def print_table(found: Sequence[Mapping[int, Outcome]]) -> None:
    """Prints three lines for each budget."""
    columns: dict[str, int | None] = {
        "predicted": -1, **{f"G = {g}": g for g in GRANULARITIES}, "whole": WHOLE, "auto": None,
    }  # fmt: skip
    print(f"{'budget':>7} {'':8}" + "".join(f"{name:>11}" for name in columns))
    for budget_s in BUDGETS_S:
        by_column = [[taken(of_model, g, budget_s) for of_model in found] for g in columns.values()]
        for label, cells in (
            ("error", [f"{np.mean([o.error for o in column]):.1%}" for column in by_column]),
            ("seconds", [f"{np.mean([o.seconds for o in column]):.2f}" for column in by_column]),
            ("measured", [f"{np.mean([o.option.measured for o in column]):.0%}" for column in by_column]),
        ):
            shown = f"{budget_s} s" if label == "error" else ""
            print(f"{shown:>7} {label:8}" + "".join(f"{cell:>11}" for cell in cells))
    print("\nwhat auto takes, in models")
    names = [-1, *GRANULARITIES, WHOLE]
    for budget_s in BUDGETS_S:
        chosen = [taken(of_model, None, budget_s).option.granularity for of_model in found]
        print(f"{f'{budget_s} s':>7} {'':8}" + "".join(f"{chosen.count(g):>11}" for g in names))


def main(system: str, corpus: str = "dlbricks") -> None:
    """Prints the table."""
    store = Store(find_home().store_url, create=False)
    world = load(store, system, corpus)
    found = held_out(world, load_dataset(store, system))
    print(f"{system}, {corpus}: {len(found)} models, each family in turn taken as new\n")
    print_table(list(found.values()))


if __name__ == "__main__":
    main(*sys.argv[1:])
