"""Lists the trained regressors of a folder, as the cards of their bundles describe them."""

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
    """A bundle in a list of trained regressors.

    Attributes:
        system: System that the regressor was trained for.
        version: Version of the bundle.
        name: Name of the regressor, such as "lightgbm"; None if the card cannot be read.
        champion: Whether the regressor is the champion of its system.
        usable: Whether the card can be read and the regressor was trained on the feature schema of this costmodel.
        model_mape: Mean relative error over models of held-out families; None if no model was measured whole.
        rows: Number of measured sequences that the regressor was fitted on.
        trained_at: Time of training in ISO 8601, UTC; None if the card does not contain it.
        accuracy: Metrics over models of held-out families; None if the card contains none.
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
        """Returns an entry of the list that `costmodel regressors --json` prints."""
        record = asdict(self)
        del record["accuracy"]
        return record


def list_regressors(folder: Path, system: str | None = None) -> list[TrainedRegressor]:
    """Lists the bundles under `folder` by system, newest first, including damaged ones.

    A system whose `champion.json` is damaged is listed without a champion.

    Args:
        folder: Folder of trained regressors, with a subfolder for each system.
        system: Name of the only system to list; None for all.
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
        accuracy, rows, at = facts.get("accuracy") or {}, facts.get("rows"), facts.get("trained_at")
        usable = card["schema_fingerprint"] == SCHEMA.fingerprint
        return TrainedRegressor(
            system, version, name, champion, usable, accuracy.get("mape"), rows, at, accuracy or None
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return TrainedRegressor(system, version, None, champion, usable=False)
