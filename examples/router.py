"""A router that sends each request to the replica that is predicted to finish it first.

    python examples/router.py model.onnx --server http://127.0.0.1:8000 --replica a=SYSTEM --replica b=SYSTEM

A replica serves one request at a time, in the order in which requests arrive. It finishes a new request after the work
that it has already, and the predicted latency of the new request on its system. `Router` is plain Python and knows
neither HTTP nor threads: call `place` before a request is forwarded, and `finish` when its response is back. The
program asks a costmodel service, and prints where a burst of requests would go.
"""

import argparse
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from costmodel.client import Client


@dataclass(frozen=True, eq=False)
class Placement:
    """A request that was given to a replica.

    Attributes:
        replica: Name of the replica.
        predicted_us: Predicted latency of the request on the replica, in microseconds.
        finish_us: Predicted time from the placement to the end of the request, in microseconds.
    """

    replica: str
    predicted_us: float
    finish_us: float


@dataclass
class _Replica:
    """The work of a replica.

    Attributes:
        outstanding: Requests that were placed and are not finished, in the order in which they are served.
        outstanding_us: Sum of their predicted latencies in microseconds.
        started_us: Time at which the first of them began, in microseconds.
    """

    outstanding: deque[Placement] = field(default_factory=deque)
    outstanding_us: float = 0.0
    started_us: float = 0.0

    def backlog_us(self, now_us: float) -> float:
        """Returns the predicted time in microseconds until the replica is idle.

        A request that takes longer than predicted is expected to end at any moment.
        """
        if not self.outstanding:
            return 0.0
        return self.outstanding_us - min(now_us - self.started_us, self.outstanding[0].predicted_us)


class Router:
    """Places requests by least predicted finish time."""

    def __init__(
        self,
        replicas: Mapping[str, str],
        predict_us: Callable[[str, str], float],
        clock_us: Callable[[], float] = lambda: time.monotonic() * 1e6,
    ) -> None:
        """Creates a router whose replicas are idle.

        Args:
            replicas: Name of the system of each replica, by name of the replica.
            predict_us: Returns the predicted latency in microseconds of a model on a system.
            clock_us: Returns the time in microseconds.
        """
        self._systems = dict(replicas)
        self._replicas = {name: _Replica() for name in replicas}
        self._predict_us = predict_us
        self._clock_us = clock_us

    def place(self, model: str) -> Placement:
        """Chooses a replica for a request to `model`; the caller forwards the request to it."""
        now_us = self._clock_us()
        latency_us = {system: self._predict_us(model, system) for system in set(self._systems.values())}
        finish_us = {
            name: replica.backlog_us(now_us) + latency_us[self._systems[name]]
            for name, replica in self._replicas.items()
        }
        chosen = min(finish_us, key=lambda name: finish_us[name])
        placement = Placement(chosen, latency_us[self._systems[chosen]], finish_us[chosen])
        replica = self._replicas[chosen]
        if not replica.outstanding:
            replica.started_us = now_us
        replica.outstanding.append(placement)
        replica.outstanding_us += placement.predicted_us
        return placement

    def finish(self, placement: Placement) -> None:
        """Notes that a request is finished, or has failed."""
        replica = self._replicas[placement.replica]
        first = replica.outstanding[0] is placement
        replica.outstanding.remove(placement)
        replica.outstanding_us = sum(one.predicted_us for one in replica.outstanding)
        if first:
            replica.started_us = self._clock_us()


def service_latencies(client: Client, models: Sequence[str], systems: Sequence[str]) -> Callable[[str, str], float]:
    """Returns a function from a model and a system to the latency in microseconds that a service predicts.

    Args:
        client: Client of the service.
        models: Digests of the models, which the service has.
        systems: Names of the systems.
    """
    ranking = client.rank([{"model": digest, "name": digest} for digest in models], systems=systems)["ranking"]
    latency_us = {(entry["model"], entry["system"]): entry["slo_latency_us"] for entry in ranking}
    return lambda model, system: latency_us[model, system]


def main() -> None:
    """Prints where a burst of requests to one model goes."""
    parser = argparse.ArgumentParser(description="Prints where a burst of requests goes.")
    parser.add_argument("model", help="ONNX file")
    parser.add_argument("--server", default="http://127.0.0.1:8000", help="URL of the service")
    parser.add_argument("--replica", action="append", required=True, metavar="NAME=SYSTEM", help="several times")
    parser.add_argument("--requests", type=int, default=10)
    options = parser.parse_args()
    replicas = dict(text.split("=", 1) for text in options.replica)
    with Client(options.server) as client:
        digest = client.send_model(options.model)
        router = Router(replicas, service_latencies(client, [digest], sorted(set(replicas.values()))))
    for number in range(1, options.requests + 1):
        placement = router.place(digest)
        print(f"request {number:3} to {placement.replica:10} finished after {placement.finish_us / 1e3:8.2f} ms")


if __name__ == "__main__":
    main()
