"""Traces: the spans of a request, and what they must not contain."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest
from onnx import ModelProto
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind
from starlette.testclient import TestClient

from costmodel.errors import MissingExtraError
from costmodel.paths import Home
from costmodel.serving.http.app import create_app
from costmodel.serving.http.settings import Settings
from costmodel.serving.http.tokens import add_token
from costmodel.serving.http.tracing import trace
from tests.served import FILE, HERE, InProcess, serving
from tests.synthetic import copied

_PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class _Traced:
    """A service with one token, and its recorded spans."""

    def __init__(self, client: TestClient, token: str, exporter: InMemorySpanExporter) -> None:
        self.client = client
        self.token = token
        self._exporter = exporter

    def recorded(self) -> tuple[ReadableSpan, ...]:
        """Returns the spans since the last call."""
        found = self._exporter.get_finished_spans()
        self._exporter.clear()
        return found

    def spans(self) -> dict[str, ReadableSpan]:
        """Returns these spans by name; names are unique."""
        found = self.recorded()
        by_name = {span.name: span for span in found}
        assert len(by_name) == len(found)
        return by_name


@pytest.fixture(scope="module")
def traced(trained: Home, tmp_path_factory: pytest.TempPathFactory) -> Iterator[_Traced]:
    """A service with an in-memory span exporter."""
    home = copied(trained, tmp_path_factory.mktemp("traced") / "home")
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    token = add_token(home.root / "tokens", "secretary")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COSTMODEL_HOME", str(home.root))
        app = create_app(Settings(tokens=home.root / "tokens"), make_engines=InProcess)
        trace(app, provider)
        with TestClient(app, base_url=HERE, headers={"authorization": f"Bearer {token}"}) as client:
            yield _Traced(client, token, exporter)


def test_a_request_has_a_span_with_its_parts(traced: _Traced, convolution: ModelProto, system: str) -> None:
    """A request's span contains queue, engine and reader in this order, and names owner and system."""
    content = convolution.SerializeToString()
    response = traced.client.post(
        "/v1/predict?batch=1&name=hush", content=content, headers={**FILE, "x-request-id": "nr"}
    )
    assert response.status_code == 200
    spans = traced.spans()
    assert set(spans) == {"POST /v1/predict", "queue", "engine", "reader"}
    request, queue, engine, reader = (spans[name] for name in ("POST /v1/predict", "queue", "engine", "reader"))
    assert request.kind is SpanKind.SERVER
    assert request.attributes is not None
    assert {
        "http.request.method": "POST", "http.response.status_code": 200, "http.route": "/v1/predict",
        "url.path": "/v1/predict", "costmodel.request_id": "nr", "costmodel.token": "secretary",
        "costmodel.system": system, "costmodel.cached": False,
    }.items() <= request.attributes.items()  # fmt: skip
    for child, parent in ((queue, request), (engine, request), (reader, engine)):
        assert child.parent is not None
        assert child.parent.span_id == parent.context.span_id
        assert child.context.trace_id == request.context.trace_id
    assert queue.end_time == engine.start_time
    assert request.start_time is not None
    assert queue.start_time is not None
    assert request.start_time <= queue.start_time


def test_a_remembered_answer_has_no_parts(traced: _Traced, convolution: ModelProto, system: str) -> None:
    """A cached answer, also of a HEAD request, has no engine span."""
    digest = traced.client.post("/v1/models", content=convolution.SerializeToString(), headers=FILE).json()["digest"]
    path = f"/v1/models/{digest}/prediction?batch=1"
    assert traced.client.get(path).status_code == 200
    traced.recorded()
    for method in ("GET", "HEAD"):
        assert traced.client.request(method, path).status_code == 200
        ((name, span),) = traced.spans().items()
        assert name == f"{method} /v1/models/{{digest}}/prediction"
        assert span.attributes is not None
        assert (span.attributes["costmodel.cached"], span.attributes["costmodel.system"]) == (True, system)
        assert span.attributes["costmodel.token"] == "secretary"


def test_a_trace_that_a_client_began_is_continued(traced: _Traced) -> None:
    """A valid W3C trace context is continued; an invalid one starts a new trace."""
    for header, continued in ((_PARENT, True), ("00-zero-zero-01", False), ("\\x\xff", False)):
        traced.client.get("/v1/systems", headers={b"traceparent": header.encode("latin-1")})
        ((_, span),) = traced.spans().items()
        assert (span.parent is not None) == continued
        assert (f"{span.context.trace_id:032x}" in _PARENT) == continued


def test_what_is_refused_has_a_span_too(traced: _Traced) -> None:
    """A refused request has a span with its status; a server error marks the span as an error."""
    assert traced.client.get("/v1/systems", headers={"authorization": "Bearer cm_wrong"}).status_code == 401
    ((_, span),) = traced.spans().items()
    assert span.attributes is not None
    assert span.attributes["http.response.status_code"] == 401
    assert "costmodel.token" not in span.attributes
    assert span.status.is_unset
    assert traced.client.get("/v1/nothing").status_code == 404
    assert set(traced.spans()) == {"GET"}


def test_spans_hold_no_content_of_requests(traced: _Traced, convolution: ModelProto) -> None:
    """Spans contain no body, query or credentials, whatever their form; health checks are not traced."""
    for path in ("/healthz", "/readyz", "/metrics"):
        traced.client.get(path)
    assert traced.spans() == {}
    traced.client.post("/v1/predict?name=hush&batch=1", content=convolution.SerializeToString(), headers=FILE)
    traced.client.post("/v1/predict", json={"model": "sha256:" + "0" * 64, "name": "hush"})
    traced.client.get("/v1/systems?after=%FF%FEhush", headers={"user-agent": "\\x"})
    spans = "".join(span.to_json() for span in traced.recorded())
    assert spans
    assert "hush" not in spans
    assert traced.token not in spans
    assert "Bearer" not in spans


@contextmanager
def _collector() -> Iterator[tuple[str, list[ExportTraceServiceRequest]]]:
    """Yields a listening OTLP collector and the requests that it received."""
    received: list[ExportTraceServiceRequest] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            received.append(ExportTraceServiceRequest.FromString(body))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", received
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_spans_go_where_the_environment_says(trained: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spans are exported over OTLP to the configured endpoint, under the service's name."""
    with _collector() as (url, received):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
        monkeypatch.setenv("OTEL_SERVICE_NAME", "prices")
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
        with serving(copied(trained, tmp_path / "home"), monkeypatch, traces=True) as client:
            assert client.get("/v1/systems").status_code == 200
            until = time.monotonic() + 30
            while not received and time.monotonic() < until:
                time.sleep(0.02)
        (resource,) = received[0].resource_spans
        attributes = {attribute.key: attribute.value.string_value for attribute in resource.resource.attributes}
        assert attributes["service.name"] == "prices"
        assert [span.name for scope in resource.scope_spans for span in scope.spans] == ["GET /v1/systems"]


def test_without_the_extra_the_service_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing tracing extra is reported at the start of the service."""
    monkeypatch.setenv("COSTMODEL_HOME", str(tmp_path))
    monkeypatch.delitem(sys.modules, "costmodel.serving.http.tracing")
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(MissingExtraError, match=r"--editable '.\[otel\]'"):
        create_app(Settings(traces=True))
