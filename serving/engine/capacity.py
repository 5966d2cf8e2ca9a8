"""Answers requests about capacity: one model is estimated at several batch sizes, and its queue is simulated."""

from dataclasses import asdict, replace

from costmodel.serving.capacity import TrafficQuestion, plan_capacity, shapes_of_batch
from costmodel.serving.engine.sources import Deadline
from costmodel.serving.loaded_predictors import LoadedPredictor
from costmodel.serving.service import PredictionOptions, Service
from costmodel.serving.wire.answers import CapacityAnswer
from costmodel.serving.wire.requests import Traffic
from costmodel.systems.catalogue import listed_price
from costmodel.traffic.objective import BatchPolicy, LatencyObjective

__all__ = ["capacity_document"]


def capacity_document(
    service: Service,
    owner: str,
    digest: str,
    name: str,
    question: PredictionOptions,
    traffic: Traffic,
    deadline: Deadline,
) -> tuple[CapacityAnswer, LoadedPredictor]:
    """Returns the traffic that an uploaded model carries on a system, and the predictor that estimated its latencies.

    Args:
        service: Service that estimates the model.
        owner: Name of the token that the request came with.
        digest: Digest of the model.
        name: Name of the model, for the answer and messages.
        question: Parameters of the predictions, for one request: the input shapes are multiplied for batches.
        traffic: The traffic that is asked about.
        deadline: Deadline of the request; no estimate begins after it.

    Raises:
        CostModelError: There is no estimate at one of the batch sizes, or the values of the request contradict each
            other.
        Problem: The deadline has passed.
    """
    asked = _traffic_question(traffic)
    loaded = service.predictors.of(question.system, question.version)
    estimates = {}
    for size in asked.policy.sizes:
        deadline.check()
        shapes = tuple(sorted(shapes_of_batch(dict(question.shapes), size).items()))
        batch = None if asked.policy.max_size == 1 else size
        estimates[size], loaded = service.estimate(
            owner, digest, name, replace(question, batch=batch, shapes=shapes), loaded
        )
    price = traffic.usd_per_hour
    if price is None:
        price = listed_price(question.system, loaded.predictor.system.host)
    found = plan_capacity(estimates, loaded.predictor.variation, asked, usd_per_hour=price)
    known = service.uploads.find(owner, digest)
    fields = {name: getattr(found, name) for name in asdict(found)}
    return CapacityAnswer(**fields, digest=digest if known is None else f"sha256:{known.stem}"), loaded


def _traffic_question(traffic: Traffic) -> TrafficQuestion:
    objective = None if traffic.slo_us is None else LatencyObjective(traffic.percentile, traffic.slo_us)
    return TrafficQuestion(
        traffic.scenario, objective, BatchPolicy(traffic.max_batch, traffic.max_wait_us), traffic.arrivals_per_s,
        traffic.replicas,
    )  # fmt: skip
