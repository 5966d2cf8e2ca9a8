"""The client, against the service itself."""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import httpx
import pytest
from onnx import ModelProto

import costmodel.client
from costmodel.client import Client, ServiceError
from costmodel.serving.http.tokens import add_token
from tests.fakes import elementwise
from tests.served import listening
from tests.synthetic import SYSTEM, copied, trained_home


class _Recording(httpx.HTTPTransport):
    """The network, and what was asked over it."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(f"{request.url.path} {request.headers.get('content-type')}")
        return super().handle_request(request)


@pytest.fixture(scope="module")
def network() -> _Recording:
    """Between client and service."""
    return _Recording()


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory, network: _Recording) -> Iterator[Client]:
    """Of a service with tokens."""
    trained = trained_home(tmp_path_factory.getbasetemp() / "trained-home")
    home = copied(trained, tmp_path_factory.mktemp("client") / "home")
    token = add_token(home.root / "tokens", "test")
    with (
        pytest.MonkeyPatch.context() as patch,
        listening(home, patch, tokens=home.root / "tokens") as url,
        Client(url, token=token, transport=network) as client,
    ):
        yield client


def test_a_file_is_sent_once(client: Client, light_models: Mapping[str, Path], network: _Recording) -> None:
    """The second time its hash will do."""
    network.asked.clear()
    first = client.predict(light_models["squeezenet"], system=SYSTEM.name)
    again = client.predict(light_models["squeezenet"].read_bytes(), system=SYSTEM.name, name="light_squeezenet")
    assert first == again
    assert network.asked == [
        "/v1/predict application/json", "/v1/predict application/octet-stream", "/v1/predict application/json",
    ]  # fmt: skip
    assert first.model == "light_squeezenet"
    assert first.coverage["measured"] == 1
    assert first.interval_us[0] < first.latency_us < first.interval_us[1]
    assert client.predict(first.digest).latency_us == first.latency_us


def test_options_are_passed_on(client: Client, parse: object) -> None:
    """The same whether the file is sent or known."""
    model: ModelProto = parse("(float[N, T] x) => (float[N, T] y) { y = Tanh(x) }")  # type: ignore[operator]
    content = model.SerializeToString()
    options = {"shapes": {"x": (4, 300)}, "granularity": 2, "measured": False, "partial": True}
    first = client.predict(content, **options)
    assert client.predict(content, **options) == first
    assert first.document["granularity"] == 2
    with pytest.raises(ServiceError, match="dimensions without a size") as refused:
        client.predict(content)
    assert (refused.value.status, refused.value.kind) == (422, "model-refused")
    with pytest.raises(ServiceError, match="has no regressor never"):
        client.predict(content, version="never", **options)


def test_many_ranked_observed_and_listed(client: Client, light_models: Mapping[str, Path]) -> None:
    """All that the service offers."""
    layer = json.loads(elementwise(1, 64, 28, 28).text)
    good, bad = client.predict_bulk([{"layers": [0]}, {"layers": [1], "name": "bad"}], layers=[layer])
    assert good.latency_us is not None
    assert good.error is None
    assert (bad.name, bad.latency_us) == ("bad", None)
    assert "names the layer 1" in str(bad.error)
    digest = client.predict(light_models["squeezenet"]).digest
    assert client.rank([{"model": digest}], slo_us=1e9)["best"]["system"] == SYSTEM.name
    assert client.observe(digest, 1234.5, system=SYSTEM.name, runs=3)["latency_us"] == 1234.5
    assert client.systems()[0]["drift"]["observations"] == 1
    assert client.models()[0]["champion"]


def test_errors_carry_what_the_service_said() -> None:
    """Busy, unknown, not there, and something else entirely."""

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/v1/systems":
            detail = {"type": "urn:costmodel:problem:overloaded", "detail": "ask again", "status": 503}
            return httpx.Response(503, json=detail, headers={"retry-after": "7"})
        if request.url.path == "/v1/models":
            return httpx.Response(200, text="<html>")
        raise httpx.ConnectError("refused")

    with Client("http://nowhere", transport=httpx.MockTransport(answer)) as client:
        with pytest.raises(ServiceError, match="ask again") as busy:
            client.systems()
        assert (busy.value.status, busy.value.kind, busy.value.retry_after_s) == (503, "overloaded", 7.0)
        with pytest.raises(ServiceError, match="is no costmodel service"):
            client.models()
        with pytest.raises(ServiceError, match="does not answer") as absent:
            client.rank([])
        assert absent.value.status is None


def test_the_file_stands_alone(tmp_path: Path) -> None:
    """It runs where costmodel is not installed."""
    (tmp_path / "client.py").write_text(Path(costmodel.client.__file__).read_text())
    code = "import client, sys; print([name for name in sys.modules if name.startswith('costmodel')])"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_model_that_was_never_sent_is_unknown(client: Client) -> None:
    """Where all there is of it is a hash."""
    with pytest.raises(ServiceError) as unknown:
        client.predict("sha256:" + "0" * 64)
    assert unknown.value.kind == "unknown-model"
