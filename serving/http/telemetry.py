"""What operators see: metrics for Prometheus, one line of JSON in the log for each request."""

import logging
import os
import platform
import time
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

__all__ = ["METRICS_TYPE", "Metrics", "build_information", "log_request"]

METRICS_TYPE = CONTENT_TYPE_LATEST
_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_LOG = logging.getLogger("costmodel.service")


class Metrics:
    """Metrics of one service; where several processes share a folder, the sum of theirs."""

    def __init__(self) -> None:
        """Make them in a registry of their own, so that an application may be made more than once."""
        self.registry = CollectorRegistry()
        into = self.registry
        self.requests = Counter(
            "costmodel_http_requests", "Requests answered.", ["path", "method", "status"], registry=into
        )
        self.seconds = Histogram(
            "costmodel_http_request_duration_seconds", "Time until the answer was sent.", ["path"], buckets=_BUCKETS,
            registry=into,
        )  # fmt: skip
        self.queue_seconds = Histogram(
            "costmodel_queue_duration_seconds", "Time that requests waited for an engine.", buckets=_BUCKETS,
            registry=into,
        )  # fmt: skip
        self.engine_seconds = Histogram(
            "costmodel_engine_duration_seconds", "Time that engines worked on requests.", buckets=_BUCKETS,
            registry=into,
        )  # fmt: skip
        self.reader_seconds = Histogram(
            "costmodel_reader_duration_seconds", "Time that reading and lowering models took.", buckets=_BUCKETS,
            registry=into,
        )  # fmt: skip
        self.remembered = Counter(
            "costmodel_answer_cache_hits", "Answers that did not have to be worked out.", registry=into
        )
        self.asked = Counter("costmodel_engine_calls", "Requests that engines worked on.", registry=into)
        self.turned_away = Counter(
            "costmodel_http_requests_rejected", "Requests answered with 429 or 503.", registry=into
        )
        self.refused_models = Counter("costmodel_models_refused", "Models that could not be used.", registry=into)
        self.observations = Counter(
            "costmodel_observations_stored", "Latencies that users reported.", ["system"], registry=into
        )
        self.waiting = Gauge(
            "costmodel_queue_length", "Requests that wait for an engine.", multiprocess_mode="livesum", registry=into
        )
        self.engine_deaths = Gauge(
            "costmodel_engine_deaths", "Engines that died or were killed.", multiprocess_mode="livesum", registry=into
        )
        self.connections = Gauge(
            "costmodel_connections", "Connections that are open.", multiprocess_mode="livesum", registry=into
        )
        self.systems = Gauge("costmodel_systems", "Systems that are known.", multiprocess_mode="max", registry=into)
        self.store_up = Gauge(
            "costmodel_store_up", "Whether the store could be read when it was looked at last.",
            multiprocess_mode="livemin", registry=into,
        )  # fmt: skip
        self.drift = Gauge(
            "costmodel_drift_ratio", "Observed over predicted latency, the median over owners.", ["system"],
            multiprocess_mode="mostrecent", registry=into,
        )  # fmt: skip
        self.changes = Counter(
            "costmodel_champion_changes", "Times that something new answered for a system.", ["system"], registry=into
        )
        build = Gauge(
            "costmodel_build_info", "The release of the service.", ["version", "onnxruntime", "python"],
            multiprocess_mode="max", registry=into,
        )  # fmt: skip
        build.labels(*build_information().values()).set(1)

    def record(self, facts: Mapping[str, float]) -> None:
        """Take over what an engine says of a call."""
        self.asked.inc()
        self.queue_seconds.observe(facts.get("queue_seconds", 0.0))
        self.engine_seconds.observe(facts.get("engine_seconds", 0.0))
        if facts.get("reader_seconds"):
            self.reader_seconds.observe(facts["reader_seconds"])
        self.refused_models.inc(facts.get("refused_models", 0.0))

    def text(self) -> bytes:
        """All metrics in the format of Prometheus."""
        if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
            registry = CollectorRegistry()
            MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
            return generate_latest(registry)
        return generate_latest(self.registry)


def build_information() -> dict[str, str]:
    """The releases of costmodel, ONNX Runtime and Python that run here."""
    return {
        "version": version("costmodel"),
        "onnxruntime": version("onnxruntime"),
        "python": platform.python_version(),
    }


def log_request(told: dict[str, Any], began: float) -> None:
    """One line for a request that was answered."""
    if _LOG.isEnabledFor(logging.INFO):
        told["ms"] = round(1e3 * (time.perf_counter() - began), 2)
        _LOG.info("request", extra={"told": told})
