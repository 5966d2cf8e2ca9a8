"""What operators see: metrics for Prometheus, one line of JSON in the log for each request."""

import json
import logging
import os
import sys
import time
from datetime import UTC, datetime
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

__all__ = ["METRICS_TYPE", "Metrics", "log_request", "set_up_logging"]

METRICS_TYPE = CONTENT_TYPE_LATEST
_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_LOG = logging.getLogger("costmodel.service")


class Metrics:
    """Counters of one service; where several processes share a folder, the sum of theirs."""

    def __init__(self) -> None:
        """With a registry of its own, so that an application may be made more than once."""
        self.registry = CollectorRegistry()
        into = self.registry
        self.requests = Counter("costmodel_requests", "Requests answered.", ["path", "method", "status"], registry=into)
        self.seconds = Histogram(
            "costmodel_request_seconds", "Time until the answer was sent.", ["path"], buckets=_BUCKETS, registry=into
        )
        self.remembered = Counter(
            "costmodel_answers_remembered", "Answers that did not have to be worked out.", registry=into
        )
        self.turned_away = Counter("costmodel_requests_turned_away", "Requests answered with 503.", registry=into)
        self.refused_models = Counter("costmodel_models_refused", "Models that could not be used.", registry=into)
        self.observations = Counter(
            "costmodel_observations", "Latencies that users reported.", ["system"], registry=into
        )
        self.waiting = Gauge(
            "costmodel_requests_waiting", "Requests that wait for work.", multiprocess_mode="livesum", registry=into
        )
        self.systems = Gauge(
            "costmodel_systems", "Systems that are answered for.", multiprocess_mode="max", registry=into
        )
        self.drift = Gauge(
            "costmodel_drift_ratio", "Observed over predicted latency, the median over models.", ["system"],
            multiprocess_mode="mostrecent", registry=into,
        )  # fmt: skip
        self.changes = Counter(
            "costmodel_champion_changes", "Times that something new answered for a system.", ["system"], registry=into
        )

    def text(self) -> bytes:
        """As Prometheus reads it."""
        if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
            registry = CollectorRegistry()
            MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
            return generate_latest(registry)
        return generate_latest(self.registry)


class _JsonLines(logging.Formatter):
    """A record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        told: dict[str, Any] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        told |= getattr(record, "told", {})
        if record.exc_info:
            told["exception"] = self.formatException(record.exc_info)
        return json.dumps(told)


def set_up_logging(level: int = logging.INFO) -> None:
    """Log to standard error, as JSON, one line for each record."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)


def log_request(told: dict[str, Any], began: float) -> None:
    """One line for a request that was answered."""
    if _LOG.isEnabledFor(logging.INFO):
        told["ms"] = round(1e3 * (time.perf_counter() - began), 2)
        _LOG.info("request", extra={"told": told})
