"""Settings of the scheduler extender."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

__all__ = ["ERROR_POLICIES", "SCORES", "UNKNOWN_POLICIES", "ErrorPolicy", "ExtenderSettings", "Score", "UnknownPolicy"]

UnknownPolicy = Literal["keep", "remove"]
ErrorPolicy = Literal["ignore", "fail"]
Score = Literal["latency", "cost"]
UNKNOWN_POLICIES: tuple[str, ...] = get_args(UnknownPolicy)
ERROR_POLICIES: tuple[str, ...] = get_args(ErrorPolicy)
SCORES: tuple[str, ...] = get_args(Score)


@dataclass(frozen=True)
class ExtenderSettings:
    """Settings of the scheduler extender.

    Attributes:
        server: URL of the costmodel service.
        token: Token for the service; None if the service needs none.
        unknown: What happens to nodes without a system label, and to nodes whose system has no prediction for the
            model: "keep" or "remove".
        on_error: What is answered while the service does not respond: "ignore" keeps all nodes with score 0, "fail"
            returns an error to the scheduler.
        score: Quantity that scores are computed from: "latency", or "cost" in US dollars per inference.
        usd_per_hour: Prices of systems in US dollars per hour, by name of the system; they override the prices in the
            catalogue of the service.
        timeout_s: Network timeout of a request to the service or to the API server of the cluster, in seconds.
        cache_s: Number of seconds for which predictions and the labels of nodes are cached.
        pause_s: Number of seconds after a failed request during which the service, or the API server, is not asked.
        cluster: URL of the API server of the cluster, which is asked for the labels of nodes if the scheduler sends
            only their names; None if the scheduler sends whole nodes.
    """

    server: str
    token: str | None = None
    unknown: UnknownPolicy = "keep"
    on_error: ErrorPolicy = "ignore"
    score: Score = "latency"
    usd_per_hour: Mapping[str, float] = field(default_factory=dict)
    timeout_s: float = 1.0
    cache_s: float = 30.0
    pause_s: float = 5.0
    cluster: str | None = None
