"""Compares two predictors, with the variance between training runs taken into account.

Follows Bouthillier et al., "Accounting for Variance in Machine Learning Benchmarks" (MLSys 2021): each run draws anew
everything that the result depends on, namely the held-out lineages and the seed of the predictors; the two predictors
get the same draw; and the result is the probability that the first is better than the second, with an interval.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any

import numpy as np

from costmodel.errors import MissingExtraError, TrainingError
from costmodel.progress import Progress
from costmodel.training.dataset import Dataset
from costmodel.training.evaluation.held_out import Accuracy, Errors, accuracy, predict_held_out
from costmodel.training.evaluation.results import LayerMetrics, ModelMetrics
from costmodel.training.evaluation.splits import LEAST_FAMILIES, inner_splits, leave_share_out
from costmodel.training.lineages import by_lineage
from costmodel.training.regressors.learner import Regressor
from costmodel.training.regressors.registry import REGRESSORS

try:
    from joblib import Parallel, delayed
except ModuleNotFoundError as error:
    raise MissingExtraError("comparing", "train") from error

__all__ = ["ADVISED_RUNS", "METRIC_NAMES", "Comparison", "compare"]

# Metrics of a report that need no intervals.
METRIC_NAMES = tuple(
    f"{part}.{field.name}"
    for part, metrics in (("layer", LayerMetrics), ("model", ModelMetrics), ("model_unseen", ModelMetrics))
    for field in fields(metrics)
    if field.name in {error.name for error in fields(Errors)}
)
# Advised by the paper: the probability of being better from which a difference matters, and the number of runs that
# detect such a difference nineteen times in twenty (Noether, 1987).
MEANINGFUL = 0.75
ADVISED_RUNS = 29
HELD_OUT_SHARE = 0.2
_RESAMPLES = 10_000
# Number of groups of the other families, from which the context correction is learnt.
_INNER_FOLDS = 2


@dataclass(frozen=True)
class Comparison:
    """The result of comparing two predictors in paired runs.

    Attributes:
        system: System on whose measurements the predictors were trained and judged.
        first: Name of the first predictor.
        second: Name of the second predictor.
        metric: Name of the compared metric, one of `METRIC_NAMES`.
        held_out_share: Share of the families that is held out in each run.
        seeds: Seed of each run in which there was something to judge.
        scores: Metric of the first and of the second predictor in each run, as fractions.
        better: Probability that the first predictor is better than the second; a tie is half a win.
        better_interval: Lower and upper limit of the interval of `better`.
        difference: Mean over the runs of the first predictor's metric minus the second's.
        difference_interval: Lower and upper limit of the interval of `difference`.
        level: Nominal coverage of the two intervals.
        worth: Smallest difference of the metric that is worth having.
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
        """Creates a comparison from the results of runs, with intervals by percentile bootstrap over the runs.

        Args:
            system: Name of the system.
            names: Names of the first and the second predictor.
            metric: Name of the metric.
            scores: Metric of the first and of the second predictor in each run, by the seed of the run.
            worth: Smallest difference of the metric that is worth having.
            level: Nominal coverage of the intervals.
        """
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
        """Name of the significantly better predictor; None if `better_interval` contains one half."""
        low, high = self.better_interval
        return self.first if low > 0.5 else self.second if high < 0.5 else None

    @property
    def meaningful(self) -> bool:
        """Whether one predictor is significantly better, with a probability that exceeds `meaningful_from`."""
        probability = self.better if self.winner == self.first else 1 - self.better
        return self.winner is not None and probability > self.meaningful_from

    @property
    def worth_having(self) -> bool:
        """Whether the size of `difference` is at least `worth`."""
        return abs(self.difference) >= self.worth

    @property
    def conclusion(self) -> str:
        """A sentence that says which predictor is better, how often, by how much, and whether that matters."""
        winner = self.winner
        probability, (low, high) = self.better, self.better_interval
        if winner is None:
            advice = "" if len(self.seeds) >= ADVISED_RUNS else f"; {ADVISED_RUNS} runs would show one that matters"
            return (
                f"no difference is shown: {self.first} is better than {self.second} with a probability of "
                f"{probability:.0%} ({self.level:.0%} interval {low:.0%} to {high:.0%}), which may be chance{advice}"
            )
        loser = self.second if winner == self.first else self.first
        if winner == self.second:
            probability, low, high = 1 - probability, 1 - high, 1 - low
        sentence = (
            f"{winner} is better than {loser} with a probability of {probability:.0%} "
            f"({self.level:.0%} interval {low:.0%} to {high:.0%}), "
            f"by {_format_difference(self.metric, abs(self.difference))}"
        )
        if not self.meaningful:
            return f"{sentence}: not by chance, but too seldom to matter, which takes {self.meaningful_from:.0%}"
        if not self.worth_having:
            return (
                f"{sentence}: reliably, but by less than the {_format_difference(self.metric, self.worth)} worth having"
            )
        return f"{sentence}: take {winner}"

    def to_dict(self) -> dict[str, Any]:
        """Returns the JSON document that `costmodel compare --json` prints."""
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
    progress: Progress | None = None,
) -> Comparison:
    """Compares two predictors by training and judging them in paired runs.

    The seed of a run determines which fifth of the families is held out, and is the seed of the two predictors.

    Args:
        dataset: Measured sequences and models.
        first: Name of the first predictor.
        second: Name of the second predictor.
        runs: Number of runs.
        metric: Name of the metric, one of `METRIC_NAMES`.
        worth: Smallest difference that is worth having, in the unit of the metric.
        level: Nominal coverage of the intervals.
        predictors: Functions that make a predictor from a seed, by name.
        jobs: Number of predictors that are trained in parallel.
        progress: Called with (trainings done, trainings in total, an empty string).

    Raises:
        TrainingError: A predictor or the metric is unknown, the two predictors are the same, or there are too few
            families, or too few models for the metric.
    """
    for name in (first, second):
        if name not in predictors:
            raise TrainingError(f"there is no predictor {name!r}: choose two of {', '.join(predictors)}")
    if first == second:
        raise TrainingError(f"{first} is no better than itself: choose two of {', '.join(predictors)}")
    if metric not in METRIC_NAMES:
        raise TrainingError(f"there is no metric {metric!r}: choose one of {', '.join(METRIC_NAMES)}")
    score_of: Callable[[Accuracy], float | None] = attrgetter(metric)
    if dataset.whole_only and len(dataset.all_families) < LEAST_FAMILIES:  # as in an evaluation
        dataset = dataset.by_model()
    else:
        dataset = by_lineage(dataset)
    splits = [leave_share_out(dataset, HELD_OUT_SHARE, seed) for seed in range(runs)]

    def run_one(seed: int, name: str) -> float | None:
        # Errors of layers alone need no context correction.
        inner = [] if metric.startswith("layer.") else inner_splits(dataset, splits[seed], _INNER_FOLDS, seed)
        return score_of(accuracy(predict_held_out(dataset, [splits[seed]], predictors[name], seed, besides=inner)))

    tasks = [(seed, name) for seed in range(runs) for name in (first, second)]
    results: list[float | None] = []
    # Threads, as in an evaluation; results come in the order of the tasks.
    for score in Parallel(n_jobs=jobs, prefer="threads", return_as="generator")(
        delayed(run_one)(*task) for task in tasks
    ):
        if progress is not None:
            progress(len(results), len(tasks), "")
        results.append(score)
    if progress is not None:
        progress(len(tasks), len(tasks), "")
    scores = {
        seed: (first_score, second_score)
        for seed, (first_score, second_score) in enumerate(zip(results[::2], results[1::2], strict=True))
        if first_score is not None and second_score is not None
    }
    if not scores:
        raise TrainingError(
            f"{dataset.system.name} has too few models that were measured whole for {metric}: benchmark more models, "
            "or compare by layer.mape"
        )
    return Comparison.of(dataset.system.name, (first, second), metric, scores, worth=worth, level=level)


def _is_error(metric: str) -> bool:
    """Returns whether smaller values of the named metric are better."""
    return metric.endswith("mape")


def _format_difference(metric: str, difference: float) -> str:
    """Formats a difference of the named metric for people, in percentage points where the metric is a share."""
    return f"{difference:.3f}" if metric.endswith("tau") else f"{100 * difference:.2g} percentage points"
