"""What a training run made."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["TrainReport", "Trained"]


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
        search: What a search for hyperparameters found; None if there was none.
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
            **({"search": self.search} if self.search else {}),
        }
