"""Rules that place requests on the machines of a simulated cluster; `benchmarks/request_placement.py` compares them."""

import sys
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
from router import Placement, Router


@dataclass(frozen=True)
class System:
    """The measurements of a system: latencies by model, in microseconds, jitter, and throughput."""

    name: str
    measured_us: Mapping[str, float]
    predicted_us: Mapping[str, float]
    jitter: Mapping[str, float]
    gemm_gflops: float

    def jitter_at(self, chance: float) -> float:
        """Returns the factor on the latency at a quantile from 0 to 1, linear between the known ones."""
        at = (0.0, 0.5, 0.9, 0.99, 1.0)
        factors = (1.0, *self.jitter.values(), self.jitter["p99"])
        i = min(bisect_right(at, chance), len(at) - 1)
        return factors[i - 1] + (factors[i] - factors[i - 1]) * (chance - at[i - 1]) / (at[i] - at[i - 1])


class Clock:
    """The time of the simulation in microseconds."""

    now_us = 0.0

    def __call__(self) -> float:
        """Returns the time."""
        return self.now_us


@dataclass
class Machine:
    """A machine of the cluster: its system, and the requests that it has, with their ends."""

    name: str
    system: System
    ends: deque[tuple[float, object]]


class Rule:
    """Places requests, given the machines."""

    def __init__(self, machines: Sequence[Machine], clock: Clock) -> None:
        """Stores the machines."""
        self.machines = machines
        self.turn = count()

    def place(self, model: str) -> tuple[int, object]:
        """Returns the number of the machine for the next request, and a token that `finished` gets at its end."""
        raise NotImplementedError

    def finished(self, token: object) -> None:
        """Notes the end of a request."""


class RoundRobin(Rule):
    """The machines take turns."""

    def place(self, model: str) -> tuple[int, object]:
        """Returns the next machine."""
        return next(self.turn) % len(self.machines), None


class CpuShare(Rule):
    """The machines take turns in proportion to their GFLOP/s (smooth weighted round robin, as in nginx)."""

    def __init__(self, machines: Sequence[Machine], clock: Clock) -> None:
        """Starts with no credit."""
        super().__init__(machines, clock)
        self.credit = [0.0] * len(machines)

    def place(self, model: str) -> tuple[int, object]:
        """Returns the machine with the most credit."""
        self.credit = [c + m.system.gemm_gflops for c, m in zip(self.credit, self.machines, strict=True)]
        chosen = max(range(len(self.machines)), key=lambda i: self.credit[i])
        self.credit[chosen] -= sum(machine.system.gemm_gflops for machine in self.machines)
        return chosen, None


class LeastOutstanding(Rule):
    """The machine with the fewest requests; machines with equally many take turns."""

    def place(self, model: str) -> tuple[int, object]:
        """Returns the machine with the fewest requests."""
        first, number = next(self.turn), len(self.machines)
        return min(range(number), key=lambda i: (len(self.machines[i].ends), (i - first) % number)), None


class WeightedLeastOutstanding(Rule):
    """The machine with the fewest requests, this one included, for its GFLOP/s."""

    def place(self, model: str) -> tuple[int, object]:
        """Returns the machine with the smallest load."""
        return min(
            range(len(self.machines)),
            key=lambda i: (len(self.machines[i].ends) + 1) / self.machines[i].system.gemm_gflops,
        ), None


class LeastFinishTime(Rule):
    """The router of `examples/router.py` with given latencies."""

    def __init__(self, machines: Sequence[Machine], clock: Clock, latencies: Callable[[System], Mapping[str, float]]):
        """Creates the router."""
        super().__init__(machines, clock)
        of_system = {machine.system.name: latencies(machine.system) for machine in machines}
        self.number = {machine.name: i for i, machine in enumerate(machines)}
        self.router = Router(
            {machine.name: machine.system.name for machine in machines},
            lambda model, system: of_system[system][model],
            clock,
        )

    def place(self, model: str) -> tuple[int, object]:
        """Asks the router."""
        placement = self.router.place(model)
        return self.number[placement.replica], placement

    def finished(self, token: object) -> None:
        """Tells the router."""
        assert isinstance(token, Placement)
        self.router.finish(token)


RULES: Mapping[str, Callable[[Sequence[Machine], Clock], Rule]] = {
    "round robin": RoundRobin,
    "CPU share (GFLOP/s)": CpuShare,
    "least outstanding": LeastOutstanding,
    "least outstanding by GFLOP/s": WeightedLeastOutstanding,
    "prediction": lambda machines, clock: LeastFinishTime(machines, clock, lambda system: system.predicted_us),
    "oracle": lambda machines, clock: LeastFinishTime(machines, clock, lambda system: system.measured_us),
}
