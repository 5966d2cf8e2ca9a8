"""Trains the regressors of a system: evaluates on held-out families, fits on all data, saves, promotes and tracks."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from costmodel.errors import CostModelError
from costmodel.progress import Progress
from costmodel.store.store import Store
from costmodel.training.artefact import Bundle, promote, save_bundle
from costmodel.training.dataset import Dataset
from costmodel.training.evaluation.evaluation import Evaluation, evaluate
from costmodel.training.labels import load_plausible_dataset
from costmodel.training.recording import record
from costmodel.training.regressors.lightgbm_regressor import LightGBMRegressor
from costmodel.training.regressors.registry import BASELINES, GNN_INSTALLED, LEARNERS, Learner, Regressor
from costmodel.training.regressors.targets import layer_targets
from costmodel.training.support import Support
from costmodel.training.train_report import Trained, TrainReport

if TYPE_CHECKING:
    from costmodel.training.search import Search

__all__ = ["FOLDS", "TrainReport", "Trained", "train_on", "train_system"]

# The regressor whose hyperparameters can be searched.
SEARCHED = "lightgbm"
# Number of groups in which families are held out, if there are more families; each trains every regressor once.
FOLDS = 6


def train_system(
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
    searching: Progress | None = None,
    progress: Progress | None = None,
) -> TrainReport:
    """Trains the regressors of `system` and promotes the one with the smallest error on held-out families.

    Args:
        store: Store with the measurements of the system.
        system: Name of the system.
        bundles: Folder of trained regressors.
        tracking: Folder of MLflow's default store; None for no tracking.
        seeds: Seeds of the evaluation; the first is also the seed of the regressors that are saved.
        folds: Number of groups in which families are held out, if there are more families than that.
        learners: Makers of the regressors that are trained, by name.
        level: Nominal coverage of intervals.
        jobs: Number of groups that are evaluated in parallel.
        trials: Number of trials of a search for LightGBM's hyperparameters; 0 to use the defaults.
        searching: Called like `progress` during the search.
        progress: Called with (done, total, what is next).

    Raises:
        UnknownSystemError: The store has no system of that name.
        TrainingError: Too little is measured to train on.
        ArtefactError: A bundle cannot be written.
    """
    dataset, dropped = load_plausible_dataset(store, system)
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
        warnings.append(
            "the graph neural network was not trained, because it is not installed: pip install 'costmodel[gnn]'"
        )
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
    searching: Progress | None = None,
    facts: Mapping[str, Any] = MappingProxyType({}),
    progress: Progress | None = None,
) -> TrainReport:
    """Trains regressors on a given data set and promotes the one with the smallest error on held-out families.

    Args:
        dataset: Measured sequences and models.
        bundles: Folder of trained regressors.
        tracking: Folder of MLflow's default store; None for no tracking.
        seeds: Seeds of the evaluation; the first is also the seed of the regressors that are saved.
        folds: Number of groups in which families are held out, if there are more families than that.
        learners: Makers of the regressors that are trained, by name.
        baselines: Makers of the baselines that are evaluated beside them, by name.
        level: Nominal coverage of intervals.
        jobs: Number of groups that are evaluated in parallel.
        trials: Number of trials of a search for LightGBM's hyperparameters; 0 to use the defaults.
        searching: Called like `progress` during the search.
        facts: Additional information for the cards of the bundles and their records in MLflow.
        progress: Called with (done, total, what is next).

    Raises:
        TrainingError: Too little is measured to train on.
        ArtefactError: A bundle cannot be written.
    """
    system = dataset.system.name
    found: Search | None = None
    if trials:
        from costmodel.training.search import search  # imported here, because only a search needs Optuna

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
            "the default hyperparameters: the defaults are used"
        )
    if dataset.whole_only:
        warnings.append(
            "only whole models are measured: costs of layers are estimated as their shares of the models' latencies"
        )
    if evaluation.best != champion:
        warnings.append(
            f"on held-out families the baseline {evaluation.best} does better than {champion}: measure more models"
        )
    saved = {}
    for name, make in learners.items():
        regressor = make(seeds[0])
        regressor.threads = jobs
        saved[name] = _fit_and_save(name, regressor, dataset, evaluation, bundles, facts)
    promote(bundles, system, saved[champion][0].version)
    trained = []
    for saved_bundle, settings in saved.values():
        if tracking is not None:
            try:
                run_id = record(
                    tracking,
                    name=saved_bundle.name,
                    version=saved_bundle.version,
                    bundle=saved_bundle.path,
                    settings={**settings, **facts},
                    dataset=dataset,
                    report=evaluation.report,
                    found=found if saved_bundle.name == SEARCHED else None,
                )
                saved_bundle = replace(saved_bundle, run_id=run_id)
            except CostModelError as error:  # the regressor is saved already, and matters more than its record
                warnings.append(str(error))
                tracking = None  # a store that failed once is not tried again
        trained.append(saved_bundle)
    others = tuple(saved_bundle for saved_bundle in trained if saved_bundle.name != champion)
    [best] = [saved_bundle for saved_bundle in trained if saved_bundle.name == champion]
    return TrainReport(
        system,
        best,
        others,
        len(dataset),
        evaluation.report,
        tuple(dict.fromkeys(warnings)),
        search=found.to_dict() if found else None,
    )


def _fit_and_save(
    name: str,
    regressor: Learner,
    dataset: Dataset,
    evaluation: Evaluation,
    bundles: Path,
    facts: Mapping[str, Any],
) -> tuple[Trained, Mapping[str, object]]:
    """Fits a regressor on all data, saves its bundle, and returns both the saved bundle and the settings."""
    regressor.fit(dataset.encoded, dataset.latencies_us)
    layer_features = dataset.encoded.features[layer_targets(dataset.encoded, dataset.latencies_us)[0]]
    now = datetime.now(UTC)
    bundle = Bundle(
        name=name,
        version=f"{now:%Y%m%d-%H%M%S}-{dataset.fingerprint[:8]}-{name}",
        system=dataset.system.name,
        model=regressor.to_onnx(),
        calibration=evaluation.calibrations[name],
        support=Support.of(layer_features),
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
        predicted_correction=evaluation.held_out[name].predicted_correction,
        measured_correction=evaluation.held_out[name].measured_correction,
        source=regressor.to_text(),
    )
    return Trained(name, bundle.version, save_bundle(bundles, bundle), run_id=None), regressor.settings
