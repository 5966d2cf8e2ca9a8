"""Tells how much the costs that were measured under one runtime tell of those under another.

    python benchmarks/across_runtimes.py SYSTEM OTHER [--store URL] [--other-store URL] [--learner NAME]

One regressor learns from both systems. Lineages are held out on both at once, and the layers of SYSTEM that are learnt
from are all, some or none of those of the other lineages, drawn at random. Errors are of whole models of SYSTEM with
every layer predicted. Without layers of SYSTEM the regressor has only learnt from OTHER, and knows SYSTEM by the rates
that were measured through it. The context correction always knows the whole models of the other lineages.
"""

from dataclasses import replace

import numpy as np
from two_systems import parsed_arguments

from costmodel.store.store import Store
from costmodel.training.dataset import Dataset, load_dataset
from costmodel.training.evaluation.held_out import errors_of, predict_held_out
from costmodel.training.evaluation.splits import leave_families_out
from costmodel.training.fewer_threads import with_rows_of
from costmodel.training.lineages import by_lineage
from costmodel.training.regressors.registry import LEARNERS

_SHARES = (0.0, 0.03, 0.1, 0.3, 1.0)


def report(dataset: Dataset, learner: str, folds: int, seed: int, *, share: float, borrows: bool) -> str:
    """Returns a line of the table.

    Args:
        dataset: Layers and models of the system, and borrowed rows of the other one.
        learner: Name of the learner.
        folds: Number of groups in which lineages are held out.
        seed: Seed of the groups, of the layers that are drawn, and of the learner.
        share: Share of the system's own layers that are learnt from.
        borrows: Whether the rows of the other system are learnt from.
    """
    drawn = np.random.default_rng(seed).random(len(dataset)) < share
    learnt = np.where(dataset.borrowed, borrows, drawn)
    splits = [
        replace(split, train_rows=split.train_rows & learnt) for split in leave_families_out(dataset, folds, seed)
    ]
    run = predict_held_out(dataset, splits, LEARNERS[learner], seed, jobs=2)
    judged = run.judged_models
    measured = np.array([dataset.models[i].latency_us for i in judged])
    found = errors_of(run.unseen_us[judged], measured, [dataset.models[i].family for i in judged])
    own = (learnt & ~dataset.borrowed & ~dataset.whole).sum()
    return (
        f"{own:10d}{'yes' if borrows else 'no':>8}{found.mape or 0:9.1%}{found.within_10pct or 0:10.0%}"
        f"{found.macro_mape or 0:10.1%}{found.percentile_95 or 0:8.1%}{found.kendall_tau or 0:7.2f}"
    )


def main() -> None:
    """Reads the stores and prints the table."""
    given = parsed_arguments(__doc__, learner="lightgbm")
    own = load_dataset(Store(given.store, create=False), given.system)
    other = load_dataset(Store(given.other_store, create=False), given.other)
    dataset = by_lineage(with_rows_of(own, [other]))
    print(f"{given.system}, {len(dataset.models)} models; the other system is {given.other}")
    print("own layers   other    error   in 10%     macro     p95    tau")
    for share in _SHARES:
        for borrows in (True, False):
            if share or borrows:
                print(report(dataset, given.learner, given.folds, given.seed, share=share, borrows=borrows), flush=True)


if __name__ == "__main__":
    main()
