"""Tells which of two runtimes is faster for each model, with nothing of the model measured.

    python benchmarks/which_runtime.py SYSTEM OTHER [--store URL] [--other-store URL] [--learner NAME]

Models that are measured whole on both systems are predicted on each by a regressor that was trained without their
lineage, and also by the sum of their measured layers. The table says for how many models the answer is the right one:
over all of them, and over those that differ by more than 10%. `always` is the share of models for which the system that
is faster more often is the faster one.
"""

import numpy as np
from two_systems import parsed_arguments

from costmodel.store.store import Store
from costmodel.training.dataset import load_dataset
from costmodel.training.evaluation.held_out import predict_held_out
from costmodel.training.evaluation.splits import leave_families_out
from costmodel.training.lineages import by_lineage
from costmodel.training.regressors.registry import LEARNERS

_DIFFERENT = np.log(1.1)

# Latency of a model in microseconds: measured, predicted, and as the sum of its measured layers.
Latencies = tuple[float, float, float]


def latencies(url: str, system: str, learner: str, folds: int, seed: int) -> dict[str, Latencies]:
    """Returns the latencies of the models of a system, by name, predicted while their lineage was held out."""
    dataset = by_lineage(load_dataset(Store(url, create=False), system))
    run = predict_held_out(dataset, leave_families_out(dataset, folds, seed), LEARNERS[learner], seed, jobs=2)
    return {
        dataset.models[i].name.rpartition("/")[2]: (
            dataset.models[i].latency_us, float(run.unseen_us[i]), float(run.known_us[i].sum()),
        )
        for i in run.judged_models.tolist()
    }  # fmt: skip


def main() -> None:
    """Reads the stores and prints the table."""
    given = parsed_arguments(__doc__, learner="ensemble")
    one = latencies(given.store, given.system, given.learner, given.folds, given.seed)
    other = latencies(given.other_store, given.other, given.learner, given.folds, given.seed)
    names = sorted(one.keys() & other.keys())
    measured, predicted, summed = (np.log([other[n][kind] / one[n][kind] for n in names]) for kind in range(3))
    print(f"{given.system} against {given.other}: {len(names)} models, {given.folds} groups of lineages held out")
    print(f"the second takes {np.exp(measured.mean()):.2f} times as long in geometric mean")
    print(f"{'models':16}{'number':>8}{'predicted':>11}{'summed':>8}{'always':>8}")
    for label, chosen in (("all", np.ones(len(names), bool)), ("differ by 10%", np.abs(measured) > _DIFFERENT)):
        right = [float((np.sign(guess) == np.sign(measured))[chosen].mean()) for guess in (predicted, summed)]
        slower = float((measured > 0)[chosen].mean())
        print(f"{label:16}{chosen.sum():8d}{right[0]:11.1%}{right[1]:8.1%}{max(slower, 1 - slower):8.1%}")
    for name, truth, guess in sorted(zip(names, measured, predicted, strict=True), key=lambda row: row[1]):
        if np.sign(truth) != np.sign(guess) and abs(truth) > _DIFFERENT:
            print(f"  wrong: {name:32} measured {np.exp(truth):.2f}, predicted {np.exp(guess):.2f}")


if __name__ == "__main__":
    main()
