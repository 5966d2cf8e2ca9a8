"""OpenTelemetry traces: a span for each request, with child spans for the queue, the engine and the reader process.

The standard environment variables configure the export (OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_SERVICE_NAME,
OTEL_TRACES_SAMPLER, ...). The ASGI instrumentation library of OpenTelemetry is not used, because it puts query strings
into spans and fails on headers that are not UTF-8.
"""

from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

from fastapi import FastAPI
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from costmodel.errors import MissingExtraError

try:
    from opentelemetry import propagate
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer, set_span_in_context
except ImportError as error:
    raise MissingExtraError("sending traces", "otel") from error

__all__ = ["trace"]

# Paths of which no traces are made: monitoring requests them every few seconds, and they are answered from memory.
_UNTRACED = ("/healthz", "/readyz", "/metrics")
_NS = 1_000_000_000


def trace(app: FastAPI, provider: TracerProvider | None = None) -> None:
    """Records a span for each request to an application, except for health checks and metrics.

    The trace of the client is continued (W3C `traceparent`). Spans contain no bodies, query strings or credentials.

    Args:
        app: Application; it must not have answered a request yet.
        provider: Provider of tracers; by default one that exports to the collector that the environment variables name.
    """
    app.add_middleware(_TracingMiddleware, provider=provider or _exporting_provider())


def _exporting_provider() -> TracerProvider:
    """Returns a provider that sends spans to a collector in batches, the last batch when the process ends."""
    defaults = Resource({"service.name": "costmodel", "service.version": version("costmodel")})
    provider = TracerProvider(resource=Resource.create(defaults.merge(OTELResourceDetector().detect()).attributes))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider


class _TracingMiddleware:
    """Middleware that opens a span for each request.

    `RequestMiddleware` reports the end of the request by calling `on_over` in the ASGI scope.
    """

    def __init__(self, app: ASGIApp, *, provider: TracerProvider) -> None:
        self._app = app
        self._tracer = provider.get_tracer("costmodel.serving", version("costmodel"))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"].endswith(_UNTRACED):  # with or without a proxy's prefix
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        fields = propagate.get_global_textmap().fields
        context = propagate.extract({field: headers[field] for field in fields if field in headers})
        with self._tracer.start_as_current_span(
            "HTTP", context, SpanKind.SERVER,
            record_exception=False, set_status_on_exception=False,  # exceptions may quote data of a client
        ) as span:  # fmt: skip

            def on_over(scope: Scope, fields: Mapping[str, Any]) -> None:
                _describe(self._tracer, span, scope, fields)

            scope["on_over"] = on_over
            await self._app(scope, receive, send)


def _describe(tracer: Tracer, span: Span, scope: Scope, fields: Mapping[str, Any]) -> None:
    """Sets the attributes of the span of a finished request, and adds its child spans.

    Args:
        tracer: Tracer that creates the child spans.
        span: Span of the request.
        scope: ASGI scope of the request.
        fields: Members of the line that the log has about the request.
    """
    if not span.is_recording():
        return
    route = getattr(scope.get("route"), "path", None)
    span.update_name(fields["method"] if route is None else f"{fields['method']} {route}")
    attributes = {
        "http.request.method": fields["method"],
        "http.response.status_code": fields["status"],
        "http.route": route,
        "url.path": fields["path"],
        "url.scheme": scope.get("scheme"),
        "client.address": fields["client"],
        "costmodel.request_id": fields["request_id"],
        "costmodel.token": fields.get("token"),
        "costmodel.system": scope.get("system"),
        "costmodel.cached": fields.get("cached", False),
    }
    span.set_attributes({name: value for name, value in attributes.items() if value is not None})
    if fields["status"] >= 500:
        span.set_status(Status(StatusCode.ERROR))
    facts: Mapping[str, float] = scope.get("facts", {})
    began_ns: int | None = scope.get("queued_at_ns")
    if began_ns is not None and "queue_seconds" in facts:
        taken_ns = began_ns + _ns(facts["queue_seconds"])
        _add_span(tracer, span, "queue", began_ns, taken_ns)
        engine = _add_span(tracer, span, "engine", taken_ns, taken_ns + _ns(facts.get("engine_seconds", 0.0)))
        if facts.get("reader_seconds"):  # the engine reads a model first
            _add_span(tracer, engine, "reader", taken_ns, taken_ns + _ns(facts["reader_seconds"]))


def _add_span(tracer: Tracer, parent: Span, name: str, began_ns: int, ended_ns: int) -> Span:
    """Records a span for something that has ended already, as a child of another span, and returns it."""
    span = tracer.start_span(name, set_span_in_context(parent), start_time=began_ns)
    span.end(ended_ns)
    return span


def _ns(seconds: float) -> int:
    return round(seconds * _NS)
