"""Train the regressor of a system: evaluate on held-out families, fit on everything, save, track, promote."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from costmodel.errors import CostModelError
from costmodel.features.schema import SCHEMA
from costmodel.store import Store
from costmodel.training.artefact import Bundle, promote, save_bundle
from costmodel.training.boosted import LightGBMRegressor
from costmodel.training.dataset import load_dataset
from costmodel.training.evaluation import evaluate
from costmodel.training.targets import layer_targets

__all__ = ["TrainReport", "train"]

SERVED = "lightgbm"


@dataclass(frozen=True)
class TrainReport:
    """What a training run made.

    Attributes:
        system: Name of the system.
        version: Of the new champion.
        path: Its bundle.
        rows: Measured sequences it was fitted on.
        evaluation: The document of `costmodel evaluate`.
        run_id: In the tracking store; None if tracking was off.
        warnings: What the reader should know, one sentence each.
    """

    system: str
    version: str
    path: Path
    rows: int
    evaluation: dict[str, Any]
    run_id: str | None
    warnings: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """The document that `costmodel train --json` prints."""
        return {
            "system": self.system,
            "predictor": {"name": SERVED, "version": self.version},
            "path": str(self.path),
            "rows": self.rows,
            "run_id": self.run_id,
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
    level: float = 0.9,
    jobs: int = 1,
    progress: Callable[[int, int, str], None] | None = None,
) -> TrainReport:
    """Train and promote the regressor of `system`.

    Args:
        store: Where its measurements are.
        system: Its name.
        bundles: Folder of trained regressors.
        tracking: Folder of MLflow's default store; None for no tracking.
        seeds: Of the evaluation; the first is that of the regressor which is kept.
        level: Nominal coverage of intervals.
        jobs: Families evaluated at once.
        progress: Told (done, total, what is next).

    Raises:
        UnknownSystemError: Nothing is known under that name.
        TrainingError: Too little is measured.
        ArtefactError: The regressor cannot be written.
    """
    dataset = load_dataset(store, system)
    evaluation = evaluate(dataset, seeds=seeds, level=level, jobs=jobs, progress=progress)
    regressor = LightGBMRegressor(seeds[0], threads=jobs)
    regressor.fit(dataset.encoded, dataset.latencies_us)
    seen = dataset.encoded.features[layer_targets(dataset.encoded, dataset.latencies_us)[0]]
    warnings = []
    if evaluation.best != SERVED:
        warnings.append(
            f"on held-out families the baseline {evaluation.best} does better than {SERVED}: measure more models"
        )
    bundle = Bundle(
        name=SERVED,
        version=f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{dataset.fingerprint[:8]}",
        system=system,
        model=regressor.to_onnx(),
        calibration=evaluation.calibrations[SERVED],
        lower=seen.min(axis=0),
        upper=seen.max(axis=0),
        facts={
            "rows": len(dataset),
            "data_fingerprint": dataset.fingerprint,
            "seeds": list(seeds),
            "split": evaluation.report["split"],
            "accuracy": evaluation.report["predictors"][SERVED]["model"],
        },
        source=regressor.to_text(),
    )
    path = save_bundle(bundles, bundle)
    promote(bundles, system, bundle.version)
    run_id = None
    if tracking is not None:
        try:
            from costmodel.training.tracking import track  # MLflow takes seconds to import

            run_id = track(
                tracking,
                run_name=f"{SERVED} {system} {bundle.version}",
                parameters={**regressor.parameters, "rounds": regressor.rounds},
                metrics=_flat_metrics(evaluation.report),
                tags={
                    "system": system,
                    "data_fingerprint": dataset.fingerprint,
                    "schema_fingerprint": SCHEMA.fingerprint,
                    "predictor": SERVED,
                    "version": bundle.version,
                },
                artefacts=path,
                documents={"evaluation.json": evaluation.report},
            )
        except CostModelError as error:  # the regressor answers already, and is worth more than the record of it
            warnings.append(str(error))
    return TrainReport(system, bundle.version, path, len(dataset), evaluation.report, run_id, tuple(warnings))


def _flat_metrics(report: dict[str, Any]) -> dict[str, float]:
    flat = {
        f"{name}.{part}.{key}": float(value)
        for name, result in report["predictors"].items()
        for part in ("layer", "model")
        for key, value in result[part].items()
        if value is not None and np.isfinite(value)
    }
    if report["noise_floor_mape"] is not None:
        flat["noise_floor_mape"] = report["noise_floor_mape"]
    return flat
