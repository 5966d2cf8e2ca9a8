"""Train the regressors of a system: evaluate on held-out families, fit on everything, save, track, promote the best."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from costmodel.errors import CostModelError
from costmodel.features.schema import SCHEMA
from costmodel.store import Store
from costmodel.training.artefact import Bundle, promote, save_bundle
from costmodel.training.dataset import Dataset, load_dataset
from costmodel.training.evaluation import Evaluation, evaluate
from costmodel.training.regressors import BASELINES, GNN_INSTALLED, LEARNERS, Learner
from costmodel.training.run_figures import run_figures
from costmodel.training.targets import layer_targets

__all__ = ["FOLDS", "TrainReport", "Trained", "train"]

# Groups in which families are left out, where there are more of them: each costs a training of every regressor.
FOLDS = 6


@dataclass(frozen=True)
class Trained:
    """One regressor that was trained and saved.

    Attributes:
        name: Of the regressor, "lightgbm" or "gnn".
        version: Of its bundle.
        path: Where that is.
        run_id: In the tracking store; None if tracking was off.
    """

    name: str
    version: str
    path: Path
    run_id: str | None

    def to_dict(self) -> dict[str, Any]:
        """An entry of `costmodel train --json`."""
        return {"name": self.name, "version": self.version, "path": str(self.path), "run_id": self.run_id}


@dataclass(frozen=True)
class TrainReport:
    """What a training run made.

    Attributes:
        system: Name of the system.
        champion: The regressor that answers now.
        others: Those that did worse on held-out families; they are saved, too.
        rows: Measured sequences they were fitted on.
        evaluation: The document of `costmodel evaluate`.
        warnings: What the reader should know, one sentence each.
    """

    system: str
    champion: Trained
    others: tuple[Trained, ...]
    rows: int
    evaluation: dict[str, Any]
    warnings: tuple[str, ...]

    @property
    def version(self) -> str:
        """Of the new champion."""
        return self.champion.version

    @property
    def path(self) -> Path:
        """The new champion's bundle."""
        return self.champion.path

    @property
    def run_id(self) -> str | None:
        """The new champion's, in the tracking store; None if tracking was off."""
        return self.champion.run_id

    def to_dict(self) -> dict[str, Any]:
        """The document that `costmodel train --json` prints."""
        return {
            "system": self.system,
            "predictor": {"name": self.champion.name, "version": self.version},
            "path": str(self.path),
            "rows": self.rows,
            "run_id": self.run_id,
            "others": [other.to_dict() for other in self.others],
            "evaluation": self.evaluation,
            "warnings": list(self.warnings),
        }


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
        progress: Told (done, total, what is next).

    Raises:
        UnknownSystemError: Nothing is known under that name.
        TrainingError: Too little is measured.
        ArtefactError: A regressor cannot be written.
    """
    dataset = load_dataset(store, system)
    groups = folds if len(dataset.all_families) > folds else None
    evaluation = evaluate(
        dataset,
        seeds=seeds,
        folds=groups,
        level=level,
        predictors={**learners, **BASELINES},
        jobs=jobs,
        progress=progress,
    )
    champion = evaluation.report["champion"]
    warnings = []
    if not GNN_INSTALLED:
        warnings.append("the graph neural network was not trained, it is not installed: pip install 'costmodel[gnn]'")
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
        saved[name] = _fitted(name, regressor, dataset, evaluation, bundles)
    promote(bundles, system, saved[champion][0].version)
    trained = []
    for of, settings in saved.values():
        if tracking is not None:
            try:
                run_id = _tracked(tracking, of, settings, dataset, evaluation)
                of = replace(of, run_id=run_id)
            except CostModelError as error:  # the regressor answers already, and is worth more than the record of it
                warnings.append(str(error))
                tracking = None  # who does not answer is not asked again
        trained.append(of)
    others = tuple(of for of in trained if of.name != champion)
    [best] = [of for of in trained if of.name == champion]
    return TrainReport(system, best, others, len(dataset), evaluation.report, tuple(dict.fromkeys(warnings)))


def _fitted(
    name: str, regressor: Learner, dataset: Dataset, evaluation: Evaluation, bundles: Path
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
        lower=seen.min(axis=0),
        upper=seen.max(axis=0),
        facts={
            "trained_at": now.isoformat(timespec="seconds"),
            "rows": len(dataset),
            "data_fingerprint": dataset.fingerprint,
            "seeds": evaluation.report["seeds"],
            "split": evaluation.report["split"],
            "accuracy": evaluation.report["predictors"][name]["model"],
        },
        source=regressor.to_text(),
    )
    return Trained(name, bundle.version, save_bundle(bundles, bundle), run_id=None), regressor.settings


def _tracked(
    folder: Path, trained: Trained, settings: Mapping[str, object], dataset: Dataset, evaluation: Evaluation
) -> str:
    from costmodel.training.tracking import track  # MLflow takes seconds to import

    return track(
        folder,
        system=dataset.system.name,
        run_name=f"{trained.name} {dataset.system.name} {trained.version}",
        parameters=settings,
        metrics=_flat_metrics(evaluation.report),
        tags={
            "data_fingerprint": dataset.fingerprint,
            "schema_fingerprint": SCHEMA.fingerprint,
            "split": evaluation.report["split"],
            "predictor": trained.name,
            "version": trained.version,
        },
        artefacts=trained.path,
        documents={"evaluation.json": evaluation.report},
        figures=run_figures(evaluation.report, trained.name),
        champion=trained.name == evaluation.report["champion"],
    )


def _flat_metrics(report: dict[str, Any]) -> dict[str, float]:
    flat = {
        f"{name}.{part}.{key}": float(value)
        for name, result in report["predictors"].items()
        for part in ("layer", "model", "model_unseen")
        for key, value in result[part].items()
        if value is not None and np.isfinite(value)
    }
    if report["noise_floor_mape"] is not None:
        flat["noise_floor_mape"] = report["noise_floor_mape"]
    return flat
