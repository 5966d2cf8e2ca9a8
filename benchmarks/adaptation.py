"""Compares strategies of adaptation from one or several systems to a new one, replayed on stored measurements.

    costmodel import data/amd-epyc-zen5-2c-ort1.31-1t.parquet     # and the other files of both systems
    python benchmarks/adaptation.py amd-epyc-zen5-2c-ort1.31-1t amd-epyc-zen5-2c-ort1.31-2t

Sequences of the second system are revealed in the order in which `costmodel adapt` would measure them with each
strategy, at the time at which they would be measured (`costmodel.measure.duration`). Families are held out in groups:
sequences that only held-out families have are not measured. Errors of models are relative to their end-to-end latency
on the second system:

    here      models that may be measured, estimated as by the product: measured layers are exact, others transferred
    held      models of held-out families, whose layers are measured on the base
    by ratio  models of `here`, corrected by the base's ratio of whole models to sums of their layers
    new       models of `held`, predicted by a regressor that has no measurements of their layers (with --new-models)
    expected  the error of `here` that `costmodel adapt` expects
"""

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from time import perf_counter

import numpy as np

from costmodel.measure.protocol import Protocol
from costmodel.paths import find_home
from costmodel.store.store import Store
from costmodel.systems.system import System
from costmodel.training.adaptation import Adaptation, AdaptationState, load_adaptation
from costmodel.training.dataset import MeasuredModel
from costmodel.training.evaluation.replay import Chooser, measurable, replayed
from costmodel.training.evaluation.splits import Split, leave_families_out
from costmodel.training.regressors.lightgbm_regressor import LightGBMRegressor
from costmodel.training.suggestion import MeasurementBatch, choose, value_of_measuring

MINUTES = (0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0)
FOLDS = 4
_RANDOM_IN_PORTION = 32
_HEAD = (
    f"{'':<28}{'measured':>9}{'of time':>8} |{'here':>7}{'in 5%':>6}{'in 10%':>7}{'expected':>9} |{'by ratio':>9}"
    f"{'in 10%':>7} |{'held':>7}{'in 5%':>6}{'in 10%':>7} |{'new':>7}{'in 10%':>7}{'seconds':>9}"
)

Values = Callable[[Adaptation, AdaptationState], np.ndarray]


def _uses(adaptation: Adaptation) -> np.ndarray:
    counts = np.zeros(len(adaptation.dataset))
    for usage in adaptation.usages:
        counts[usage.unique] += 1
    return counts


STRATEGIES: Mapping[str, Values | None] = {
    "random": None,
    "most costly": lambda of, learnt: learnt.costs_us * _uses(of),
    "most frequent": lambda of, _: _uses(of),
    "largest share": lambda of, learnt: of.shares(learnt),
    "most uncertain": lambda of, learnt: learnt.spread,
    "share x uncertainty": lambda of, learnt: value_of_measuring(of.shares(learnt), learnt.spread),
}


@dataclass(frozen=True)
class Truth:
    """The measured latencies of the new system, in microseconds.

    Attributes:
        exact_us: Latency by signature, from all laps of the measurements.
        rough_us: Latency by signature, from the first laps only.
        wholes_us: End-to-end latency of each model of the base's data set; nan if unknown.
    """

    exact_us: Mapping[str, float]
    rough_us: Mapping[str, float]
    wholes_us: np.ndarray


def main() -> None:
    """Prints a table with rows for each strategy."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bases", nargs="+", metavar="base")
    parser.add_argument("new")
    parser.add_argument("--passes", type=int, default=0, help="laps over a group; by default as in `costmodel bench`")
    parser.add_argument("--folds", type=int, default=FOLDS)
    parser.add_argument("--only", default="", help="only strategies with this text in their name")
    parser.add_argument("--new-models", action="store_true", help="also train the regressor that would be the champion")
    given = parser.parse_args()
    protocol = Protocol()
    if given.passes:
        protocol = replace(protocol, passes=given.passes, max_passes=given.passes)
    store = Store(find_home().store_url)
    system = store.system(given.new)
    adaptation = load_adaptation(store, given.bases, system, lowering=_lowering(store, given.bases[0], system))
    truth = _truth(store, given.new, adaptation, given.passes)
    adaptation = measurable(adaptation, truth.exact_us)
    splits = leave_families_out(adaptation.dataset, given.folds)
    bases = " + ".join(given.bases)
    print(f"{bases} -> {given.new}: {adaptation.open.sum()} sequences of {len(adaptation.usages)} models")
    print(_HEAD)
    for name, values in STRATEGIES.items():
        if given.only in name:
            runs = [_replayed(adaptation, truth, split, values, protocol, new=given.new_models) for split in splits]
            for minutes, *rows in zip((0.0, *MINUTES), *runs, strict=True):
                print(_row(name, minutes, rows), flush=True)


def _lowering(store: Store, base: str, system: System) -> str:
    """Lowering of the models on a system whose optimisation level differs from the base's; "" if the levels agree."""
    if store.system(base).settings.level == system.settings.level:
        return ""
    known = store.latencies_us(system.name)
    return next(m.lowering for m in store.models() if all(segment.signature in known for segment in m.segments))


