"""What was trained: the bundles of a folder, as their cards describe them."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from costmodel.errors import ArtefactError
from costmodel.features.schema import SCHEMA
from costmodel.training.artefact import champion_of

__all__ = ["TrainedRegressor", "list_regressors"]


@dataclass(frozen=True)
class TrainedRegressor:
    """One bundle, as people choose by.

    Attributes:
        system: That it was trained for.
        version: Of the bundle.
        name: Of the regressor, "lightgbm"; None where the card cannot be read.
        champion: Whether it answers for its system.
        usable: Whether it can: its card can be read, and it was trained on the features of this costmodel.
        model_mape: Mean error over models of families left out; None where no model was measured whole.
        rows: Measured sequences that it was fitted on.
        trained_at: ISO 8601, UTC; None where the card does not say.
        accuracy: All that the card says of families left out; None where it says nothing.
    """

    system: str
    version: str
    name: str | None
    champion: bool
    usable: bool
    model_mape: float | None = None
    rows: int | None = None
    trained_at: str | None = None
    accuracy: Mapping[str, Any] | None = None

    def to_dict(self) -> dict[str, Any]:
        """An entry of `costmodel regressors --json`."""
        record = asdict(self)
        del record["accuracy"]
        return record


def list_regressors(folder: Path, system: str | None = None) -> list[TrainedRegressor]:
    """The bundles under `folder`, by system, the newest first; damaged ones too.

    Args:
        folder: Of trained regressors, one folder for each system.
        system: Only those of it.

    A system whose champion cannot be told, because the file that names it is damaged, has none.
    """
    found = []
    for path in sorted(folder.glob("*/*"), key=lambda path: path.name, reverse=True):
        of = path.parent.name
        if path.is_dir() and not path.name.startswith(".") and system in (None, of):
            found.append(_read(path, champion=path == _champion(folder, of)))
    return sorted(found, key=lambda trained: trained.system)


def _champion(folder: Path, system: str) -> Path | None:
    try:
        return champion_of(folder, system)
    except ArtefactError:
        return None


def _read(path: Path, *, champion: bool) -> TrainedRegressor:
    system, version = path.parent.name, path.name
    try:
        card = json.loads((path / "card.json").read_text())
        name, facts = str(card["name"]), card["facts"]
        accuracy, rows, at = facts.get("accuracy") or {}, facts.get("rows"), facts.get("trained_at")
        usable = card["schema_fingerprint"] == SCHEMA.fingerprint
        return TrainedRegressor(
            system, version, name, champion, usable, accuracy.get("mape"), rows, at, accuracy or None
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return TrainedRegressor(system, version, None, champion, usable=False)
