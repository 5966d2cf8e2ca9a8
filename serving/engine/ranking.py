"""Ranking of models on systems, as an answer."""

from collections.abc import Mapping, Sequence
from typing import Any

from costmodel.errors import CostModelError
from costmodel.estimate import Estimate
from costmodel.serving.answering import Answerer
from costmodel.serving.engine.sources import Deadline
from costmodel.serving.ranking import cheapest, rank
from costmodel.serving.service import Question, Service
from costmodel.serving.wire.problems import Problem, reason_of
from costmodel.systems import catalogue

__all__ = ["rank_document"]


def rank_document(
    service: Service,
    owner: str,
    questions: Sequence[tuple[str, str, Question]],
    until: Deadline,
    *,
    slo_us: float | None,
    quantile: str,
    usd_per_hour: Mapping[str, float],
) -> dict[str, Any]:
    """The answer to a ranking request.

    Args:
        service: What answers.
        owner: Who asks.
        questions: Digest and name of a model, and what is asked about it.
        until: When the request has had its time.
        slo_us: The latency that is not to be exceeded.
        quantile: Which latency that is.
        usd_per_hour: Prices of systems, which go before those of the catalogue.

    Raises:
        CostModelError: The only question has no answer, or none can be given now.
    """
    estimates: list[Estimate] = []
    failed = []
    answerers: dict[tuple[str, str | None], Answerer] = {}  # one regressor for each system, however many models
    for digest, name, question in questions:
        try:
            until.check()
            key = question.system, question.version
            estimate, answerers[key] = service.estimate(owner, digest, name, question, answerers.get(key))
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
