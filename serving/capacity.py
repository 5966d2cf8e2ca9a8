"""Plans capacity: how much traffic a model carries on a system within a latency objective, and what that costs."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from costmodel.errors import TrafficError
from costmodel.estimate.estimate import Coverage, Estimate
from costmodel.traffic.capacity import MAX_REPLICAS, best_at, highest_rate_per_s, replicas_for
from costmodel.traffic.idle import TYPICAL
from costmodel.traffic.objective import NO_BATCHING, BatchPolicy, LatencyObjective
from costmodel.traffic.scenarios import Scenario, Serving, TrafficResult, is_closed, simulate
from costmodel.traffic.service_times import ServiceTimes
from costmodel.traffic.variation import STEADY, Variation
from costmodel.units import format_us, usd_per_million

__all__ = ["BatchLatency", "Capacity", "TrafficQuestion", "plan_capacity", "shapes_of_batch"]

# Share of the saturation at which a replica that is too slow at any rate is described.
_NEARLY_IDLE = 0.01
# Share by which simulated throughput may fall short of the arrivals that it carries.
_THROUGHPUT_TOLERANCE = 0.01


@dataclass(frozen=True, slots=True)
class TrafficQuestion:
    """The traffic that is asked about.

    Attributes:
        scenario: One of MLPerf's scenarios.
        objective: Latency objective; required in the scenario "server", and refused in "offline".
        policy: How requests are joined to batches.
        arrivals_per_s: Rate of arrivals in requests a second; None to ask for the highest rate.
        replicas: Number of replicas; None for as many as the arrivals need, or one without arrivals.

    Raises:
        TrafficError: The values do not go together.
    """

    scenario: Scenario = "server"
    objective: LatencyObjective | None = None
    policy: BatchPolicy = NO_BATCHING
    arrivals_per_s: float | None = None
    replicas: int | None = None

    def __post_init__(self) -> None:
        """Checks that the values go together."""
        if self.scenario == "server" and self.objective is None:
            raise TrafficError("the scenario server needs a latency objective: give one, such as p99=50ms")
        if self.scenario == "offline" and self.objective is not None:
            raise TrafficError(
                "the scenario offline has no latency objective, because all samples are there at once: leave it out"
            )
        if is_closed(self.scenario) and self.arrivals_per_s is not None:
            raise TrafficError(
                f"the scenario {self.scenario} has no rate of arrivals, because a query follows the one before it: "
                "leave the rate out, or ask about the scenario server"
            )
        if self.replicas is not None and not 1 <= self.replicas <= MAX_REPLICAS:
            raise TrafficError(f"{self.replicas} replicas cannot be simulated: give a number from 1 to {MAX_REPLICAS}")


@dataclass(frozen=True, slots=True)
class BatchLatency:
    """Latency of a model at one batch size.

    Attributes:
        batch_size: Number of samples in a run.
        latency_us: Latency of a run on the quiet machine, in microseconds.
        interval_us: Lower and upper bound of `latency_us`, in microseconds.
    """

    batch_size: int
    latency_us: float
    interval_us: tuple[float, float]


@dataclass(frozen=True, slots=True)
class Capacity:
    """The traffic that a model carries on a system.

    Attributes:
        model: Name of the model.
        system: Name of the system.
        scenario: MLPerf's name of the scenario: "server", "offline", "single-stream" or "multi-stream".
        objective: Percentile of the latency objective, such as "p99"; None without an objective.
        slo_us: Latency of the objective in microseconds; None without an objective.
        batch_policy: How requests are joined to batches: "none", or like "max=8,wait=5ms".
        latencies: Latency at each batch size that was estimated; the simulation interpolates between them.
        highest_rate_per_s: Samples a second that one replica carries: in the server scenario, the highest rate of
            arrivals that meets the objective (0 if none does), otherwise the throughput.
        highest_rate_interval_per_s: `highest_rate_per_s` at the upper and the lower bounds of the latencies.
        arrivals_per_s: Rate of arrivals that was asked about, in requests a second; None without one.
        replicas: Number of replicas: the number that was asked about, or that the arrivals need; None if no number is
            enough, because the latency of a single request exceeds the objective.
        result: Latencies and throughput of these replicas (of one, if no number is enough) at the rate of arrivals, or
            at the highest rate without one.
        idle_delay_us: Time in microseconds by which a request after a long idle time takes longer, in the scenario
            "server": its run finds the machine cold, and its thread has to be woken.
        usd_per_hour: Price of all replicas in US dollars per hour; None if no price of the system is known.
        usd_per_million: Price in US dollars of a million requests at this rate; None if no price is known, or if the
            objective or the rate is not met.
        coverage: Shares of the latency by source of the costs, at the smallest batch size.
        version: Version of the regressor that predicted costs; "none" if all of them are measured.
        warnings: Warnings for the user, one sentence each.
    """

    model: str
    system: str
    scenario: Scenario
    objective: str | None
    slo_us: float | None
    batch_policy: str
    latencies: tuple[BatchLatency, ...]
    highest_rate_per_s: float
    highest_rate_interval_per_s: tuple[float, float]
    arrivals_per_s: float | None
    replicas: int | None
    result: TrafficResult
    idle_delay_us: float
    usd_per_hour: float | None
    usd_per_million: float | None
    coverage: Coverage
    version: str
    warnings: tuple[str, ...]


def shapes_of_batch(shapes: Mapping[str, tuple[int, ...]], size: int) -> dict[str, tuple[int, ...]]:
    """Returns the input shapes of a batch from those of one request: the first axis of rank 2 or more is multiplied."""
    return {name: (size * shape[0], *shape[1:]) if len(shape) > 1 else shape for name, shape in shapes.items()}


def plan_capacity(
    estimates: Mapping[int, Estimate],
    variation: Variation | None,
    question: TrafficQuestion,
    *,
    usd_per_hour: float | None = None,
) -> Capacity:
    """Returns the traffic that a model carries on a system.

    Args:
        estimates: Estimates of the model on the system by batch size, at those that `question.policy.sizes` names.
        variation: How run times vary on the system; None if that is not known.
        question: The traffic that is asked about.
        usd_per_hour: Price of one machine of the system in US dollars per hour; None if it is not known.

    Raises:
        TrafficError: An estimate is 0, because no layer of the model has a cost.
    """
    first = estimates[min(estimates)]
    if any(estimate.latency_us <= 0 for estimate in estimates.values()):
        raise TrafficError(f"{first.model} has no layer with a cost on {first.system}: there is no traffic to plan")
    one = Serving(_service_times(estimates), variation or STEADY, question.policy)
    highest_per_s = _highest(one, question)
    bounds = [
        _highest(replace(one, service_times=_service_times(estimates, bound)), question) for bound in ("high", "low")
    ]
    replicas = _replicas(one, question, highest_per_s)
    result = _result(replace(one, replicas=replicas or 1), question, highest_per_s)
    price = None if usd_per_hour is None or replicas is None else replicas * usd_per_hour
    rate_per_s = result.throughput_per_s if question.arrivals_per_s is None else question.arrivals_per_s
    carried = result.meets is not False and rate_per_s <= result.throughput_per_s * (1 + _THROUGHPUT_TOLERANCE)
    return Capacity(
        model=first.model,
        system=first.system,
        scenario=question.scenario,
        objective=None if question.objective is None else question.objective.name,
        slo_us=None if question.objective is None else question.objective.latency_us,
        batch_policy=str(question.policy),
        latencies=tuple(
            BatchLatency(size, estimates[size].latency_us, estimates[size].interval_us) for size in sorted(estimates)
        ),
        highest_rate_per_s=highest_per_s,
        highest_rate_interval_per_s=(min(*bounds, highest_per_s), max(*bounds, highest_per_s)),
        arrivals_per_s=question.arrivals_per_s,
        replicas=replicas,
        result=result,
        idle_delay_us=one.variation.idle.total_us,
        usd_per_hour=price,
        usd_per_million=None if price is None or not carried else usd_per_million(price, rate_per_s),
        coverage=first.coverage,
        version=first.predictor.version,
        warnings=_warnings(estimates, variation),
    )


def _service_times(estimates: Mapping[int, Estimate], bound: str = "") -> ServiceTimes:
    """Returns the service times of estimates, or of the lower ("low") or upper ("high") bounds of their intervals."""
    if not bound:
        return ServiceTimes({size: estimate.latency_us for size, estimate in estimates.items()})
    end = 0 if bound == "low" else 1
    return ServiceTimes({size: max(1e-3, estimate.interval_us[end]) for size, estimate in estimates.items()})


def _highest(one: Serving, question: TrafficQuestion) -> float:
    if question.scenario == "server":
        assert question.objective is not None
        return highest_rate_per_s(one, question.objective)
    return simulate(one, question.scenario, objective=question.objective).throughput_per_s


def _replicas(one: Serving, question: TrafficQuestion, highest_per_s: float) -> int | None:
    if question.replicas is not None:
        return question.replicas
    if question.scenario == "server":
        assert question.objective is not None
        rate_per_s = question.arrivals_per_s or highest_per_s
        return replicas_for(one, rate_per_s, question.objective, highest_per_s)
    if question.arrivals_per_s is not None:
        return max(1, math.ceil(question.arrivals_per_s / highest_per_s))
    return 1


def _result(serving: Serving, question: TrafficQuestion, highest_per_s: float) -> TrafficResult:
    if question.scenario != "server":
        return simulate(serving, question.scenario, objective=question.objective)
    assert question.objective is not None
    rate_per_s = question.arrivals_per_s or highest_per_s
    if serving.replicas > 1 and question.arrivals_per_s is None:
        rate_per_s = highest_rate_per_s(serving, question.objective)
    return best_at(serving, rate_per_s or _NEARLY_IDLE * serving.saturation_per_s, question.objective)


def _warnings(estimates: Mapping[int, Estimate], variation: Variation | None) -> tuple[str, ...]:
    warnings = [warning for estimate in estimates.values() for warning in estimate.warnings]
    if variation is None:
        warnings.append(
            "how much latencies vary was never measured on this system: the simulation assumes no variation"
        )
        return tuple(dict.fromkeys(warnings))
    if variation.idle == TYPICAL:
        warnings.append(
            "what an idle time costs was never measured on this system: the simulation assumes that a request after a "
            f"long one takes {format_us(TYPICAL.total_us)} longer; `costmodel capacity --measure-idle` on that machine "
            "measures it"
        )
    if variation.states:
        shares = ", ".join(f"{one.name} {one.share:.0%} (x{one.slowdown:.2f})" for one in variation.states)
        warnings.append(
            f"the machine was shared while it was measured, and is taken to be so again: {shares}, each for about "
            f"{variation.sojourn_s:.0f} s at a time"
        )
    return tuple(dict.fromkeys(warnings))
