"""Drift of a system: a robust statistic of observed over predicted latencies, which no single owner can decide.

For each owner and model, the median of the logarithms of observed over predicted latency is taken; for each owner, the
median over models; for the system, the median over owners. Whatever an owner reports, and however much, the ratio of a
system with at least three owners therefore stays within the range of the other owners' ratios, and the owner cannot
decide against all others whether the system has drifted.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

__all__ = ["COUNTED_PER_MODEL", "LEAST_OBSERVATIONS", "Drift", "Observation", "StoredObservation", "drift_of"]

# Number of observations of one owner and one model that count: the newest, so that corrected predictions show.
COUNTED_PER_MODEL = 10
# Minimum number of observations for an owner to count, and the log ratio beyond which an owner's value counts as drift:
# latencies that users observe vary by a few percent from run to run.
LEAST_OBSERVATIONS = 10
_DRIFT_LOG_RATIO = math.log(1.15)


@dataclass(frozen=True, slots=True)
class Observation:
    """A latency that users observed for a model on a system, with the latency that was predicted.

    Attributes:
        system: Name of the system on which the model ran.
        model: Name of the model.
        digest: Digest of the model.
        latency_us: Observed latency in microseconds.
        runs: Number of runs that the latency is the average of; None if unknown.
        predicted_us: Predicted median (p50) of the latencies that users observe, in microseconds.
        interval_us: Lower and upper bound of the interval of `predicted_us`, in microseconds.
        version: Version of the regressor that made the prediction; "none" if no regressor was used.
        observed_at: Time of the observation, as its owner reported it; ISO 8601 in UTC. None for the time of storing.
        owner: Name of the token with which the observation was reported; "local" if the service has no tokens.
        idempotency_key: Key that the owner chose: the observation may be sent again with the same key, and is stored
            only once. None if the owner gave none.
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
        """Observed latency divided by the predicted latency."""
        return self.latency_us / self.predicted_us

    @property
    def covered(self) -> bool:
        """Whether the observed latency is inside the interval of the predicted latency."""
        low, high = self.interval_us
        return low <= self.latency_us <= high


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredObservation(Observation):
    """An observation as it is stored in a results store.

    Attributes:
        observed_at: Time of the observation; ISO 8601 in UTC.
        id: Identifier: greater than those of all observations stored before, and never used again.
        stored_at: Time at which the observation was stored, by the clock of the service; ISO 8601 in UTC.
    """

    observed_at: str
    id: int
    stored_at: str


@dataclass(frozen=True, slots=True)
class Drift:
    """The drift of a system: how far recently observed latencies are from the predicted ones.

    Owners with fewer than ten observations are left out. If all owners have fewer, none is left out of `ratio`, `error`
    and `covered`, and `drifted` is false.

    Attributes:
        system: Name of the system.
        observations: Number of observations that count: the ten newest, at most, of each owner and model.
        models: Number of distinct models in these observations.
        owners: Number of owners of these observations. If there is only one owner, that owner determines all values. If
            there are two, each can prevent `drifted`, but neither can cause it alone. If there are three or more, no
            single owner decides anything.
        ratio: Ratio of observed to predicted latency: the median over owners of each owner's typical ratio; None
            without observations.
        error: Relative error |observed / predicted - 1|: the median over owners of the median over each owner's
            observations; None without observations.
        covered: Share of observed latencies inside their predicted intervals: the median over owners of each owner's
            share; None without observations.
        judged: Whether an owner reported enough observations to tell whether the system has drifted.
        drifted: Whether more than half of the owners observe latencies that are typically above the predicted ones, or
            more than half below them, in each case by more than the usual variation (a factor of 1.15).
        latest_at: Time at which the newest of these observations was stored; ISO 8601 in UTC. None without
            observations.
    """

    system: str
    observations: int
    models: int
    owners: int
    ratio: float | None
    error: float | None
    covered: float | None
    judged: bool
    drifted: bool
    latest_at: str | None


def drift_of(system: str, observations: Sequence[StoredObservation]) -> Drift:
    """Returns the drift of a system.

    Observations whose ratio of observed to predicted latency is not positive and finite are left out.

    Args:
        system: Name of the system.
        observations: Observations of the system, newest first.
    """
    by_owner = _counted_by_owner(observations)
    enough = {owner: own for owner, own in by_owner.items() if len(own) >= LEAST_OBSERVATIONS}
    by_owner = enough or by_owner
    if not by_owner:
        return Drift(system, 0, 0, 0, None, None, None, judged=False, drifted=False, latest_at=None)
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
        judged=bool(enough),
        drifted=bool(enough) and votes > len(enough) / 2,
        latest_at=max(one.stored_at for one in counted),
    )


def _counted_by_owner(observations: Sequence[StoredObservation]) -> dict[str, list[StoredObservation]]:
    """Returns the observations that count for the drift, by owner: the `COUNTED_PER_MODEL` newest of each model."""
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
    """Returns one number for the observations of one owner: the median over models of each model's median log ratio.

    A log ratio is the logarithm of observed over predicted latency. Thus all models count equally.
    """
    by_model: dict[str, list[float]] = {}
    for one in observations:
        by_model.setdefault(one.digest, []).append(math.log(one.ratio))
    return median(median(logs) for logs in by_model.values())
