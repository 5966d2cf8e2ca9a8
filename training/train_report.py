"""The result of a training run: the bundles that were saved and their evaluation."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["TrainReport", "Trained"]


@dataclass(frozen=True)
class Trained:
    """A regressor that was trained and saved.

    Attributes:
        name: Name of the regressor, such as "lightgbm" or "gnn".
        version: Version of its bundle.
        path: Folder of its bundle.
        run_id: Id of its run in the tracking store; None if it was not tracked.
    """

    name: str
    version: str
    path: Path
    run_id: str | None

    def to_dict(self) -> dict[str, Any]:
        """Returns an entry of the document that `costmodel train --json` prints."""
        return {"name": self.name, "version": self.version, "path": str(self.path), "run_id": self.run_id}


@dataclass(frozen=True)
class TrainReport:
    """The result of a training run.

    Attributes:
        system: Name of the system.
        champion: The regressor that was promoted.
        others: Regressors with larger errors on held-out families, which are saved as well.
        rows: Number of measured sequences that the regressors were fitted on.
        evaluation: The document of `costmodel evaluate`.
        warnings: Warnings for the user, one sentence each.
        search: Result of the hyperparameter search; None if there was none.
    """

    system: str
    champion: Trained
    others: tuple[Trained, ...]
    rows: int
    evaluation: dict[str, Any]
    warnings: tuple[str, ...]
    search: dict[str, Any] | None = None

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
        """Id of the champion's run in the tracking store; None if it was not tracked."""
        return self.champion.run_id

    def to_dict(self) -> dict[str, Any]:
        """Returns the document that `costmodel train --json` prints."""
        return {
            "system": self.system,
            "predictor": {"name": self.champion.name, "version": self.version},
            "path": str(self.path),
            "rows": self.rows,
            "run_id": self.run_id,
            "others": [other.to_dict() for other in self.others],
            "evaluation": self.evaluation,
            "warnings": list(self.warnings),
            **({"search": self.search} if self.search else {}),
        }
