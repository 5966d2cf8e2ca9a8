"""Artefacts: a trained regressor as files that load in five years and execute nothing.

A bundle is a folder: `model.onnx` (what serves), `support.npz` (arrays of numbers: the layers that were trained on),
`card.json` (schema fingerprint, system, calibration, accuracy) and `lightgbm.txt` where that is what it was made from.
`champion.json` beside the bundles of a system names the one that answers. No pickle anywhere.
"""

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from costmodel.errors import ArtefactError, UnknownVersionError
from costmodel.features.schema import SCHEMA
from costmodel.in_place import InPlace
from costmodel.training.calibration import Calibration
from costmodel.training.support import Support

__all__ = ["CARD_VERSION", "Bundle", "bundle_of", "champion_of", "load_bundle", "promote", "save_bundle"]

CARD_VERSION = 2
_CARD, _MODEL, _SUPPORT = "card.json", "model.onnx", "support.npz"
_CHAMPION = "champion.json"


@dataclass(frozen=True)
class Bundle:
    """A trained regressor with all that is needed to answer with it.

    Attributes:
        name: Of the regressor, "lightgbm" or "gnn".
        version: Unique among those of the system.
        system: Name of the system that it was trained for.
        model: ONNX: features, and edges where it takes them, to log(cost / bound).
        calibration: Of its intervals.
        support: What it was trained on.
        facts: Data fingerprint, number of rows, accuracy: for people.
        predicted_in_place: What a predicted cost becomes in a model.
        measured_in_place: What a measured cost becomes in a model.
        source: The regressor's own text format; empty if it has none.
    """

    name: str
    version: str
    system: str
    model: bytes
    calibration: Calibration
    support: Support
    facts: Mapping[str, Any]
    predicted_in_place: InPlace = field(default_factory=InPlace)
    measured_in_place: InPlace = field(default_factory=InPlace)
    source: str = ""


def save_bundle(folder: Path, bundle: Bundle) -> Path:
    """Write a bundle under `folder`/<system>/<version>, all of it or nothing.

    Raises:
        ArtefactError: The folder cannot be written.
    """
    target = folder / bundle.system / bundle.version
    partial = target.with_name(f".{bundle.version}.partial")
    card = {
        "card_version": CARD_VERSION,
        "name": bundle.name,
        "version": bundle.version,
        "system": bundle.system,
        "schema_version": SCHEMA.version,
        "schema_fingerprint": SCHEMA.fingerprint,
        "calibration": bundle.calibration.to_dict(),
        "in_place": {
            "predicted": bundle.predicted_in_place.to_dict(),
            "measured": bundle.measured_in_place.to_dict(),
        },
        "facts": dict(bundle.facts),
    }
    try:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        (partial / _MODEL).write_bytes(bundle.model)
        (partial / _SUPPORT).write_bytes(bundle.support.to_bytes())
        if bundle.source:
            (partial / f"{bundle.name}.txt").write_text(bundle.source)
        (partial / _CARD).write_text(json.dumps(card, indent=1, allow_nan=False))
        os.replace(partial, target)
    except OSError as error:
        raise ArtefactError(
            f"the trained regressor cannot be written to {target} ({error.strerror}): check the folder and the space"
        ) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return target


def promote(folder: Path, system: str, version: str) -> None:
    """Make a saved bundle the one that answers for its system.

    Raises:
        ArtefactError: There is no such bundle, or the pointer to it cannot be written.
    """
    pointer = folder / system / _CHAMPION
    partial = pointer.with_suffix(".partial")
    if not (folder / system / version / _CARD).is_file():
        raise ArtefactError(f"{system} has no regressor {version} in {folder}: train one with `costmodel train`")
    try:
        partial.write_text(json.dumps({"version": version}))
        os.replace(partial, pointer)
    except OSError as error:
        raise ArtefactError(f"{pointer} cannot be written ({error.strerror}): check its folder") from error


def champion_of(folder: Path, system: str) -> Path | None:
    """The bundle that answers for a system; None if nothing was trained for it.

    Raises:
        ArtefactError: The pointer is damaged.
    """
    pointer = folder / system / _CHAMPION
    try:
        return folder / system / str(json.loads(pointer.read_text())["version"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ArtefactError(f"{pointer} is damaged: train again with `costmodel train --system {system}`") from error


def bundle_of(folder: Path, system: str, version: str) -> Path:
    """One bundle of a system, by its version.

    Raises:
        ArtefactError: There is none.
    """
    # Looked up among those that are there: a version may come from a stranger, and become a path nowhere else.
    found = next((path for path in (folder / system).glob("*") if path.name == version), None)
    if found is None or not (found / _CARD).is_file():
        raise UnknownVersionError(
            f"{system} has no regressor {version}: `costmodel regressors --system {system}` lists them"
        )
    return found


def load_bundle(path: Path) -> Bundle:
    """Read a bundle.

    Raises:
        ArtefactError: It is incomplete, of a newer format, or trained on another feature schema.
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
            predicted_in_place=InPlace.from_dict(card["in_place"]["predicted"]),
            measured_in_place=InPlace.from_dict(card["in_place"]["measured"]),
        )
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        raise ArtefactError(
            f"the regressor in {path} is damaged ({error}): train again with `costmodel train`"
        ) from error
