"""Latencies that users saw, each beside its prediction, and how far the two have drifted apart."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from sqlalchemy import func, insert, select

from costmodel import database
from costmodel.database import Database

__all__ = ["Drift", "Observation", "Observations", "drift_of"]

# What counts for drift: the last of a system.
_RECENT = 200
# Observations of a system before anything is said of it, and the typical ratio from which on it is called drift. Users
# see latencies that are a few percent apart from one run to the next.
_FEWEST = 10
_DRIFTED = math.log(1.15)


@dataclass(frozen=True, slots=True)
class Observation:
    """A latency that somebody saw.

    Attributes:
        system: Where.
        model: What it is called.
        digest: Content hash of the model.
        latency_us: As users see it.
        runs: That it is the average of; None where that is not known.
        predicted_us: What users were said to see typically (p50).
        interval_us: Of that.
        version: Of the regressor that said so; "none" where all was measured.
        observed_at: ISO 8601, UTC.
    """

    system: str
    model: str
    digest: str
    latency_us: float
    runs: int | None
    predicted_us: float
    interval_us: tuple[float, float]
    version: str
    observed_at: str

    @property
    def ratio(self) -> float:
        """Observed over predicted."""
        return self.latency_us / self.predicted_us

    @property
    def covered(self) -> bool:
        """Whether it lies in the interval."""
        low, high = self.interval_us
        return low <= self.latency_us <= high


@dataclass(frozen=True, slots=True)
class Drift:
    """What recent observations of a system say of its predictions.

    Attributes:
        system: Its name.
        observations: That were looked at.
        models: Different ones among them.
        ratio: Observed over predicted, the median over models; None without observations.
        error: |observed / predicted - 1|, the mean over observations; None without any.
        covered: Share of observations inside their intervals; None without any.
        drifted: Whether predictions are typically off by more than users' latencies vary.
        latest_at: When the last one was seen; None without any.
    """

    system: str
    observations: int
    models: int
    ratio: float | None
    error: float | None
    covered: float | None
    drifted: bool
    latest_at: str | None

    def to_dict(self) -> dict[str, Any]:
        """An entry of `costmodel drift --json`."""
        return asdict(self)


class Observations:
    """The observations in a results store; every one that is added is its own transaction."""

    def __init__(self, url: str, *, create: bool = True) -> None:
        """Open the store at `url`; see `costmodel.store.Store`.

        Raises:
            StoreError: It cannot be opened.
        """
        self._database = Database(url, create=create)

    def put(self, observations: Iterable[Observation]) -> None:
        """Add some, all or none.

        Raises:
            StoreError: The store cannot be written to.
        """
        rows = []
        for one in observations:
            row = asdict(one)
            row["low_us"], row["high_us"] = row.pop("interval_us")
            rows.append(row)
        if rows:
            with self._database.writing() as connection:
                connection.execute(insert(database.observations), rows)

    def systems(self) -> list[str]:
        """Those that something was observed on."""
        with self._database.reading() as connection:
            return sorted(connection.scalars(select(database.observations.c.system).distinct()))

    def count(self, system: str) -> int:
        """How many there are of a system."""
        query = select(func.count()).select_from(database.observations).filter_by(system=system)
        with self._database.reading() as connection:
            return int(connection.scalar(query) or 0)

    def recent(self, system: str, most: int = _RECENT) -> list[Observation]:
        """The last ones of a system, the newest first."""
        query = (
            select(database.observations)
            .filter_by(system=system)
            .order_by(database.observations.c.id.desc())
            .limit(most)
        )
        with self._database.reading() as connection:
            rows = connection.execute(query).all()
        return [
            Observation(
                system=row.system,
                model=row.model,
                digest=row.digest,
                latency_us=row.latency_us,
                runs=row.runs,
                predicted_us=row.predicted_us,
                interval_us=(row.low_us, row.high_us),
                version=row.version,
                observed_at=row.observed_at,
            )
            for row in rows
        ]

    def drift(self, system: str) -> Drift:
        """How far a system has drifted."""
        return drift_of(system, self.recent(system))

    def close(self) -> None:
        """Let go of the store."""
        self._database.close()


def drift_of(system: str, observations: Sequence[Observation]) -> Drift:
    """What observations of a system, the newest first, say of its predictions; odd rows say nothing."""
    observations = [one for one in observations if one.predicted_us > 0 and 0 < one.ratio < math.inf]
    if not observations:
        return Drift(system, 0, 0, None, None, None, drifted=False, latest_at=None)
    by_model: dict[str, list[float]] = {}
    for one in observations:
        by_model.setdefault(one.digest, []).append(math.log(one.ratio))
    # A model that is asked about a thousand times is still one model.
    typical = median(median(logs) for logs in by_model.values())
    return Drift(
        system=system,
        observations=len(observations),
        models=len(by_model),
        ratio=math.exp(typical),
        error=sum(abs(one.ratio - 1) for one in observations) / len(observations),
        covered=sum(one.covered for one in observations) / len(observations),
        drifted=len(observations) >= _FEWEST and abs(typical) > _DRIFTED,
        latest_at=observations[0].observed_at,
    )
