"""Observations as answers."""

from dataclasses import asdict
from typing import Any

from costmodel.drift import StoredObservation

__all__ = ["observation_document"]


def observation_document(stored: StoredObservation) -> dict[str, Any]:
    """An observation as JSON, with what it says of the prediction."""
    return asdict(stored) | {"ratio": stored.ratio, "covered": stored.covered}
