"""Hyperparameter search for the boosted trees; no other module uses Optuna.

The search chooses the trial with the smallest error on held-out lineages, so that this error is too optimistic. A
share of the lineages therefore takes no part in the search, and the best trial replaces the default hyperparameters
only if it also has a smaller error on these. The reported accuracy comes from a later evaluation with other groups of
lineages.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np

from costmodel.errors import MissingExtraError, TrainingError
from costmodel.progress import Progress
from costmodel.training.dataset import Dataset
from costmodel.training.evaluation.held_out import HeldOut, predict_held_out
from costmodel.training.evaluation.splits import Split, leave_families_out, leave_share_out
from costmodel.training.lineages import by_lineage
from costmodel.training.regressors.learner import Learner
from costmodel.training.regressors.lightgbm_regressor import (
    DEFAULTS,
    OBJECTIVES,
    Hyperparameters,
    LightGBMRegressor,
    default_num_leaves,
)
from costmodel.training.regressors.thread_scaling import ThreadScalingRegressor

try:
    import optuna
except ModuleNotFoundError as error:
    raise MissingExtraError("searching hyperparameters", "train") from error

__all__ = ["Search", "Trial", "regressor_maker", "search"]

# Share of the families that take no part in the search and confirm its result.
CONFIRMING_SHARE = 0.25
# With fewer held-out models than this, trials are judged by layers.
LEAST_MODELS = 10


@dataclass(frozen=True, slots=True)
class Trial:
    """One choice of hyperparameters in a search, with its errors on held-out lineages.

    Attributes:
        number: Number of the trial, from 0; trial 0 has the default hyperparameters.
        hyperparameters: Hyperparameters of the trial.
        errors: After each fold, the mean of |log(predicted / measured)| over all models or layers judged so far.
        pruned: Whether the trial was stopped before the last fold, because other trials had smaller errors at that
            point.
        began: Start of the trial, UTC.
        ended: End of the trial, UTC.
    """

    number: int
    hyperparameters: Hyperparameters
    errors: tuple[float, ...]
    pruned: bool
    began: datetime
    ended: datetime


@dataclass(frozen=True)
class Search:
    """The result of a hyperparameter search, whose errors are means of |log(predicted / measured)|.

    Attributes:
        trials: All trials that were finished or pruned.
        judged: "model" or "layer": whether errors are those of models or of layers.
        best: The trial with the smallest error.
        confirming: Families that took no part in the search, on which its result is confirmed.
        defaults_error: Error of the default hyperparameters on the confirming families.
        found_error: Error of the best trial on the confirming families.
        interrupted: Whether the user interrupted the search.
    """

    trials: tuple[Trial, ...]
    judged: str
    best: Trial
    confirming: frozenset[str]
    defaults_error: float
    found_error: float
    interrupted: bool

    @property
    def pruned(self) -> int:
        """Number of trials that were stopped before the last fold."""
        return sum(trial.pruned for trial in self.trials)

    @property
    def adopted(self) -> bool:
        """Whether the best trial has a smaller error than the defaults on lineages that took no part in the search."""
        return self.found_error < self.defaults_error

    @property
    def hyperparameters(self) -> Hyperparameters:
        """Hyperparameters to train with: those of the best trial if these are `adopted`, or else the defaults."""
        return self.best.hyperparameters if self.adopted else DEFAULTS

    def to_dict(self) -> dict[str, Any]:
        """Returns the result as JSON data for a report.

        `search_error` in it was minimised by the search, so it is too optimistic as a measure of accuracy.
        """
        return {
            "trials": len(self.trials),
            "pruned": self.pruned,
            "interrupted": self.interrupted,
            "judged": self.judged,
            "search_error": self.best.errors[-1],
            "confirming_families": sorted(self.confirming),
            "confirmed_error": {"defaults": self.defaults_error, "found": self.found_error},
            "adopted": self.adopted,
            "found": self.best.hyperparameters.to_dict(),
        }


def search(
    dataset: Dataset,
    trials: int,
    *,
    seed: int = 0,
    folds: int = 6,
    threads: int = 1,
    unpruned_trials: int = 5,
    least_folds: int = 2,
    progress: Progress | None = None,
) -> Search:
    """Searches for hyperparameters of the boosted trees that are better than the defaults.

    An interruption (Ctrl-C) ends the search with the best trial so far.

    Args:
        dataset: Measured sequences and models.
        trials: Number of trials; the first one has the default hyperparameters.
        seed: Seed of the choice of hyperparameters, of the trees, and of the families that are held out.
        folds: Number of groups in which families are held out.
        threads: Number of threads for training.
        unpruned_trials: Number of trials that are run before any trial may be pruned, that is, stopped early.
        least_folds: Number of folds that are run of every trial.
        progress: Called with (trainings done, trainings in total, a label with the smallest error so far).

    Raises:
        TrainingError: Only whole models are measured, or too few families.
    """
    if dataset.whole_only:
        raise TrainingError("a search needs measured layers, and nothing but whole models is measured")
    dataset = by_lineage(dataset)
    confirming = leave_share_out(dataset, CONFIRMING_SHARE, seed)
    # The seed differs from that of the evaluation, so that other families are held out together.
    splits = [_without_confirming(dataset, split, confirming) for split in leave_families_out(dataset, folds, seed + 1)]
    splits = [split for split in splits if split.test_rows.any()]
    judged = "model" if sum(len(split.models) for split in splits) >= LEAST_MODELS else "layer"
    finished: list[Trial] = []

    def run_trial(trial: optuna.Trial) -> float:
        began = datetime.now(UTC)
        chosen = _suggested(trial)
        errors: list[np.ndarray] = []
        means: list[float] = []
        pruned = False
        for done, split in enumerate(splits):
            if progress is not None:
                best = min((t.errors[-1] for t in finished if not t.pruned), default=None)
                message = "the defaults" if best is None else f"best error {best:.1%}"
                progress(trial.number * len(splits) + done, trials * len(splits), message)
            errors.append(_errors(predict_held_out(dataset, [split], regressor_maker(chosen, threads), seed), judged))
            means.append(float(np.mean(np.concatenate(errors))) if sum(map(len, errors)) else np.inf)
            trial.report(means[-1], done)
            pruned = done < len(splits) - 1 and bool(trial.should_prune())
            if pruned:
                break
        finished.append(Trial(trial.number, chosen, tuple(means), pruned, began, datetime.now(UTC)))
        if pruned:
            raise optuna.TrialPruned
        return means[-1]

    interrupted = False
    with _optuna_silenced():
        study = optuna.create_study(
            sampler=optuna.samplers.TPESampler(seed=seed),
            pruner=optuna.pruners.MedianPruner(unpruned_trials, n_warmup_steps=least_folds - 1),
        )
        usual = default_num_leaves(int(splits[0].train_rows.sum()))
        study.enqueue_trial(_as_suggestions(replace(DEFAULTS, num_leaves=usual)))
        try:
            study.optimize(run_trial, n_trials=trials)
        except KeyboardInterrupt:
            if not finished:  # not even the trial of the defaults is finished, so there is no result
                raise
            interrupted = True
    if progress is not None:
        progress(trials * len(splits), trials * len(splits), "")
    best = min((trial for trial in finished if not trial.pruned), key=lambda trial: trial.errors[-1])
    defaults_error, found_error = (
        float(np.mean(_errors(predict_held_out(dataset, [confirming], regressor_maker(chosen, threads), seed), judged)))
        for chosen in (DEFAULTS, best.hyperparameters)
    )
    if best.number == 0:  # trial 0 is the defaults with an explicit number of leaves
        found_error = defaults_error
    return Search(tuple(finished), judged, best, confirming.families, defaults_error, found_error, interrupted)


def regressor_maker(chosen: Hyperparameters, threads: int = 1) -> Callable[[int], Learner]:
    """Returns a function that makes a regressor with given hyperparameters from a seed."""
    return lambda seed: ThreadScalingRegressor(LightGBMRegressor(seed, threads, chosen), seed)


def _without_confirming(dataset: Dataset, split: Split, confirming: Split) -> Split:
    """Returns a split without the families that take no part in the search, and without their models' sequences.

    Args:
        dataset: Measured sequences and models.
        split: Split of the search.
        confirming: Split that holds out the families that take no part in the search.
    """
    return replace(
        split,
        families=split.families - confirming.families,
        train_rows=split.train_rows & confirming.train_rows,
        test_rows=split.test_rows & confirming.train_rows,
        models=tuple(i for i in split.models if dataset.models[i].family not in confirming.families),
    )


def _errors(run: HeldOut, judged: str) -> np.ndarray:
    """Returns |log(predicted / measured)| of each held-out model, with all layers predicted, or of each held-out layer.

    A mean of relative errors instead of logarithms would be dominated by the few models that are predicted far too
    slow.

    Args:
        run: Predictions for held-out lineages.
        judged: "model" or "layer".
    """
    if judged == "layer":
        predicted, measured = run.rows_us[run.judged], run.dataset.latencies_us[run.judged]
    else:
        predicted = run.unseen_us[run.judged_models]
        measured = np.array([run.dataset.models[i].latency_us for i in run.judged_models], dtype=np.float64)
    return np.asarray(np.abs(np.log(predicted / measured)))


def _suggested(trial: optuna.Trial) -> Hyperparameters:
    """Draws the hyperparameters of an Optuna trial from the search space."""
    objective = trial.suggest_categorical("objective", list(OBJECTIVES))
    linear_from = DEFAULTS.linear_from
    if OBJECTIVES[objective]:
        linear_from = trial.suggest_float("linear_from", 0.02, 1.0, log=True)
    return Hyperparameters(
        objective=objective,
        linear_from=linear_from,
        num_leaves=trial.suggest_int("num_leaves", 7, 127, log=True),
        num_boost_round=trial.suggest_int("num_boost_round", 300, 1500, log=True),
        learning_rate=trial.suggest_float("learning_rate", 0.02, 0.2, log=True),
        min_data_in_leaf=trial.suggest_int("min_data_in_leaf", 2, 50, log=True),
        feature_fraction=trial.suggest_float("feature_fraction", 0.1, 1.0),
        bagging_fraction=trial.suggest_float("bagging_fraction", 0.4, 1.0),
        lambda_l2=trial.suggest_float("lambda_l2", 0.01, 30.0, log=True),
        path_smooth=trial.suggest_float("path_smooth", 0.0, 20.0),
        time_weight=trial.suggest_float("time_weight", 0.0, 0.5),
    )


def _as_suggestions(chosen: Hyperparameters) -> dict[str, Any]:
    """Returns the parameter values of an Optuna trial for which `_suggested` returns the given hyperparameters."""
    return {
        name: value for name, value in chosen.to_dict().items() if name != "linear_from" or OBJECTIVES[chosen.objective]
    }


@contextmanager
def _optuna_silenced() -> Iterator[None]:
    """Silences Optuna's log of single trials within a `with` block, because there is a progress bar."""
    level = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        yield
    finally:
        optuna.logging.set_verbosity(level)
