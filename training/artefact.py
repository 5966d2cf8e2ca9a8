"""Artefacts: trained regressors as files in durable formats that execute no code when they are loaded.

A bundle is a folder with `model.onnx` (the regressor that predictions are made with), `support.npz` (the layers that it
was trained on, as arrays of numbers), `card.json` (schema fingerprint, system, calibration, accuracy) and, for a
regressor with a text format of its own, a file such as `lightgbm.txt`. A system's bundles lie in one folder, where
`champion.json` names the bundle that is the champion. Nothing is pickled.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from costmodel.atomic_write import atomic_file, atomic_folder
from costmodel.errors import ArtefactError, UnknownVersionError
from costmodel.estimate.context_correction import ContextCorrection
from costmodel.features.schema import SCHEMA
from costmodel.training.calibration import Calibration
from costmodel.training.support import Support

__all__ = ["CARD_VERSION", "Bundle", "bundle_of", "champion_of", "load_bundle", "promote", "save_bundle"]

CARD_VERSION = 2
_CARD, _MODEL, _SUPPORT = "card.json", "model.onnx", "support.npz"
_CHAMPION = "champion.json"


@dataclass(frozen=True)
class Bundle:
    """A trained regressor with everything that is needed to predict with it.

    Attributes:
        name: Name of the regressor, such as "lightgbm" or "gnn".
        version: Version of the bundle, unique among the bundles of the system.
        system: Name of the system that the regressor was trained for.
        model: ONNX model that maps the features of layers, and the edges between them if it uses these, to log(cost /
            analytical bound) of each layer.
        calibration: Calibration of the prediction intervals.
        support: Layers that the regressor was trained on.
        facts: Information for people: data fingerprint, number of rows of the data set, accuracy.
        predicted_correction: Context correction for predicted costs.
        measured_correction: Context correction for measured costs.
        source: The regressor in its own text format; empty if it has none.
    """

    name: str
    version: str
    system: str
    model: bytes
    calibration: Calibration
    support: Support
    facts: Mapping[str, Any]
    predicted_correction: ContextCorrection = field(default_factory=ContextCorrection)
    measured_correction: ContextCorrection = field(default_factory=ContextCorrection)
    source: str = ""


def save_bundle(folder: Path, bundle: Bundle) -> Path:
    """Writes a bundle to the folder `folder`/<system>/<version>, completely or not at all, and returns its path.

    Raises:
        ArtefactError: The folder cannot be written.
    """
    target = folder / bundle.system / bundle.version
    card = {
        "card_version": CARD_VERSION,
        "name": bundle.name,
        "version": bundle.version,
        "system": bundle.system,
        "schema_version": SCHEMA.version,
        "schema_fingerprint": SCHEMA.fingerprint,
        "calibration": bundle.calibration.to_dict(),
        "in_place": {
            "predicted": bundle.predicted_correction.to_dict(),
            "measured": bundle.measured_correction.to_dict(),
        },
        "facts": dict(bundle.facts),
    }
    try:
        with atomic_folder(target) as partial:
            (partial / _MODEL).write_bytes(bundle.model)
            (partial / _SUPPORT).write_bytes(bundle.support.to_bytes())
            if bundle.source:
                (partial / f"{bundle.name}.txt").write_text(bundle.source)
            (partial / _CARD).write_text(json.dumps(card, indent=1, allow_nan=False))
    except OSError as error:
        raise ArtefactError(
            f"the trained regressor cannot be written to {target} ({error.strerror}): check the folder and the space"
        ) from error
    return target


def promote(folder: Path, system: str, version: str) -> None:
    """Makes the saved bundle of a given version the champion of its system.

    Raises:
        ArtefactError: There is no such bundle, or `champion.json` cannot be written.
    """
    pointer = folder / system / _CHAMPION
    if not (folder / system / version / _CARD).is_file():
        raise ArtefactError(f"{system} has no regressor {version} in {folder}: train one with `costmodel train`")
    try:
        with atomic_file(pointer) as partial:
            partial.write_text(json.dumps({"version": version}))
    except OSError as error:
        raise ArtefactError(f"{pointer} cannot be written ({error.strerror}): check its folder") from error


def champion_of(folder: Path, system: str) -> Path | None:
    """Returns the folder of the bundle that is the champion of a system; None if the system has no champion.

    Raises:
        ArtefactError: `champion.json` is damaged.
    """
    pointer = folder / system / _CHAMPION
    try:
        return folder / system / str(json.loads(pointer.read_text())["version"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ArtefactError(f"{pointer} is damaged: train again with `costmodel train --system {system}`") from error


def bundle_of(folder: Path, system: str, version: str) -> Path:
    """Returns the folder of the bundle that has the given version among the bundles of a system.

    Raises:
        UnknownVersionError: The system has no complete bundle of that version.
    """
    # Compared with the existing folders, because a version may come from an untrusted client and must not form a path.
    found = next((path for path in (folder / system).glob("*") if path.name == version), None)
    if found is None or not (found / _CARD).is_file():
        raise UnknownVersionError(
            f"{system} has no regressor {version}: `costmodel regressors --system {system}` lists them"
        )
    return found


def load_bundle(path: Path) -> Bundle:
    """Reads a bundle from its folder, except the regressor's own text format.

    Raises:
        ArtefactError: The bundle is incomplete or damaged, has a newer format, or was trained on another feature
            schema.
    """
    try:
        card = json.loads((path / _CARD).read_text())
        if card["card_version"] > CARD_VERSION:
            raise ArtefactError(
                f"the regressor in {path} has format {card['card_version']} and this costmodel knows {CARD_VERSION}: "
                "upgrade costmodel or train again"
            )
        SCHEMA.check(card["schema_fingerprint"], f"the regressor in {path}")
        return Bundle(
            name=card["name"],
            version=card["version"],
            system=card["system"],
            model=(path / _MODEL).read_bytes(),
            calibration=Calibration.from_dict(card["calibration"]),
            support=Support.from_bytes((path / _SUPPORT).read_bytes()),
            facts=card["facts"],
            predicted_correction=ContextCorrection.from_dict(card["in_place"]["predicted"]),
            measured_correction=ContextCorrection.from_dict(card["in_place"]["measured"]),
        )
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        raise ArtefactError(
            f"the regressor in {path} is damaged ({error}): train again with `costmodel train`"
        ) from error
