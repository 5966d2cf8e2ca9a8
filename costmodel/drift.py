"""How far the latencies that users saw are from predictions: a statistic that no single user decides.

Owners vote. The value of an owner is the median over models of the median logarithm of observed over predicted latency,
and the value of a system is the median over owners. So one of at least three owners, whatever and however much he
reports, cannot move the ratio out of the range of the others, nor turn the flag against all of them.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

__all__ = ["COUNTED_PER_MODEL", "Drift", "Observation", "StoredObservation", "drift_of"]

# Observations of one owner and one model that count: the newest ones, so that what was mended is seen to be.
COUNTED_PER_MODEL = 10
# Observations of an owner before his word counts, and the typical ratio from which on it is called drift. Users see
# latencies that are a few percent apart from one run to the next.
_FEWEST = 10
_DRIFTED = math.log(1.15)


@dataclass(frozen=True, slots=True)
class Observation:
    """A latency that somebody saw.

    Attributes:
        system: Name of the system on which the model ran.
        model: What the model is called.
        digest: Content hash of the model.
        latency_us: Latency as users see it.
        runs: Number of runs that the latency is the average of; None where that is not known.
        predicted_us: Latency that users were told to expect typically (p50).
        interval_us: Interval of that prediction.
        version: Version of the regressor that predicted; "none" where all was measured.
        observed_at: When, as the observer says; ISO 8601 in UTC. None for the time at which it is stored.
        owner: Name of the token that reported it; "local" where there are no tokens.
        idempotency_key: Text under which its owner may report it again without adding it twice.
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
        """Observed over predicted."""
        return self.latency_us / self.predicted_us

    @property
    def covered(self) -> bool:
        """Whether the latency lies in the interval of its prediction."""
        low, high = self.interval_us
        return low <= self.latency_us <= high


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredObservation(Observation):
    """An observation in a store.

    Attributes:
        id: Its number, which grows from one to the next and never names another observation.
        stored_at: When it was stored, by the clock of who stored it; ISO 8601 in UTC.
    """

    observed_at: str
    id: int
    stored_at: str


@dataclass(frozen=True, slots=True)
class Drift:
    """What recent observations of a system say of its predictions.

    An owner with fewer than ten observations does not count. While there is no other, `ratio`, `error` and `covered`
    are taken over all owners and `drifted` is false.

    Attributes:
        system: Name of the system.
        observations: Number of observations that were counted, at most ten of each owner and model.
        models: Number of different models among them.
        owners: Number of owners among them. With one owner everything here is his own word; with two, each can prevent
            `drifted` and neither can cause it alone; from three on no single owner decides anything.
        ratio: Observed over predicted, the median over owners; None without observations.
        error: |observed / predicted - 1|, the median over owners of their medians; None without observations.
        covered: Share of observations inside their intervals, the median over owners; None without observations.
        drifted: Whether more than half of the owners see latencies that are typically off by more than users' latencies
            vary, and off in the same direction.
        latest_at: When the newest of them was stored; None without observations.
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
        """An entry of `costmodel drift --json`."""
        return asdict(self)


def drift_of(system: str, observations: Sequence[StoredObservation]) -> Drift:
    """What observations of a system say of its predictions; those without a usable ratio are left out.

    Args:
        system: Name of the system.
        observations: Its observations, the newest first.
    """
    by_owner = _counted(observations)
    enough = {owner: seen for owner, seen in by_owner.items() if len(seen) >= _FEWEST}
    by_owner = enough or by_owner
    if not by_owner:
        return Drift(system, 0, 0, 0, None, None, None, drifted=False, latest_at=None)
    typical = [_typical(seen) for seen in by_owner.values()]
    votes = max(sum(log > _DRIFTED for log in typical), sum(log < -_DRIFTED for log in typical))
    counted = [one for seen in by_owner.values() for one in seen]
    return Drift(
        system=system,
        observations=len(counted),
        models=len({one.digest for one in counted}),
        owners=len(by_owner),
        ratio=math.exp(median(typical)),
        error=median(median(abs(one.ratio - 1) for one in seen) for seen in by_owner.values()),
        covered=median(sum(one.covered for one in seen) / len(seen) for seen in by_owner.values()),
        drifted=bool(enough) and votes > len(enough) / 2,
        latest_at=max(one.stored_at for one in counted),
    )


def _counted(observations: Sequence[StoredObservation]) -> dict[str, list[StoredObservation]]:
    """The observations that count, by owner: at most `COUNTED_PER_MODEL` of each model."""
    by_owner: dict[str, list[StoredObservation]] = {}
    numbers: dict[tuple[str, str], int] = {}
    for one in observations:
        usable = one.predicted_us > 0 and 0 < one.ratio < math.inf
        number = numbers.get((one.owner, one.digest), 0)
        if usable and number < COUNTED_PER_MODEL:
            numbers[one.owner, one.digest] = number + 1
            by_owner.setdefault(one.owner, []).append(one)
    return by_owner


def _typical(observations: Sequence[StoredObservation]) -> float:
    """The median over models of the median logarithm of the ratio: a model that is seen often is still one model."""
    by_model: dict[str, list[float]] = {}
    for one in observations:
        by_model.setdefault(one.digest, []).append(math.log(one.ratio))
    return median(median(logs) for logs in by_model.values())
