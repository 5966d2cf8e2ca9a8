"""The latency objective of a pod, read from the annotations of the pod."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from costmodel.serving.isolation.digest import DIGEST
from costmodel.serving.ranking import QUANTILES

__all__ = ["BATCH", "MODEL", "QUANTILE", "SLO", "SYSTEM_LABEL", "PodObjective", "objective_of"]

# Annotations of pods.
MODEL = "costmodel.dev/model"
BATCH = "costmodel.dev/batch"
SLO = "costmodel.dev/slo-us"
QUANTILE = "costmodel.dev/quantile"
# Label of nodes: the name of the system that a node is.
SYSTEM_LABEL = "costmodel.dev/system"

_NUMBER = re.compile(r"[0-9]+(\.[0-9]+)?")
_MAX_BATCH = 2**31 - 1
_MAX_SLO_US = 1e15
_MIN_SLO_US = 1e-3


@dataclass(frozen=True, slots=True)
class PodObjective:
    """The model that a pod serves, and the latency objective of the pod.

    Attributes:
        model: Digest of the model, under which the service knows it.
        batch: Batch size; None for that of the model.
        slo_us: Latency in microseconds that must not be exceeded; None without an objective.
        quantile: Quantile that the objective refers to: "p50", "p90", "p99", or "quiet" for the quiet machine.
    """

    model: str
    batch: int | None = None
    slo_us: float | None = None
    quantile: str = "p50"


def objective_of(annotations: Mapping[str, str]) -> PodObjective | None:
    """Returns the latency objective that the annotations of a pod state; None if they name no model.

    Raises:
        ValueError: An annotation is invalid; the message names it.
    """
    model = annotations.get(MODEL)
    if model is None:
        return None
    if not DIGEST.fullmatch(model):
        raise ValueError(f"{MODEL} is {model[:80]!r}: give the digest that the service returned, sha256:...")
    quantile = annotations.get(QUANTILE, "p50")
    if quantile not in QUANTILES:
        raise ValueError(f"{QUANTILE} is {quantile[:80]!r}: give one of {', '.join(QUANTILES)}")
    return PodObjective(model, _batch(annotations.get(BATCH)), _slo_us(annotations.get(SLO)), quantile)


def _batch(text: str | None) -> int | None:
    if text is None:
        return None
    if not re.fullmatch("[0-9]{1,10}", text) or not 1 <= int(text) <= _MAX_BATCH:
        raise ValueError(f"{BATCH} is {text[:80]!r}: give a whole number from 1 on")
    return int(text)


def _slo_us(text: str | None) -> float | None:
    if text is None:
        return None
    if not _NUMBER.fullmatch(text) or not _MIN_SLO_US <= float(text) <= _MAX_SLO_US:
        raise ValueError(f"{SLO} is {text[:80]!r}: give a number of microseconds, such as 20000")
    return float(text)
