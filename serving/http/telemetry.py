"""Telemetry: metrics for Prometheus, and one line of JSON in the log for each request."""

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
    """Prometheus metrics of the service; summed over the processes that share PROMETHEUS_MULTIPROC_DIR."""

    def __init__(self) -> None:
        """Creates the metrics in a registry of their own, so that several applications can exist in one process."""
        self.registry = CollectorRegistry()
        registry = self.registry
        self.requests = Counter(
            "costmodel_http_requests", "Number of requests answered.", ["path", "method", "status"], registry=registry
        )
        self.seconds = Histogram(
            "costmodel_http_request_duration_seconds", "Time until the answer was sent.", ["path"], buckets=_BUCKETS,
            registry=registry,
        )  # fmt: skip
        self.queue_seconds = Histogram(
            "costmodel_queue_duration_seconds", "Time that requests waited for an engine.", buckets=_BUCKETS,
            registry=registry,
        )  # fmt: skip
        self.engine_seconds = Histogram(
            "costmodel_engine_duration_seconds", "Time that engines worked on requests.", buckets=_BUCKETS,
            registry=registry,
        )  # fmt: skip
        self.reader_seconds = Histogram(
            "costmodel_reader_duration_seconds", "Time that reading and lowering models took.", buckets=_BUCKETS,
            registry=registry,
        )  # fmt: skip
        self.cached = Counter("costmodel_answer_cache_hits", "Answers that came from the cache.", registry=registry)
        self.asked = Counter("costmodel_engine_calls", "Requests that engines processed.", registry=registry)
        self.turned_away = Counter(
            "costmodel_http_requests_rejected", "Requests answered with 429 or 503.", registry=registry
        )
        self.refused_models = Counter(
            "costmodel_models_refused",
            "Models that were refused, because they could not be read or lowered.",
            registry=registry,
        )
        self.observations = Counter(
            "costmodel_observations_stored", "Latencies that users reported.", ["system"], registry=registry
        )
        self.waiting = Gauge(
            "costmodel_queue_length",
            "Requests that wait for an engine.",
            multiprocess_mode="livesum",
            registry=registry,
        )
        self.engine_deaths = Gauge(
            "costmodel_engine_deaths",
            "Engines that died or were killed.",
            multiprocess_mode="livesum",
            registry=registry,
        )
        self.connections = Gauge(
            "costmodel_connections", "Number of open connections.", multiprocess_mode="livesum", registry=registry
        )
        self.systems = Gauge("costmodel_systems", "Systems in the store.", multiprocess_mode="max", registry=registry)
        self.store_up = Gauge(
            "costmodel_store_up", "Whether the store could be read at the last refresh.",
            multiprocess_mode="livemin", registry=registry,
        )  # fmt: skip
        self.drift = Gauge(
            "costmodel_drift_ratio", "Observed over predicted latency, the median over owners.", ["system"],
            multiprocess_mode="mostrecent", registry=registry,
        )  # fmt: skip
        self.changes = Counter(
            "costmodel_champion_changes",
            "Changes of the champion or the measurements of a system.",
            ["system"],
            registry=registry,
        )
        build = Gauge(
            "costmodel_build_info", "Versions of the service, ONNX Runtime and Python.",
            ["version", "onnxruntime", "python"],
            multiprocess_mode="max", registry=registry,
        )  # fmt: skip
        build.labels(*build_information().values()).set(1)

    def record(self, facts: Mapping[str, float]) -> None:
        """Adds the times and counts that an engine reported for one request to the metrics."""
        self.asked.inc()
        self.queue_seconds.observe(facts.get("queue_seconds", 0.0))
        self.engine_seconds.observe(facts.get("engine_seconds", 0.0))
        if facts.get("reader_seconds"):
            self.reader_seconds.observe(facts["reader_seconds"])
        self.refused_models.inc(facts.get("refused_models", 0.0))

    def text(self) -> bytes:
        """Returns all metrics in the Prometheus text format."""
        if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
            registry = CollectorRegistry()
            MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
            return generate_latest(registry)
        return generate_latest(self.registry)


def build_information() -> dict[str, str]:
    """Returns the versions in use of costmodel, ONNX Runtime and Python, by label of the metric that reports them."""
    return {
        "version": version("costmodel"),
        "onnxruntime": version("onnxruntime"),
        "python": platform.python_version(),
    }


def log_request(fields: dict[str, Any], began: float) -> None:
    """Logs a finished request as one line of JSON.

    Args:
        fields: Members of the line, to which the duration in milliseconds is added.
        began: Start of the request, by `time.perf_counter`.
    """
    if _LOG.isEnabledFor(logging.INFO):
        fields["ms"] = round(1e3 * (time.perf_counter() - began), 2)
        _LOG.info("request", extra={"fields": fields})
