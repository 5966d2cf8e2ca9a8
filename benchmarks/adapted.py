"""Compares what a live `costmodel adapt` expects of its estimates with the truth that `costmodel survey` has measured.

    costmodel adapt --from amd-epyc-zen5-2c-ort1.31-1t --budget 2m
    costmodel survey
    python benchmarks/adapted.py amd-epyc-zen5-2c-ort1.31-1t intel-xeon-emerald-rapids-2c-ort1.31-1t

An estimate is the sum of the layers' costs, measured by `adapt` or transferred from the bases. The truth is the latency
of the whole model in the store of the survey.
"""

import sys

import numpy as np

from costmodel.paths import find_home
from costmodel.store.store import Store
from costmodel.training.adaptation import load_adaptation

LITTLE = 0.3


def main(bases: list[str], new: str) -> None:
    """Prints the expected error, and the error of all models and of those of which little is measured."""
    home = find_home()
    store, truth = Store(home.store_url), Store(home.survey_store_url).latencies_us(new)
    adaptation = load_adaptation(store, bases, store.system(new))
    learnt = adaptation.learn(store.latencies_us(new))
    expected = adaptation.expected(learnt)
    print(f"expected                     {expected.error:6.1%} {expected.within_10pct:5.0%} within 10%")
    off, shares = [], []
    for model in adaptation.dataset.models:
        whole_us = truth.get(adaptation.dataset.signatures[model.row])
        if whole_us is not None:
            costs = learnt.costs_us[model.rows]
            off.append(abs(costs.sum() / whole_us - 1))
            shares.append(costs[learnt.measured[model.rows]].sum() / costs.sum())
    for name, some in (
        ("found", np.array(off)),
        ("found, under 30% measured", np.array(off)[np.array(shares) < LITTLE]),
    ):
        print(f"{name:28} {some.mean():6.1%} {(some <= 0.1).mean():5.0%} within 10%, {len(some)} models")


if __name__ == "__main__":
    match sys.argv[1:]:
        case [*bases, new] if bases:
            main(bases, new)
        case _:
            sys.exit(__doc__)
