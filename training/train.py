"""Trains the regressors that predict costs on one system.

Regressors are evaluated on held-out lineages, fitted to all data and saved as bundles; the best one is promoted to
champion, and all are recorded in MLflow.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from costmodel.errors import CostModelError, MissingExtraError, TrainingError
from costmodel.measure.idle import IDLE_EFFECT
from costmodel.measure.interference import INTERFERENCE
from costmodel.progress import Progress
from costmodel.store.store import Store
from costmodel.systems.system import QUIET_PROBE, System
from costmodel.training.artefact import Bundle, promote, save_bundle
from costmodel.training.calibration import Calibration
from costmodel.training.dataset import Dataset
from costmodel.training.evaluation.evaluation import Evaluation, evaluate
from costmodel.training.fewer_threads import with_fewer_threads
from costmodel.training.labels import load_plausible_dataset
from costmodel.training.recording import record
from costmodel.training.regressors.learner import Learner, Regressor
from costmodel.training.regressors.lightgbm_regressor import LightGBMRegressor
from costmodel.training.regressors.linear_correction import LinearCorrection
from costmodel.training.regressors.registry import BASELINES, GNN_INSTALLED, LEARNERS, model_us
from costmodel.training.regressors.targets import layer_targets
from costmodel.training.support import Support
from costmodel.training.train_report import Trained, TrainReport

if TYPE_CHECKING:
    from costmodel.training.search import Search

__all__ = ["FOLDS", "SEARCHED", "TrainReport", "Trained", "train_on", "train_system"]

# The regressor whose hyperparameters can be searched.
SEARCHED = "lightgbm"
# Regressors that are trained where nothing but a few whole models is measured, and the number of models from which on
# the others are trained as well. Fewer determine no trees and no network, whose training takes minutes.
_OF_FEW_MODELS = frozenset({"log_linear", "linear_correction", "roofline", "flops", "operator_count"})
_ENOUGH_MODELS = 100
# Number of groups in which families are held out, if there are more families; each trains every regressor once.
FOLDS = 6


def train_system(
    store: Store,
    system: str,
    bundles: Path,
    *,
    tracking: Path | None,
    seeds: Sequence[int] = (0,),
    folds: int = FOLDS,
    learners: Mapping[str, Callable[[int], Learner]] = LEARNERS,
    baselines: Mapping[str, Callable[[int], Regressor]] = BASELINES,
    level: float = 0.9,
    jobs: int = 1,
    trials: int = 0,
    searching: Progress | None = None,
    progress: Progress | None = None,
) -> TrainReport:
    """Trains regressors on what was measured on a system, and promotes the best one to champion.

    The best one is that with the smallest error on held-out lineages.

    Args:
        store: Store with the measurements of the system.
        system: Name of the system.
        bundles: Folder of trained regressors.
        tracking: Folder of MLflow's default store; None for no tracking.
        seeds: Seeds of the evaluation; the first is also the seed of the regressors that are saved.
        folds: Number of groups in which families are held out; if there are at most `folds` families, each is held out
            alone.
        learners: Functions that each make a regressor from a seed, by name; these regressors are trained and saved.
        baselines: Functions that each make a baseline from a seed, by name; baselines are evaluated, but not saved.
        level: Nominal coverage of intervals.
        jobs: Number of groups of families that are evaluated in parallel.
        trials: Number of trials of a search for LightGBM's hyperparameters; 0 to use the defaults.
        searching: Called during the search with (trainings done, trainings in total, a label with the smallest error).
        progress: Called with (trainings done, trainings in total, name of the next predictor), as by `evaluate`.

    Raises:
        UnknownSystemError: The store has no system of that name.
        TrainingError: Too little is measured to train on.
        ArtefactError: A bundle cannot be written.
    """
    dataset, dropped = load_plausible_dataset(store, system)
    if _few_models(dataset, learners):
        prior = _prior(store, dataset.system, seeds[0], jobs)
        if prior is not None:
            learners = {**learners, "linear_correction": lambda _: LinearCorrection(prior)}
    dataset = with_fewer_threads(dataset, store)
    report = train_on(
        dataset,
        bundles,
        tracking=tracking,
        seeds=seeds,
        folds=folds,
        learners=learners,
        baselines=baselines,
        level=level,
        jobs=jobs,
        trials=trials,
        searching=searching,
        progress=progress,
    )
    warnings = list(report.warnings)
    if not GNN_INSTALLED and not _few_models(dataset, learners):
        warnings.append(
            "the neural networks were not trained, because torch is not installed: "
            + MissingExtraError.installation_of("gnn")
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
    widened: float = 0.0,
    facts: Mapping[str, Any] = MappingProxyType({}),
    progress: Progress | None = None,
) -> TrainReport:
    """Trains regressors on a given data set, and promotes the best one to champion of the data set's system.

    The best one is that with the smallest error on held-out lineages.

    Args:
        dataset: Measured sequences and models.
        bundles: Folder of trained regressors.
        tracking: Folder of MLflow's default store; None for no tracking.
        seeds: Seeds of the evaluation; the first is also the seed of the regressors that are saved.
        folds: Number of groups in which families are held out; if there are at most `folds` families, each is held out
            alone.
        learners: Functions that each make a regressor from a seed, by name; these regressors are trained and saved.
        baselines: Functions that each make a baseline from a seed, by name; baselines are evaluated, but not saved.
        level: Nominal coverage of intervals.
        jobs: Number of groups of families that are evaluated in parallel.
        trials: Number of trials of a search for LightGBM's hyperparameters; 0 to use the defaults.
        searching: Called during the search with (trainings done, trainings in total, a label with the smallest error).
        widened: Half-width, in log latency, of the interval of an error that all costs of the data set have in common;
            see `Calibration.widened`.
        facts: Additional information for the cards of the bundles and their records in MLflow.
        progress: Called with (trainings done, trainings in total, name of the next predictor), as by `evaluate`.

    Raises:
        TrainingError: Too little is measured to train on.
        ArtefactError: A bundle cannot be written.
    """
    system = dataset.system.name
    few = _few_models(dataset, learners)
    if few:
        learners = {name: make for name, make in learners.items() if name in _OF_FEW_MODELS}
        baselines = {name: make for name, make in baselines.items() if name in _OF_FEW_MODELS}
        seeds = seeds[:1]  # none of these regressors uses random numbers
    found: Search | None = None
    if trials:
        from costmodel.training.search import regressor_maker, search  # imported here: only a search needs Optuna

        found = search(dataset, trials, seed=seeds[0], threads=jobs, progress=searching)
        learners = {**learners, SEARCHED: regressor_maker(found.hyperparameters)}
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
    champion = evaluation.report.champion
    warnings = []
    if found is not None and not found.adopted:
        warnings.append(
            f"the best of {len(found.trials)} trials does no better on lineages that took no part in the search than "
            "the default hyperparameters: the defaults are used"
        )
    if dataset.whole_only:
        warnings.append(
            "only whole models are measured: costs of layers are estimated as their shares of the models' latencies"
        )
    if few:
        warnings.append(
            f"fewer than {_ENOUGH_MODELS} whole models determine no trees and no network: only "
            f"{' and '.join(learners)} {'was' if len(learners) == 1 else 'were'} trained"
        )
    if evaluation.best != champion:
        warnings.append(
            f"on held-out lineages the baseline {evaluation.best} does better than {champion}: measure more models"
        )
    saved = {}
    for name, make in learners.items():
        regressor = make(seeds[0])
        regressor.threads = jobs
        calibration = evaluation.calibrations[name]
        calibration = calibration.widened(widened) if widened else calibration
        saved[name] = _fit_and_save(name, regressor, dataset, evaluation, calibration, bundles, facts)
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
        search=found,
    )


def _few_models(dataset: Dataset, learners: Mapping[str, Callable[[int], Learner]]) -> bool:
    """Returns whether a data set has nothing but a few whole models: only `_OF_FEW_MODELS` are then trained on it."""
    return dataset.whole_only and len(dataset) < _ENOUGH_MODELS and bool(_OF_FEW_MODELS & learners.keys())


def _prior(store: Store, system: System, seed: int, jobs: int) -> Learner | None:
    """Returns a regressor of a system that has the same capabilities and of which layers were measured; None if none.

    `costmodel import --like` gives a system the capabilities of another one.
    """
    for other in store.systems().values():
        alike = (other.host, _rates(other), other.settings.threads) == (
            system.host, _rates(system), system.settings.threads,
        )  # fmt: skip
        if alike and other.name != system.name and not other.extrapolated:
            try:
                dataset, _ = load_plausible_dataset(store, other.name)
            except TrainingError:
                continue
            if not dataset.whole_only:
                return LightGBMRegressor(seed, jobs).fit(dataset.encoded, dataset.latencies_us)
    return None


def _rates(system: System) -> dict[str, float]:
    """Returns the capabilities of a system without those that are measured again later, after which it is the same."""
    later = (QUIET_PROBE, INTERFERENCE, IDLE_EFFECT)
    return {name: value for name, value in system.capabilities.items() if not name.startswith(later)}


def _fit_and_save(
    name: str,
    regressor: Learner,
    dataset: Dataset,
    evaluation: Evaluation,
    calibration: Calibration,
    bundles: Path,
    facts: Mapping[str, Any],
) -> tuple[Trained, Mapping[str, object]]:
    """Fits a regressor to all data and saves its bundle; returns the saved bundle and the regressor's settings."""
    regressor.fit(dataset.encoded, dataset.latencies_us)
    layer_features = dataset.encoded.features[layer_targets(dataset.encoded, dataset.latencies_us)[0]]
    now = datetime.now(UTC)
    bundle = Bundle(
        name=name,
        version=f"{now:%Y%m%d-%H%M%S}-{dataset.fingerprint[:8]}-{name}",
        system=dataset.system.name,
        model=regressor.to_onnx(),
        calibration=calibration,
        support=Support.of(layer_features),
        facts={
            "trained_at": now.isoformat(timespec="seconds"),
            "rows": len(dataset),
            "data_fingerprint": dataset.fingerprint,
            "seeds": list(evaluation.report.seeds),
            "split": evaluation.report.split,
            "accuracy": evaluation.report.predictors[name].model.to_dict(),
            "settings": dict(regressor.settings),
            **facts,
        },
        predicted_correction=replace(evaluation.held_out[name].predicted_correction, model_us=model_us(regressor)),
        measured_correction=evaluation.held_out[name].measured_correction,
        source=regressor.to_text(),
    )
    return Trained(name, bundle.version, save_bundle(bundles, bundle), run_id=None), regressor.settings
