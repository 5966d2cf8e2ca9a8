"""Is one predictor better than another, or was it lucky? A comparison with the variance accounted for.

Follows Bouthillier et al., "Accounting for Variance in Machine Learning Benchmarks" (MLSys 2021): each run draws anew
all that the result depends on, the families that are held out and the seed of the predictor; both predictors see the
same draw; and what is reported is the probability that one is better than the other, with an interval.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from costmodel.errors import MissingExtraError, TrainingError
from costmodel.training.dataset import Dataset
from costmodel.training.held_out import METRICS, accuracy, held_out
from costmodel.training.regressors import REGRESSORS, Regressor
from costmodel.training.splits import LEAST_FAMILIES, inner_splits, leave_share_out

try:
    from joblib import Parallel, delayed
except ModuleNotFoundError as error:
    raise MissingExtraError("comparing", "train") from error

__all__ = ["ADVISED_RUNS", "METRIC_NAMES", "Comparison", "compare"]

METRIC_NAMES = tuple(f"{part}.{key}" for part, keys in METRICS.items() for key in keys)
# What the paper advises: a probability from which a difference matters, and the runs that show such a one nineteen
# times in twenty (Noether, 1987).
MEANINGFUL = 0.75
ADVISED_RUNS = 29
HELD_OUT_SHARE = 0.2
_RESAMPLES = 10_000
# Groups of the other families, to learn from what layers cost in a model.
_INNER_FOLDS = 2


@dataclass(frozen=True)
class Comparison:
    """What paired runs say of two predictors.

    Attributes:
        system: Whose measurements they were trained and judged on.
        first: Name of one predictor.
        second: Of the other.
        metric: What was compared, as in `METRIC_NAMES`.
        held_out_share: Of the families, in each run.
        seeds: Of the runs that had something to judge.
        scores: Metric of both in each run, as a fraction.
        better: Probability that the first is better than the second; a tie is half a win.
        better_interval: Of that probability.
        difference: Mean of the first's metric minus the second's.
        difference_interval: Of that mean.
        level: Of the intervals.
        worth: The smallest difference worth having.
        meaningful_from: Probability of being better from which a difference is called meaningful.
    """

    system: str
    first: str
    second: str
    metric: str
    held_out_share: float
    seeds: tuple[int, ...]
    scores: tuple[tuple[float, float], ...]
    better: float
    better_interval: tuple[float, float]
    difference: float
    difference_interval: tuple[float, float]
    level: float
    worth: float
    meaningful_from: float = MEANINGFUL

    @classmethod
    def of(
        cls,
        system: str,
        names: tuple[str, str],
        metric: str,
        scores: Mapping[int, tuple[float, float]],
        *,
        worth: float = 0.005,
        level: float = 0.95,
    ) -> "Comparison":
        """From the scores of both predictors in each run, by its seed; intervals by percentile bootstrap over runs."""
        pairs = np.array(list(scores.values()))
        differences = pairs[:, 0] - pairs[:, 1]
        wins = (np.sign(differences) * (-1 if _is_error(metric) else 1) + 1) / 2
        drawn = np.random.default_rng(0).integers(len(pairs), size=(_RESAMPLES, len(pairs)))
        tails = ((1 - level) / 2, (1 + level) / 2)
        low, high = np.quantile(wins[drawn].mean(axis=1), tails).tolist()
        least, most = np.quantile(differences[drawn].mean(axis=1), tails).tolist()
        return cls(
            system=system,
            first=names[0],
            second=names[1],
            metric=metric,
            held_out_share=HELD_OUT_SHARE,
            seeds=tuple(scores),
            scores=tuple(scores.values()),
            better=float(wins.mean()),
            better_interval=(low, high),
            difference=float(differences.mean()),
            difference_interval=(least, most),
            level=level,
            worth=worth,
        )

    @property
    def winner(self) -> str | None:
        """The predictor that is significantly better: the interval lies beyond one half; None if neither is."""
        low, high = self.better_interval
        return self.first if low > 0.5 else self.second if high < 0.5 else None

    @property
    def meaningful(self) -> bool:
        """Whether the winner is better often enough to matter."""
        chance = self.better if self.winner == self.first else 1 - self.better
        return self.winner is not None and chance > self.meaningful_from

    @property
    def worth_having(self) -> bool:
        """Whether the mean difference is at least what is worth having."""
        return abs(self.difference) >= self.worth

    @property
    def conclusion(self) -> str:
        """One sentence: which is better, how often, by how much, and whether that matters."""
        winner = self.winner
        chance, (low, high) = self.better, self.better_interval
        if winner is None:
            few = "" if len(self.seeds) >= ADVISED_RUNS else f"; {ADVISED_RUNS} runs would show one that matters"
            return (
                f"no difference is shown: {self.first} is better than {self.second} with a probability of {chance:.0%} "
                f"({self.level:.0%} interval {low:.0%} to {high:.0%}), which may be chance{few}"
            )
        loser = self.second if winner == self.first else self.first
        if winner == self.second:
            chance, low, high = 1 - chance, 1 - high, 1 - low
        said = (
            f"{winner} is better than {loser} with a probability of {chance:.0%} "
            f"({self.level:.0%} interval {low:.0%} to {high:.0%}), by {_size(self.metric, abs(self.difference))}"
        )
        if not self.meaningful:
            return f"{said}: no chance, but too seldom to matter, {self.meaningful_from:.0%} being asked for"
        if not self.worth_having:
            return f"{said}: reliably, but by less than the {_size(self.metric, self.worth)} worth having"
        return f"{said}: take {winner}"

    def to_dict(self) -> dict[str, Any]:
        """The document that `costmodel compare --json` prints."""
        scores = np.array(self.scores)
        return {
            "system": self.system,
            "metric": self.metric,
            "held_out_share": self.held_out_share,
            "predictors": {
                name: {"mean": float(scores[:, i].mean()), "runs": scores[:, i].tolist()}
                for i, name in enumerate((self.first, self.second))
            },
            "seeds": list(self.seeds),
            "level": self.level,
            "probability_better": self.better,
            "probability_interval": list(self.better_interval),
            "difference": self.difference,
            "difference_interval": list(self.difference_interval),
            "worth": self.worth,
            "meaningful_from": self.meaningful_from,
            "winner": self.winner,
            "meaningful": self.meaningful,
            "worth_having": self.worth_having,
            "conclusion": self.conclusion,
        }


def compare(
    dataset: Dataset,
    first: str,
    second: str,
    *,
    runs: int = 10,
    metric: str = "model_unseen.mape",
    worth: float = 0.005,
    level: float = 0.95,
    predictors: Mapping[str, Callable[[int], Regressor]] = REGRESSORS,
    jobs: int = 1,
    progress: Callable[[int, int, str], None] | None = None,
) -> Comparison:
    """Train and judge two predictors in paired runs.

    A run has one seed: it draws the fifth of the families that is held out, and is given to both predictors for all
    that they leave to chance.

    Args:
        dataset: Measured sequences and models.
        first: Name of a predictor.
        second: Name of another.
        runs: How many.
        metric: One of `METRIC_NAMES`.
        worth: The smallest difference worth having, in the metric's own unit.
        level: Of the intervals.
        predictors: Makers of regressors by name.
        jobs: Predictors trained at once.
        progress: Told (done, total, what is next).

    Raises:
        TrainingError: A predictor or the metric is unknown, both predictors are the same, there are too few families,
            or too few models for the metric.
    """
    for name in (first, second):
        if name not in predictors:
            raise TrainingError(f"there is no predictor {name!r}: choose two of {', '.join(predictors)}")
    if first == second:
        raise TrainingError(f"{first} is no better than itself: choose two of {', '.join(predictors)}")
    if metric not in METRIC_NAMES:
        raise TrainingError(f"there is no metric {metric!r}: choose one of {', '.join(METRIC_NAMES)}")
    part, _, key = metric.partition(".")
    if dataset.whole_only and len(dataset.all_families) < LEAST_FAMILIES:  # as in an evaluation
        dataset = dataset.by_model()
    splits = [leave_share_out(dataset, HELD_OUT_SHARE, seed) for seed in range(runs)]

    def one(seed: int, name: str) -> float | None:
        # Layers alone have no place in a model to learn.
        inner = [] if part == "layer" else inner_splits(dataset, splits[seed], _INNER_FOLDS, seed)
        return accuracy(held_out(dataset, [splits[seed]], predictors[name], seed, besides=inner))[part][key]

    tasks = [(seed, name) for seed in range(runs) for name in (first, second)]
    found: list[float | None] = []
    # Threads, as in an evaluation; the answers come in the order of the tasks.
    for score in Parallel(n_jobs=jobs, prefer="threads", return_as="generator")(delayed(one)(*task) for task in tasks):
        if progress is not None:
            progress(len(found), len(tasks), "")
        found.append(score)
    if progress is not None:
        progress(len(tasks), len(tasks), "")
    scores = {
        seed: (one_score, other)
        for seed, (one_score, other) in enumerate(zip(found[::2], found[1::2], strict=True))
        if one_score is not None and other is not None
    }
    if not scores:
        raise TrainingError(
            f"{dataset.system.name} has too few models that were measured whole for {metric}: benchmark more models, "
            "or compare by layer.mape"
        )
    return Comparison.of(dataset.system.name, (first, second), metric, scores, worth=worth, level=level)


def _is_error(metric: str) -> bool:
    """Whether less of the metric is better."""
    return metric.endswith("mape")


def _size(metric: str, difference: float) -> str:
    """A difference for a person."""
    return f"{difference:.3f}" if metric.endswith("tau") else f"{100 * difference:.2g} percentage points"
