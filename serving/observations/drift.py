"""Drift: a robust statistic of observed over predicted latencies, which no single owner can decide.

The value of an owner is the median over models of the median logarithm of observed over predicted latency, and the
value of a system is the median over owners. Hence, with at least three owners, no owner can move the ratio out of the
range of the others, nor set or clear the flag against all of them, whatever and however much that owner reports.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

__all__ = ["COUNTED_PER_MODEL", "Drift", "Observation", "StoredObservation", "drift_of"]

# Number of observations of one owner and one model that count: the newest, so that corrected predictions show.
COUNTED_PER_MODEL = 10
# Minimum number of observations for an owner to count, and the log ratio beyond which an owner's value counts as drift:
# latencies that users observe vary by a few percent from run to run.
_LEAST_OBSERVATIONS = 10
_DRIFT_LOG_RATIO = math.log(1.15)


@dataclass(frozen=True, slots=True)
class Observation:
    """A latency that a user observed, with its prediction.

    Attributes:
        system: Name of the system on which the model ran.
        model: Name of the model.
        digest: Digest of the model.
        latency_us: Observed latency in microseconds.
        runs: Number of runs that the latency is the average of; None if unknown.
        predicted_us: Predicted latency that users observe typically (p50), in microseconds.
        interval_us: Interval of the prediction in microseconds.
        version: Version of the regressor that predicted; "none" without a regressor.
        observed_at: Time of the observation as reported; ISO 8601 in UTC. None for the time at which it is stored.
        owner: Name of the token that reported the observation; "local" if the service has no tokens.
        idempotency_key: Key under which its owner may report the observation again without storing it twice.
    """

    system: str
    model: str
    digest: str
    latency_us: float
    runs: int | None
    predicted_us: float
    interval_us: tuple[float, float]
    version: str
    observed_at: str | None = None
    owner: str = "local"
    idempotency_key: str | None = None

    @property
    def ratio(self) -> float:
        """Observed over predicted latency."""
        return self.latency_us / self.predicted_us

    @property
    def covered(self) -> bool:
        """Whether the latency is inside the interval of its prediction."""
        low, high = self.interval_us
        return low <= self.latency_us <= high


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredObservation(Observation):
    """An observation in a store.

    Attributes:
        observed_at: Time of the observation; ISO 8601 in UTC.
        id: Identifier, which increases with each observation and is never reused.
        stored_at: Time of storing, by the clock of the service; ISO 8601 in UTC.
    """

    observed_at: str
    id: int
    stored_at: str


@dataclass(frozen=True, slots=True)
class Drift:
    """The drift of a system: a comparison of recent observations with predictions.

    Owners with fewer than ten observations are left out. If there are no others, `ratio`, `error` and `covered` are
    taken over all owners and `drifted` is false.

    Attributes:
        system: Name of the system.
        observations: Number of observations that count, at most ten of each owner and model.
        models: Number of distinct models of these observations.
        owners: Number of owners of these observations. A single owner determines all values; of two, each can prevent
            `drifted` and neither can cause it alone; with three or more no single owner decides anything.
        ratio: Observed over predicted latency, the median over owners; None without observations.
        error: |observed / predicted - 1|, the median over owners of their medians; None without observations.
        covered: Share of observations inside their intervals, the median over owners; None without observations.
        drifted: Whether more than half of the owners observe latencies that typically differ from predictions by more
            than the usual variation (15%), in the same direction.
        latest_at: Time at which the newest of these observations was stored; None without observations.
    """

    system: str
    observations: int
    models: int
    owners: int
    ratio: float | None
    error: float | None
    covered: float | None
    drifted: bool
    latest_at: str | None

    def to_dict(self) -> dict[str, Any]:
        """Returns an entry of `costmodel drift --json`."""
        return asdict(self)


def drift_of(system: str, observations: Sequence[StoredObservation]) -> Drift:
    """Returns the drift of a system; observations without a positive, finite ratio are left out.

    Args:
        system: Name of the system.
        observations: Observations of the system, newest first.
    """
    by_owner = _counted_by_owner(observations)
    enough = {owner: own for owner, own in by_owner.items() if len(own) >= _LEAST_OBSERVATIONS}
    by_owner = enough or by_owner
    if not by_owner:
        return Drift(system, 0, 0, 0, None, None, None, drifted=False, latest_at=None)
    log_ratios = [_median_log_ratio(own) for own in by_owner.values()]
    votes = max(sum(log > _DRIFT_LOG_RATIO for log in log_ratios), sum(log < -_DRIFT_LOG_RATIO for log in log_ratios))
    counted = [one for own in by_owner.values() for one in own]
    return Drift(
        system=system,
        observations=len(counted),
        models=len({one.digest for one in counted}),
        owners=len(by_owner),
        ratio=math.exp(median(log_ratios)),
        error=median(median(abs(one.ratio - 1) for one in own) for own in by_owner.values()),
        covered=median(sum(one.covered for one in own) / len(own) for own in by_owner.values()),
        drifted=bool(enough) and votes > len(enough) / 2,
        latest_at=max(one.stored_at for one in counted),
    )


def _counted_by_owner(observations: Sequence[StoredObservation]) -> dict[str, list[StoredObservation]]:
    """Returns the observations that count, by owner: at most `COUNTED_PER_MODEL` of each model."""
    by_owner: dict[str, list[StoredObservation]] = {}
    counts: dict[tuple[str, str], int] = {}
    for one in observations:
        usable = one.predicted_us > 0 and 0 < one.ratio < math.inf
        count = counts.get((one.owner, one.digest), 0)
        if usable and count < COUNTED_PER_MODEL:
            counts[one.owner, one.digest] = count + 1
            by_owner.setdefault(one.owner, []).append(one)
    return by_owner


def _median_log_ratio(observations: Sequence[StoredObservation]) -> float:
    """Returns the median over models of the median log ratio, so that models count equally."""
    by_model: dict[str, list[float]] = {}
    for one in observations:
        by_model.setdefault(one.digest, []).append(math.log(one.ratio))
    return median(median(logs) for logs in by_model.values())
