"""Answers ranking requests: estimates models on systems and ranks the results."""

from collections.abc import Mapping, Sequence

from costmodel.errors import CostModelError
from costmodel.serving.engine.sources import Deadline
from costmodel.serving.loaded_predictors import LoadedPredictor
from costmodel.serving.ranking import Criteria, RankAnswer, Ranked, RankError, cheapest, in_order
from costmodel.serving.service import PredictionOptions, Service
from costmodel.serving.wire.problems import Problem, reason_of
from costmodel.systems.catalogue import catalogue

__all__ = ["rank_document"]


def rank_document(
    service: Service,
    owner: str,
    questions: Sequence[tuple[str, str, PredictionOptions]],
    deadline: Deadline,
    *,
    slo_us: float | None,
    quantile: str,
    memory_bytes: int | None,
    arrivals_per_s: float | None,
    usd_per_hour: Mapping[str, float],
) -> RankAnswer:
    """Returns the answer to a ranking request: the estimates of models on systems, the preferred one first.

    Args:
        service: Service that estimates the models.
        owner: Name of the token that the request came with.
        questions: For each estimate to make: digest of the model, name of the model, and parameters of the prediction.
        deadline: Deadline of the request; estimates that were not begun before it are reported as failed.
        slo_us: Latency objective in microseconds; None to rank without one.
        quantile: Quantile that the objective applies to: p50, p90, p99, or "quiet" for the quiet machine.
        memory_bytes: Memory in bytes that a process may take; None for no limit.
        arrivals_per_s: Rate of arrivals to carry, in requests a second; None for one request at a time.
        usd_per_hour: Prices in US dollars per hour, by name of the system; they override those of the catalogue.

    Raises:
        CostModelError: Only one estimate is to be made and it fails, or the service itself fails.
        Problem: Only one estimate is to be made and the deadline has passed.
    """
    prices = {entry.name: entry.usd_per_hour for entry in catalogue().values()} | dict(usd_per_hour)
    criteria = Criteria(slo_us, quantile, memory_bytes, prices, arrivals_per_s)
    entries: list[Ranked] = []
    failed: list[RankError] = []
    # All models are priced by the same regressor of a system.
    loaded: dict[tuple[str, str | None], LoadedPredictor] = {}
    for digest, name, question in questions:
        try:
            deadline.check()
            key = question.system, question.version
            estimate, loaded[key] = service.estimate(owner, digest, name, question, loaded.get(key))
            entries.append(criteria.judged(estimate, loaded[key].predictor.variation if arrivals_per_s else None))
        except (CostModelError, Problem) as error:
            if len(questions) == 1:
                raise
            failed.append({"model": name, "system": question.system, "error": reason_of(error)})
    ranked = in_order(entries)
    return {
        "slo_us": slo_us, "quantile": quantile, "memory_bytes": memory_bytes, "arrivals_per_s": arrivals_per_s,
        "best": cheapest(ranked), "ranking": ranked, "failed": failed,
    }  # fmt: skip
