"""The result of a training run: the bundles that were saved and their evaluation."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from costmodel.training.evaluation.results import EvaluationReport

if TYPE_CHECKING:
    from costmodel.training.search import Search

__all__ = ["TrainReport", "Trained"]


@dataclass(frozen=True)
class Trained:
    """A regressor that was trained and saved.

    Attributes:
        name: Name of the regressor, such as "lightgbm" or "gnn".
        version: Version of the regressor's bundle.
        path: Folder of the bundle.
        run_id: Id of the bundle's run in MLflow; None if it was not recorded there.
    """

    name: str
    version: str
    path: Path
    run_id: str | None

    def to_dict(self) -> dict[str, Any]:
        """Returns the regressor's entry in the JSON document that `costmodel train --json` prints."""
        return {"name": self.name, "version": self.version, "path": str(self.path), "run_id": self.run_id}


@dataclass(frozen=True)
class TrainReport:
    """The result of a training run.

    Attributes:
        system: Name of the system.
        champion: The regressor that was promoted to champion.
        others: Regressors with larger errors on held-out lineages, which are saved as well.
        rows: Number of measured sequences that the regressors were fitted to.
        evaluation: Results of all predictors on held-out lineages.
        warnings: Warnings for the user, one sentence each.
        search: Result of the hyperparameter search; None if there was none.
    """

    system: str
    champion: Trained
    others: tuple[Trained, ...]
    rows: int
    evaluation: EvaluationReport
    warnings: tuple[str, ...]
    search: "Search | None" = None

    @property
    def version(self) -> str:
        """Version of the champion's bundle."""
        return self.champion.version

    @property
    def path(self) -> Path:
        """Folder of the champion's bundle."""
        return self.champion.path

    @property
    def run_id(self) -> str | None:
        """Id of the champion's run in MLflow; None if it was not recorded there."""
        return self.champion.run_id

    def to_dict(self) -> dict[str, Any]:
        """Returns the JSON document that `costmodel train --json` prints."""
        return {
            "system": self.system,
            "predictor": {"name": self.champion.name, "version": self.version},
            "path": str(self.path),
            "rows": self.rows,
            "run_id": self.run_id,
            "others": [other.to_dict() for other in self.others],
            "evaluation": self.evaluation.to_dict(),
            "warnings": list(self.warnings),
            **({"search": self.search.to_dict()} if self.search else {}),
        }
