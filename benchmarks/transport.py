"""Judges a regressor on a later session than those whose measurements it was trained on.

    python benchmarks/transport.py SYSTEM --first sqlite:///first.db --second sqlite:///second.db [--learner NAME]

Lineages are held out as in `costmodel evaluate`, and everything that is learnt comes from the first store: the costs of
layers, and the whole models to which the context correction is fitted. The table has the errors against the latencies
of the same whole models in the first store and in the second, and what the machine itself repeats: the error of the
first store's latencies as predictions of the second's. The last line is transport, the error of the regressor in the
later session over that of the machine.
"""

import argparse

import numpy as np

from costmodel.store.store import Store
from costmodel.training.dataset import Dataset, load_dataset
from costmodel.training.evaluation.held_out import errors_of, predict_held_out
from costmodel.training.evaluation.splits import leave_families_out
from costmodel.training.lineages import by_lineage
from costmodel.training.regressors.registry import LEARNERS


def line(name: str, predicted_us: np.ndarray, measured_us: np.ndarray, lineages: list[str]) -> float:
    """Prints a row of the table and returns the mean absolute relative error."""
    errors = errors_of(predicted_us, measured_us, lineages)
    bias = float(np.exp(np.log(predicted_us / measured_us).mean()))
    assert errors.mape is not None
    print(
        f"{name:44s}{len(measured_us):7d}{errors.mape:8.1%}{errors.within_5pct:7.0%}{errors.within_10pct:8.0%}"
        f"{errors.macro_mape:8.1%}{errors.percentile_95:7.1%}{bias:8.3f}"
    )
    return errors.mape


def judged(first: Dataset, later: dict[str, float], learner: str, folds: int, seed: int, jobs: int) -> None:
    """Prints the table."""
    splits = leave_families_out(first, folds, seed)
    run = predict_held_out(first, splits, LEARNERS[learner], seed, jobs=jobs)
    wholes = [first.signatures[model.row] for model in first.models]
    both = [i for i in run.judged_models.tolist() if wholes[i] in later]
    lineages = [first.models[i].family for i in both]
    first_us = np.array([first.models[i].latency_us for i in both])
    later_us = np.array([later[wholes[i]] for i in both])
    unseen_us = run.unseen_us[both]
    sums_us = np.array([run.known_us[i].sum() for i in both])
    print(f"{first.system.name}, {learner}, {folds} groups of lineages held out, seed {seed}")
    print(f"{'':44s}{'models':>7}{'error':>8}{'in 5%':>7}{'in 10%':>8}{'macro':>8}{'p95':>7}{'bias':>8}")
    line("predicted, the first session", unseen_us, first_us, lineages)
    error = line("predicted, the later session", unseen_us, later_us, lineages)
    line("every layer measured, the later session", sums_us, later_us, lineages)
    machine = line("the first session's models, the later session", first_us, later_us, lineages)
    print(f"transport {error / machine:.2f}")


def main() -> None:
    """Reads both stores."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("system")
    parser.add_argument("--first", required=True)
    parser.add_argument("--second", required=True)
    parser.add_argument("--learner", default="ensemble", choices=LEARNERS)
    parser.add_argument("--folds", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
    first = by_lineage(load_dataset(Store(arguments.first), arguments.system))
    later = Store(arguments.second).latencies_us(arguments.system)
    judged(first, later, arguments.learner, arguments.folds, arguments.seed, arguments.jobs)


if __name__ == "__main__":
    main()
