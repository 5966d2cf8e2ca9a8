"""Predictions of a costmodel service for the systems of a cluster, cached briefly."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any

from cachetools import TTLCache

from costmodel.client import Client, ServiceError
from costmodel.serving.extender.objective import PodObjective

__all__ = ["Predicted", "ServicePredictions"]

_MOST_CACHED = 100_000
_MOST_SYSTEMS = 100  # that the service ranks in one request
# Statuses of a request that is invalid: the service works, and has no prediction for it.
_INVALID = frozenset({400, 404, 413, 422})


@dataclass(frozen=True, slots=True)
class Predicted:
    """The predicted latency of a model on a system, or the reason why there is none.

    Attributes:
        latency_us: Latency in microseconds at the quantile of the objective; None if there is no prediction.
        usd_per_million: Price in US dollars of a million inferences; None if the price of the system is unknown.
        reason: Reason why there is no prediction, one sentence; "" if there is one.
    """

    latency_us: float | None = None
    usd_per_million: float | None = None
    reason: str = ""


class ServicePredictions:
    """Predictions of a service, which may be read by several threads at once.

    After a request that failed, the service is not asked again for a few seconds, so that the pods of a queue do not
    wait for a timeout each.
    """

    def __init__(
        self,
        client: Client,
        *,
        usd_per_hour: Mapping[str, float],
        cache_s: float,
        pause_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Creates an empty cache.

        Args:
            client: Client of the service.
            usd_per_hour: Prices of systems in US dollars per hour, by name of the system.
            cache_s: Number of seconds for which predictions are cached.
            pause_s: Number of seconds after a failed request during which the service is not asked.
            clock: Returns the time in seconds.
        """
        self._client = client
        self._usd_per_hour = usd_per_hour
        self._cache: TTLCache[tuple[PodObjective, str], Predicted] = TTLCache(_MOST_CACHED, cache_s, clock)
        self._pause_s = pause_s
        self._clock = clock
        self._failure: tuple[float, ServiceError] | None = None
        self._lock = Lock()

    def predict(self, objective: PodObjective, systems: Iterable[str]) -> Mapping[str, Predicted]:
        """Returns the prediction for each system, from the cache or from the service.

        Raises:
            ServiceError: The service does not respond, or does not accept the token.
        """
        wanted = sorted(set(systems))
        objective = replace(objective, slo_us=None)  # predictions do not depend on it
        with self._lock:
            found = {name: self._cache.get((objective, name)) for name in wanted}
        known = {name: predicted for name, predicted in found.items() if predicted is not None}
        missing = [name for name in wanted if name not in known]
        for first in range(0, len(missing), _MOST_SYSTEMS):
            asked = self._ask(objective, missing[first : first + _MOST_SYSTEMS])
            with self._lock:
                self._cache.update({(objective, name): predicted for name, predicted in asked.items()})
            known |= asked
        return known

    def _ask(self, objective: PodObjective, systems: Sequence[str]) -> dict[str, Predicted]:
        with self._lock:
            if self._failure is not None and self._clock() < self._failure[0] + self._pause_s:
                known = self._failure[1]
                raise ServiceError(str(known), known.status, known.kind, known.retry_after_s, known.request_id)
        try:
            answer = self._client.rank(
                [_model_of(objective)],
                systems=systems,
                quantile=objective.quantile,
                usd_per_hour={name: usd for name, usd in self._usd_per_hour.items() if name in systems},
            )
        except ServiceError as error:
            if error.status in _INVALID:
                return dict.fromkeys(systems, Predicted(reason=str(error)))
            with self._lock:
                self._failure = self._clock(), error
            raise
        predicted = dict.fromkeys(systems, Predicted(reason="the service has no prediction"))
        for entry in answer["failed"]:
            predicted[entry["system"]] = Predicted(reason=entry["error"])
        for entry in answer["ranking"]:
            predicted[entry["system"]] = Predicted(entry["slo_latency_us"], entry["usd_per_million"])
        return predicted


def _model_of(objective: PodObjective) -> dict[str, Any]:
    model: dict[str, Any] = {"model": objective.model}
    return model if objective.batch is None else model | {"batch": objective.batch}
