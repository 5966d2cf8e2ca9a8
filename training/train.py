"""Train the regressors of a system: evaluate on held-out families, fit on everything, save, track, promote the best."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from costmodel.errors import CostModelError
from costmodel.store import Store
from costmodel.training.artefact import Bundle, promote, save_bundle
from costmodel.training.boosted import LightGBMRegressor
from costmodel.training.dataset import Dataset
from costmodel.training.evaluation import Evaluation, evaluate
from costmodel.training.labels import load_believable
from costmodel.training.recording import record
from costmodel.training.regressors import BASELINES, GNN_INSTALLED, LEARNERS, Learner, Regressor
from costmodel.training.support import Support
from costmodel.training.targets import layer_targets
from costmodel.training.train_report import Trained, TrainReport

if TYPE_CHECKING:
    from costmodel.training.search import Search

__all__ = ["FOLDS", "TrainReport", "Trained", "train", "train_on"]

# The regressor whose hyperparameters can be searched.
SEARCHED = "lightgbm"
# Groups in which families are left out, where there are more of them: each costs a training of every regressor.
FOLDS = 6


def train(
    store: Store,
    system: str,
    bundles: Path,
    *,
    tracking: Path | None,
    seeds: Sequence[int] = (0, 1, 2),
    folds: int = FOLDS,
    learners: Mapping[str, Callable[[int], Learner]] = LEARNERS,
    level: float = 0.9,
    jobs: int = 1,
    trials: int = 0,
    searching: Callable[[int, int, str], None] | None = None,
    progress: Callable[[int, int, str], None] | None = None,
) -> TrainReport:
    """Train the regressors of `system`, and promote the one with the smallest error on held-out families.

    Args:
        store: Where its measurements are.
        system: Its name.
        bundles: Folder of trained regressors.
        tracking: Folder of MLflow's default store; None for no tracking.
        seeds: Of the evaluation; the first is that of the regressors which are kept.
        folds: Groups in which families are left out, where there are more families than that.
        learners: Makers of the regressors that are trained, by name.
        level: Nominal coverage of intervals.
        jobs: Groups evaluated at once.
        trials: How many hyperparameters of LightGBM to try first; 0 to take the usual ones.
        searching: Told the same of that.
        progress: Told (done, total, what is next).

    Raises:
        UnknownSystemError: Nothing is known under that name.
        TrainingError: Too little is measured.
        ArtefactError: A regressor cannot be written.
    """
    dataset, dropped = load_believable(store, system)
    report = train_on(
        dataset,
        bundles,
        tracking=tracking,
        seeds=seeds,
        folds=folds,
        learners=learners,
        level=level,
        jobs=jobs,
        trials=trials,
        searching=searching,
        progress=progress,
    )
    warnings = list(report.warnings)
    if not GNN_INSTALLED:
        warnings.append("the graph neural network was not trained, it is not installed: pip install 'costmodel[gnn]'")
    if dropped:
        warnings.append(
            f"{dropped} measured sequences multiply faster than {system} can and were left out: measure them again"
        )
    return replace(report, warnings=tuple(warnings))


def train_on(
    dataset: Dataset,
    bundles: Path,
    *,
    tracking: Path | None = None,
    seeds: Sequence[int] = (0,),
    folds: int = FOLDS,
    learners: Mapping[str, Callable[[int], Learner]] = LEARNERS,
    baselines: Mapping[str, Callable[[int], Regressor]] = BASELINES,
    level: float = 0.9,
    jobs: int = 1,
    trials: int = 0,
    searching: Callable[[int, int, str], None] | None = None,
    facts: Mapping[str, Any] = MappingProxyType({}),
    progress: Callable[[int, int, str], None] | None = None,
) -> TrainReport:
    """The same for a data set that is there already.

    Args:
        dataset: Measured sequences.
        bundles: As in `train`.
        tracking: As in `train`.
        seeds: As in `train`.
        folds: As in `train`.
        learners: As in `train`.
        baselines: What they are compared with.
        level: As in `train`.
        jobs: As in `train`.
        trials: As in `train`.
        searching: As in `train`.
        facts: What the bundles and the records of them say besides.
        progress: As in `train`.

    Raises:
        TrainingError: Too little is measured.
        ArtefactError: A regressor cannot be written.
    """
    system = dataset.system.name
    found: Search | None = None
    if trials:
        from costmodel.training.search import search  # Optuna is needed for nothing else

        found = search(dataset, trials, seed=seeds[0], threads=jobs, progress=searching)
        learners = {**learners, SEARCHED: partial(LightGBMRegressor, hyperparameters=found.hyperparameters)}
    groups = folds if len(dataset.all_families) > folds else None
    evaluation = evaluate(
        dataset,
        seeds=seeds,
        folds=groups,
        level=level,
        predictors={**learners, **baselines},
        jobs=jobs,
        progress=progress,
    )
    champion = evaluation.report["champion"]
    warnings = []
    if found is not None and not found.adopted:
        warnings.append(
            f"the best of {len(found.trials)} trials does no better on families that took no part in the search than "
            "the usual hyperparameters: these were taken"
        )
    if dataset.whole_only:
        warnings.append("only whole models are measured: what is said of a layer is its share of their latencies")
    if evaluation.best != champion:
        warnings.append(
            f"on held-out families the baseline {evaluation.best} does better than {champion}: measure more models"
        )
    saved = {}
    for name, make in learners.items():
        regressor = make(seeds[0])
        regressor.threads = jobs
        saved[name] = _fitted(name, regressor, dataset, evaluation, bundles, facts)
    promote(bundles, system, saved[champion][0].version)
    trained = []
    for of, settings in saved.values():
        if tracking is not None:
            try:
                run_id = record(
                    tracking,
                    name=of.name,
                    version=of.version,
                    bundle=of.path,
                    settings={**settings, **facts},
                    dataset=dataset,
                    report=evaluation.report,
                    found=found if of.name == SEARCHED else None,
                )
                of = replace(of, run_id=run_id)
            except CostModelError as error:  # the regressor answers already, and is worth more than the record of it
                warnings.append(str(error))
                tracking = None  # who does not answer is not asked again
        trained.append(of)
    others = tuple(of for of in trained if of.name != champion)
    [best] = [of for of in trained if of.name == champion]
    return TrainReport(
        system,
        best,
        others,
        len(dataset),
        evaluation.report,
        tuple(dict.fromkeys(warnings)),
        search=found.to_dict() if found else None,
    )


def _fitted(
    name: str,
    regressor: Learner,
    dataset: Dataset,
    evaluation: Evaluation,
    bundles: Path,
    facts: Mapping[str, Any],
) -> tuple[Trained, Mapping[str, object]]:
    """A regressor, fitted on everything and saved, and its settings."""
    regressor.fit(dataset.encoded, dataset.latencies_us)
    seen = dataset.encoded.features[layer_targets(dataset.encoded, dataset.latencies_us)[0]]
    now = datetime.now(UTC)
    bundle = Bundle(
        name=name,
        version=f"{now:%Y%m%d-%H%M%S}-{dataset.fingerprint[:8]}-{name}",
        system=dataset.system.name,
        model=regressor.to_onnx(),
        calibration=evaluation.calibrations[name],
        support=Support.of(seen),
        facts={
            "trained_at": now.isoformat(timespec="seconds"),
            "rows": len(dataset),
            "data_fingerprint": dataset.fingerprint,
            "seeds": evaluation.report["seeds"],
            "split": evaluation.report["split"],
            "accuracy": evaluation.report["predictors"][name]["model"],
            "settings": dict(regressor.settings),
            **facts,
        },
        predicted_in_place=evaluation.held_out[name].predicted_in_place,
        measured_in_place=evaluation.held_out[name].measured_in_place,
        source=regressor.to_text(),
    )
    return Trained(name, bundle.version, save_bundle(bundles, bundle), run_id=None), regressor.settings
