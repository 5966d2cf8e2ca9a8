"""Lists the trained regressors of a folder, as described by the cards (`card.json`) of their bundles."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from costmodel.errors import ArtefactError
from costmodel.features.schema import SCHEMA
from costmodel.training.artefact import champion_of
from costmodel.training.evaluation.results import ModelMetrics

__all__ = ["TrainedRegressor", "list_regressors"]


@dataclass(frozen=True)
class TrainedRegressor:
    """A trained regressor in a list, as the card of its bundle (`card.json`) describes it.

    Attributes:
        system: System that the regressor was trained for.
        version: Version of the bundle.
        name: Name of the regressor, such as "lightgbm"; None if the card cannot be read.
        champion: Whether the regressor is the champion of its system.
        usable: Whether the card can be read and the regressor was trained on the feature schema of this costmodel.
        model_mape: Mean absolute relative error over models of held-out lineages; None if no model was measured whole.
        rows: Number of measured sequences that the regressor was fitted to; None if the card does not contain it.
        trained_at: Time of training in ISO 8601, UTC; None if the card does not contain it.
        accuracy: Metrics over models of held-out lineages; None if the card contains none.
    """

    system: str
    version: str
    name: str | None
    champion: bool
    usable: bool
    model_mape: float | None
    rows: int | None
    trained_at: str | None
    accuracy: ModelMetrics | None

    def to_dict(self) -> dict[str, Any]:
        """Returns the regressor's entry in the JSON list that `costmodel regressors --json` prints."""
        record = asdict(self)
        del record["accuracy"]
        return record


def list_regressors(folder: Path, system: str | None = None) -> list[TrainedRegressor]:
    """Lists the bundles under a folder by system, for each system the newest first, including damaged bundles.

    A system whose `champion.json` is damaged is listed without a champion.

    Args:
        folder: Folder of trained regressors, with a subfolder for each system.
        system: Name of the system whose bundles are listed; None for all systems.
    """
    bundles = []
    for path in sorted(folder.glob("*/*"), key=lambda path: path.name, reverse=True):
        name = path.parent.name
        if path.is_dir() and not path.name.startswith(".") and system in (None, name):
            bundles.append(_read(path, champion=path == _champion(folder, name)))
    return sorted(bundles, key=lambda trained: trained.system)


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
        accuracy = ModelMetrics.from_dict(facts["accuracy"]) if facts.get("accuracy") else None
        return TrainedRegressor(
            system,
            version,
            name,
            champion,
            usable=card["schema_fingerprint"] == SCHEMA.fingerprint,
            model_mape=accuracy.mape if accuracy else None,
            rows=facts.get("rows"),
            trained_at=facts.get("trained_at"),
            accuracy=accuracy,
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return TrainedRegressor(
            system, version, None, champion, usable=False, model_mape=None, rows=None, trained_at=None, accuracy=None
        )
