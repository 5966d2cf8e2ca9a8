"""Answers ranking requests: estimates models on systems and ranks the results."""

from collections.abc import Mapping, Sequence
from typing import Any

from costmodel.errors import CostModelError
from costmodel.estimate.estimate import Estimate
from costmodel.serving.engine.sources import Deadline
from costmodel.serving.loaded_predictors import LoadedPredictor
from costmodel.serving.ranking import cheapest, rank
from costmodel.serving.service import PredictionOptions, Service
from costmodel.serving.wire.problems import Problem, reason_of
from costmodel.systems.system import catalogue

__all__ = ["rank_document"]


def rank_document(
    service: Service,
    owner: str,
    questions: Sequence[tuple[str, str, PredictionOptions]],
    deadline: Deadline,
    *,
    slo_us: float | None,
    quantile: str,
    usd_per_hour: Mapping[str, float],
) -> dict[str, Any]:
    """Returns the answer to a ranking request, as JSON-serialisable data.

    Args:
        service: Service that estimates the models.
        owner: Name of the token owner who sent the request.
        questions: For each estimate: the digest of a model, its name, and the question.
        deadline: Deadline of the request; estimates after it are reported as failed.
        slo_us: Latency objective in microseconds; None to rank without one.
        quantile: Quantile that the objective applies to: p50, p90, p99, or "quiet" for the quiet machine.
        usd_per_hour: Prices by system in US dollars per hour; they override those of the catalogue.

    Raises:
        CostModelError: There is only one question and it has no answer, or the service cannot answer now.
        Problem: There is only one question and the deadline has passed.
    """
    estimates: list[Estimate] = []
    failed = []
    # All models are priced by the same regressor of a system.
    loaded: dict[tuple[str, str | None], LoadedPredictor] = {}
    for digest, name, question in questions:
        try:
            deadline.check()
            key = question.system, question.version
            estimate, loaded[key] = service.estimate(owner, digest, name, question, loaded.get(key))
            estimates.append(estimate)
        except (CostModelError, Problem) as error:
            if len(questions) == 1:
                raise
            failed.append({"model": name, "system": question.system, "error": reason_of(error)})
    prices = {entry.name: entry.usd_per_hour for entry in catalogue().values()} | dict(usd_per_hour)
    ranked = rank(estimates, slo_us=slo_us, quantile=quantile, usd_per_hour=prices)
    best = cheapest(ranked)
    return {
        "slo_us": slo_us,
        "quantile": quantile,
        "best": best.to_dict() if best else None,
        "ranking": [one.to_dict() for one in ranked],
        "failed": failed,
    }
