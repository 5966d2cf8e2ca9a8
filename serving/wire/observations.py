"""Conversion of observations to JSON answers."""

from dataclasses import asdict
from typing import Any

from costmodel.serving.observations.drift import StoredObservation

__all__ = ["observation_document"]


def observation_document(stored: StoredObservation) -> dict[str, Any]:
    """Returns an observation as JSON-serialisable data, including its ratio to the prediction and `covered`."""
    return asdict(stored) | {"ratio": stored.ratio, "covered": stored.covered}
