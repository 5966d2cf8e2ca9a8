"""Shows which error follows if the quickest layers of each model are predicted from another system, not measured.

    python benchmarks/partly_predicted.py CORPUS SYSTEM.parquet BASE.parquet [MODELS]

The two files hold the costs of the corpus's layers on a system and on a base system. In each model the layers that took
least on the base system are predicted, until they hold the share of its time that a row names. A prediction is the cost
on the base system times the median ratio, over the measured layers with the same operator, of the cost on this system
to that on the base system. The error is that of the sum of a model compared with the sum of its measured layers. Models
of which a layer is not measured are left out.
"""

import sys
from collections import defaultdict
from collections.abc import Mapping, Set
from pathlib import Path

import numpy as np

from costmodel.ir.sequence import LayerSequence
from costmodel.jobs.decomposed_models import DecomposedModel, decompose_models
from costmodel.paths import find_home
from costmodel.runtimes.base import get_runtime
from costmodel.store.parquet import read_results
from costmodel.training.corpus import corpus_models

SHARES = (0.0, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5)


def to_predict(item: DecomposedModel, base_us: Mapping[str, float], share: float) -> set[str]:
    """Returns the layers of a model that take least on the base system and together at most a share of its time."""
    time_us: dict[str, float] = defaultdict(float)
    for segment in item.decomposition.segments:
        time_us[segment.sequence.signature] += base_us.get(segment.sequence.signature, np.nan)
    left_us, chosen = share * sum(us for us in time_us.values() if np.isfinite(us)), set()
    for signature in sorted(time_us, key=lambda s: time_us[s]):
        left_us -= time_us[signature]
        if not left_us >= 0:  # also where the base system has no cost
            break
        chosen.add(signature)
    return chosen


def with_predictions(
    cost_us: Mapping[str, float], base_us: Mapping[str, float], unique: Mapping[str, LayerSequence], predicted: Set[str]
) -> dict[str, float]:
    """Returns the costs of all layers, of which some are predicted from the others."""
    ratios = defaultdict(list)
    for signature in unique.keys() - predicted:
        if signature in base_us:
            ratios[unique[signature].kind].append(cost_us[signature] / base_us[signature])
    every = float(np.median([ratio for found in ratios.values() for ratio in found]))
    of_kind = {kind: float(np.median(found)) for kind, found in ratios.items()}
    guesses = {s: base_us[s] * of_kind.get(unique[s].kind, every) for s in predicted}
    return {s: guesses.get(s, cost_us[s]) for s in unique}


def costs_of(path: str) -> dict[str, float]:
    """Returns the cost of each layer in a file of results in microseconds, the median of its measurements."""
    found = defaultdict(list)
    for measurement in read_results(Path(path)).measurements:
        found[measurement.signature].append(measurement.latency_us)
    return {signature: float(np.median(us)) for signature, us in found.items()}


def main(corpus: str, system: str, base: str, most: str = "1000") -> None:
    """Prints the table."""
    cost_us, base_us = costs_of(system), costs_of(base)
    items = decompose_models(corpus_models(corpus)[: int(most)], get_runtime(), "all", find_home().cache)
    unique = {s: q for item in items for s, q in item.decomposition.unique.items() if s in cost_us}
    items = [item for item in items if item.decomposition.unique.keys() <= unique.keys()]
    unique = {s: q for item in items for s, q in item.decomposition.unique.items()}
    known = len(unique.keys() & base_us.keys())
    print(f"{Path(system).stem} from {Path(base).stem}: {len(items)} models, {len(unique)} layers, {known} known there")
    print(f"{'share':>6}{'predicted':>11}{'measured':>10}{'error':>8}{'worst':>8}{'sum':>8}")
    for share in SHARES:
        chosen = [to_predict(item, base_us, share) for item in items]
        # A layer that another model needs measured is not predicted.
        needed = {s for item, few in zip(items, chosen, strict=True) for s in item.decomposition.unique.keys() - few}
        predicted = unique.keys() - needed
        costs = with_predictions(cost_us, base_us, unique, predicted)
        sums = [
            [sum(of[s.sequence.signature] for s in item.decomposition.segments) for of in (costs, cost_us)]
            for item in items
        ]
        ratios = np.array([found / true for found, true in sums])
        errors, mean = np.abs(ratios - 1), np.exp(np.log(ratios).mean())
        measured = len(unique) - len(predicted)
        print(
            f"{share:6.0%}{len(predicted):11}{measured:10}{np.sqrt(np.mean(errors**2)):8.2%}{errors.max():8.2%}{mean:8.3f}"
        )
    print("error: root mean square over models; sum: geometric mean of predicted over measured")


if __name__ == "__main__":
    main(*sys.argv[1:])
