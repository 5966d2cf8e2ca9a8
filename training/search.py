"""Search for hyperparameters of the boosted trees: the only file that knows Optuna.

The search judges by families left out, as an evaluation does. What it finds is therefore no judge of itself: a share of
the families takes no part in it, and the best trial replaces the defaults only if it does better on those, too. What is
reported as accuracy comes from an evaluation afterwards, with other groups of families.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np

from costmodel.errors import MissingExtraError, TrainingError
from costmodel.training.boosted import DEFAULTS, OBJECTIVES, Hyperparameters, LightGBMRegressor, usual_leaves
from costmodel.training.dataset import Dataset
from costmodel.training.held_out import HeldOut, held_out
from costmodel.training.splits import Split, leave_families_out, leave_share_out

try:
    import optuna
except ModuleNotFoundError as error:
    raise MissingExtraError("searching hyperparameters", "train") from error

__all__ = ["Search", "Trial", "search"]

# Families that take no part: they say whether what was found is better, or was found by luck.
CONFIRMING_SHARE = 0.25
# With fewer models than that, layers have to tell.
LEAST_MODELS = 10
# Trials before one may be given up, and folds of it that are always made.
_TRIALS_BEFORE_PRUNING, _LEAST_FOLDS = 5, 2


@dataclass(frozen=True, slots=True)
class Trial:
    """One choice of hyperparameters, and how it did.

    Attributes:
        number: In order, from 0; trial 0 is that of the defaults.
        hyperparameters: The choice.
        errors: Mean error over all that was judged after each fold.
        pruned: Whether it was given up before the last fold, because it was worse than others at that point.
        began: When.
        ended: When.
    """

    number: int
    hyperparameters: Hyperparameters
    errors: tuple[float, ...]
    pruned: bool
    began: datetime
    ended: datetime


@dataclass(frozen=True)
class Search:
    """What a search found.

    Attributes:
        trials: All that were finished or given up.
        judged: "model" or "layer": of what the errors are, |log(predicted / measured)| on average.
        best: The trial with the smallest error.
        confirming: Families that took no part in it.
        defaults_error: Error of the defaults on those.
        found_error: Error of the best trial on those.
        interrupted: Whether the user ended it.
    """

    trials: tuple[Trial, ...]
    judged: str
    best: Trial
    confirming: frozenset[str]
    defaults_error: float
    found_error: float
    interrupted: bool

    @property
    def adopted(self) -> bool:
        """Whether what was found is better on families that it was not chosen by."""
        return self.found_error < self.defaults_error

    @property
    def hyperparameters(self) -> Hyperparameters:
        """Those to train with: what was found, or the defaults if it did not hold."""
        return self.best.hyperparameters if self.adopted else DEFAULTS

    def to_dict(self) -> dict[str, Any]:
        """As JSON, for a report. `search_error` is what was optimised, and no accuracy."""
        return {
            "trials": len(self.trials),
            "pruned": sum(trial.pruned for trial in self.trials),
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
    progress: Callable[[int, int, str], None] | None = None,
) -> Search:
    """Look for better hyperparameters than the defaults.

    An interruption (Ctrl-C) ends it with the best so far.

    Args:
        dataset: Measured sequences and models.
        trials: How many choices are tried; the first one is the defaults.
        seed: Of the choices, of the trees, and of what is left out.
        folds: Groups in which families are left out.
        threads: Used for growing trees.
        progress: Told (done, total, what is best so far), in trees grown.

    Raises:
        TrainingError: Nothing but whole models is measured, or too few families.
    """
    if dataset.whole_only:
        raise TrainingError("a search needs measured layers, and nothing but whole models is measured")
    confirming = leave_share_out(dataset, CONFIRMING_SHARE, seed)
    # Another seed than the evaluation's: other families are left out together.
    splits = [_inside(dataset, split, confirming) for split in leave_families_out(dataset, folds, seed + 1)]
    splits = [split for split in splits if split.judged.any()]
    judged = "model" if sum(len(split.models) for split in splits) >= LEAST_MODELS else "layer"
    found: list[Trial] = []

    def one(trial: optuna.Trial) -> float:
        began = datetime.now(UTC)
        chosen = _suggested(trial)
        errors: list[np.ndarray] = []
        means: list[float] = []
        pruned = False
        for done, split in enumerate(splits):
            if progress is not None:
                best = min((t.errors[-1] for t in found if not t.pruned), default=None)
                said = "the defaults" if best is None else f"best error {best:.1%}"
                progress(trial.number * len(splits) + done, trials * len(splits), said)
            errors.append(_errors(held_out(dataset, [split], _maker(chosen, threads), seed), judged))
            means.append(float(np.mean(np.concatenate(errors))) if sum(map(len, errors)) else np.inf)
            trial.report(means[-1], done)
            pruned = done < len(splits) - 1 and bool(trial.should_prune())
            if pruned:
                break
        found.append(Trial(trial.number, chosen, tuple(means), pruned, began, datetime.now(UTC)))
        if pruned:
            raise optuna.TrialPruned
        return means[-1]

    interrupted = False
    with _quiet():
        study = optuna.create_study(
            sampler=optuna.samplers.TPESampler(seed=seed),
            pruner=optuna.pruners.MedianPruner(_TRIALS_BEFORE_PRUNING, n_warmup_steps=_LEAST_FOLDS - 1),
        )
        usual = usual_leaves(int(splits[0].kept.sum()))
        study.enqueue_trial(_as_suggestions(replace(DEFAULTS, leaves=usual)))
        try:
            study.optimize(one, n_trials=trials)
        except KeyboardInterrupt:
            if not found:  # not even the defaults are judged: there is nothing to keep
                raise
            interrupted = True
    if progress is not None:
        progress(trials * len(splits), trials * len(splits), "")
    best = min((trial for trial in found if not trial.pruned), key=lambda trial: trial.errors[-1])
    defaults_error, found_error = (
        float(np.mean(_errors(held_out(dataset, [confirming], _maker(chosen, threads), seed), judged)))
        for chosen in (DEFAULTS, best.hyperparameters)
    )
    if best.number == 0:  # the defaults, with their number of leaves written out
        found_error = defaults_error
    return Search(tuple(found), judged, best, confirming.families, defaults_error, found_error, interrupted)


def _maker(chosen: Hyperparameters, threads: int) -> Callable[[int], LightGBMRegressor]:
    return lambda seed: LightGBMRegressor(seed, threads, chosen)


def _inside(dataset: Dataset, split: Split, confirming: Split) -> Split:
    """A split of what is left when the confirming families, and all that their models have, are taken away."""
    return replace(
        split,
        families=split.families - confirming.families,
        kept=split.kept & confirming.kept,
        judged=split.judged & confirming.kept,
        models=tuple(i for i in split.models if dataset.models[i].family not in confirming.families),
    )


def _errors(run: HeldOut, judged: str) -> np.ndarray:
    """|log(predicted / measured)| of each model, no layer of it measured, or of each layer that was held out.

    The logarithm, because of a mean of relative errors most is said by the few models that are far too dear.
    """
    if judged == "layer":
        predicted, measured = run.rows_us[run.judged], run.dataset.latencies_us[run.judged]
    else:
        predicted = run.unseen_us[run.judged_models]
        measured = np.array([run.dataset.models[i].latency_us for i in run.judged_models], dtype=np.float64)
    return np.asarray(np.abs(np.log(predicted / measured)))


def _suggested(trial: optuna.Trial) -> Hyperparameters:
    objective = trial.suggest_categorical("objective", list(OBJECTIVES))
    linear_from = DEFAULTS.linear_from
    if OBJECTIVES[objective]:
        linear_from = trial.suggest_float("linear_from", 0.02, 1.0, log=True)
    return Hyperparameters(
        objective=objective,
        linear_from=linear_from,
        leaves=trial.suggest_int("leaves", 7, 127, log=True),
        rounds=trial.suggest_int("rounds", 300, 1500, log=True),
        learning_rate=trial.suggest_float("learning_rate", 0.02, 0.2, log=True),
        rows_in_leaf=trial.suggest_int("rows_in_leaf", 2, 50, log=True),
        feature_share=trial.suggest_float("feature_share", 0.1, 1.0),
        row_share=trial.suggest_float("row_share", 0.4, 1.0),
        l2=trial.suggest_float("l2", 0.01, 30.0, log=True),
        path_smooth=trial.suggest_float("path_smooth", 0.0, 20.0),
        time_weight=trial.suggest_float("time_weight", 0.0, 0.5),
    )


def _as_suggestions(chosen: Hyperparameters) -> dict[str, Any]:
    """What `_suggested` has to be told to suggest these."""
    return {
        name: value for name, value in chosen.to_dict().items() if name != "linear_from" or OBJECTIVES[chosen.objective]
    }


@contextmanager
def _quiet() -> Iterator[None]:
    """Optuna says nothing of single trials, nor of one that Ctrl-C ended: there is a progress bar."""
    level = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        yield
    finally:
        optuna.logging.set_verbosity(level)