def _truth(store: Store, new: str, adaptation: Adaptation, passes: int) -> Truth:
    exact = store.latencies_us(new)
    rough = {}
    for of in store.measurements(new, exact, repeats=False):
        some = (
            replace(of, pass_times_us=of.pass_times_us[:passes], reference_us=of.reference_us[:passes])
            if passes
            else of
        )
        rough[of.signature] = some.latency_us
    dataset = adaptation.dataset
    wholes = [exact.get(dataset.signatures[model.row], np.nan) for model in dataset.models]
    return Truth(exact, rough, np.array(wholes))


def _replayed(
    adaptation: Adaptation, truth: Truth, split: Split, values: Values | None, protocol: Protocol, *, new: bool
) -> list[tuple[float, ...]]:
    """Replays an adaptation; returns a row of results for the start and for each of `MINUTES`."""
    dataset = adaptation.dataset
    held = {dataset.models[i].name for i in split.models}
    here = replace(adaptation, usages=tuple(u for u in adaptation.usages if u.name not in held))
    judged: tuple[list[tuple[MeasuredModel, float]], ...] = ([], [])
    all_measurable = {usage.name for usage in adaptation.usages}
    for model, whole_us in zip(dataset.models, truth.wholes_us, strict=True):
        if model.name in all_measurable and not np.isnan(whole_us):
            judged[model.name in held].append((model, whole_us))
    found: list[tuple[float, ...]] = []
    begin = perf_counter()
    for learnt in replayed(here, truth.rough_us, (0.0, *MINUTES), protocol, _chooser(values, protocol)):
        took_s = perf_counter() - begin
        expected = here.expected(learnt).error
        errors = [np.array([learnt.costs_us[m.rows].sum() / us - 1 for m, us in of]) for of in judged]
        by_ratio = [
            learnt.costs_us[m.rows].sum() * m.latency_us / adaptation.anchors_us[m.rows].sum() / us - 1
            for m, us in judged[0]
        ]
        unseen = _unseen(here, learnt, split, judged[1]) if new else np.full(1, np.nan)
        shares = here.shares(learnt)[learnt.measured].sum()
        found.append((learnt.measured.sum(), shares, *_figures(errors[0]), expected,
                      *_figures(np.array(by_ratio))[::2], *_figures(errors[1]),
                      *_figures(unseen)[::2], took_s))  # fmt: skip
        begin = perf_counter()
    return found


def _chooser(values: Values | None, protocol: Protocol) -> Chooser:
    rng = np.random.default_rng(0)

    def chosen(adaptation: Adaptation, learnt: AdaptationState, left_s: float) -> Sequence[MeasurementBatch]:
        left = adaptation.open & ~learnt.measured
        prices = adaptation.prices(learnt, protocol)
        if values is not None:
            return choose(adaptation.usages, left, values(adaptation, learnt), prices, left_s)
        return list(_random(adaptation, left, prices.seconds, left_s, rng))

    return chosen


def _random(
    adaptation: Adaptation, left: np.ndarray, seconds: Callable[..., float], budget_s: float, rng: np.random.Generator
) -> Iterator[MeasurementBatch]:
    """Yields batches of random sequences of random models."""
    left = left.copy()
    for number in rng.permutation(len(adaptation.usages)):
        usage = adaptation.usages[number]
        rows = rng.permutation(usage.unique[left[usage.unique]])[:_RANDOM_IN_PORTION]
        if len(rows) and budget_s > 0:
            portion = MeasurementBatch(usage, rows, seconds(usage, rows), 0.0)
            budget_s -= portion.seconds
            left[rows] = False
            yield portion


def _unseen(
    adaptation: Adaptation, learnt: AdaptationState, split: Split, judged: Sequence[tuple[MeasuredModel, float]]
) -> np.ndarray:
    """Relative errors of models without any measured layer, by the regressor that would be the champion."""
    dataset = adaptation.adapted(learnt)
    kept = split.train_rows & ~dataset.whole
    regressor = LightGBMRegressor(0).fit(dataset.encoded.take(kept), dataset.latencies_us[kept])
    costs = dataset.encoded.totals(regressor.predict_us(dataset.encoded))
    return np.array([costs[model.rows].sum() / us - 1 for model, us in judged])


def _figures(errors: np.ndarray) -> tuple[float, float, float]:
    off = np.abs(errors)
    return float(off.mean()), float((off <= 0.05).mean()), float((off <= 0.1).mean())


def _row(name: str, minutes: float, rows: Sequence[tuple[float, ...]]) -> str:
    measured, share, *figures, took = np.mean(rows, axis=0)
    here, here5, here10, expected, ratio, ratio10, held, held5, held10, new, new10 = figures
    return (
        f"{name:<19}{minutes:>5.2f} min{measured:>9.0f}{share:>8.0%} |{here:>7.1%}{here5:>6.0%}{here10:>7.0%}"
        f"{expected:>9.1%} |{ratio:>9.1%}{ratio10:>7.0%} |{held:>7.1%}{held5:>6.0%}{held10:>7.0%} |"
        f"{new:>7.1%}{new10:>7.0%}{took:>9.1f}"
    )


if __name__ == "__main__":
    main()
