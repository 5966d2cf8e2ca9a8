"""The HTTP client against the real service."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import ModelProto

from costmodel import client as client_module
from costmodel.client import Client, ServiceError
from costmodel.onnx_io.model import read_without_weights
from costmodel.serving.http.tokens import add_token
from tests.fakes import elementwise
from tests.served import listening
from tests.synthetic import SYSTEM, copied, trained_home

_Fault = Callable[[httpx.HTTPTransport, httpx.Request], httpx.Response | None]


class _Network(httpx.HTTPTransport):
    """The network between client and service: records requests and injects failures."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []
        self.faults: list[_Fault] = []

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        kind = request.headers.get("content-type")
        self.asked.append(" ".join(filter(None, (request.method, request.url.path, kind))))
        fault = self.faults.pop(0) if self.faults else None
        answered = fault(super(), request) if fault is not None else None  # type: ignore[arg-type]
        return answered or super().handle_request(request)


def _refused(network: httpx.HTTPTransport, request: httpx.Request) -> None:
    raise httpx.ConnectError("refused")


def _answer_lost(network: httpx.HTTPTransport, request: httpx.Request) -> None:
    """Lets the service handle the request and loses the response."""
    network.handle_request(request).read()
    raise httpx.ReadError("connection reset")


def _busy(network: httpx.HTTPTransport, request: httpx.Request) -> httpx.Response:
    return httpx.Response(503, json={"type": "urn:costmodel:problem:overloaded", "detail": "ask again"})


@pytest.fixture(scope="module")
def network() -> _Network:
    """The network between client and service."""
    return _Network()


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Mapping[str, str]]]:
    """URL of a service and the tokens of its two clients."""
    trained = trained_home(tmp_path_factory.getbasetemp() / "trained-home")
    home = copied(trained, tmp_path_factory.mktemp("client") / "home")
    tokens = {name: add_token(home.root / "tokens", name) for name in ("test", "other")}
    with pytest.MonkeyPatch.context() as patch, listening(home, patch, tokens=home.root / "tokens") as url:
        yield url, tokens


@pytest.fixture
def client(service: tuple[str, Mapping[str, str]], network: _Network) -> Iterator[Client]:
    """One client, without waiting times, with short pages, over a network without failures by default."""
    network.asked.clear()
    network.faults.clear()
    url, tokens = service
    with Client(url, token=tokens["test"], page_size=2, transport=network, sleep=lambda _: None) as client:
        yield client


@pytest.fixture
def other(service: tuple[str, Mapping[str, str]]) -> Iterator[Client]:
    """The other client."""
    url, tokens = service
    with Client(url, token=tokens["other"]) as client:
        yield client


def test_a_file_is_sent_once(client: Client, light_models: Mapping[str, Path], network: _Network) -> None:
    """A file is sent once; later requests use its hash."""
    first = client.predict(light_models["squeezenet"], system=SYSTEM.name)
    again = client.predict(light_models["squeezenet"].read_bytes(), system=SYSTEM.name, name="light_squeezenet")
    assert first == again
    assert network.asked == [
        "POST /v1/predict application/json", "POST /v1/predict application/octet-stream",
        "POST /v1/predict application/json",
    ]  # fmt: skip
    assert first.model == "light_squeezenet"
    assert first.coverage["measured"] == 1
    assert first.interval_us[0] < first.latency_us < first.interval_us[1]
    assert client.predict(first.digest).latency_us == first.latency_us


def test_options_are_passed_on(client: Client, parse: Callable[..., ModelProto]) -> None:
    """Options work alike for a sent file, a known file and a digest."""
    content = parse("(float[N, T] x) => (float[N, T] y) { y = Tanh(x) }").SerializeToString()
    options = {"shapes": {"x": (4, 300)}, "granularity": 2, "measured": False, "partial": True}
    first = client.predict(content, **options)  # type: ignore[arg-type]
    assert client.predict(content, **options) == first  # type: ignore[arg-type]
    assert client.prediction(first.digest, **options).document == first.document
    assert first.document["granularity"] == 2
    with pytest.raises(ServiceError, match="dimensions without a size") as refused:
        client.predict(content)
    assert (refused.value.status, refused.value.kind) == (422, "model-refused")
    assert refused.value.request_id
    with pytest.raises(ServiceError, match="has no regressor never"):
        client.predict(content, version="never", **options)  # type: ignore[arg-type]


def test_values_of_inputs_are_passed_on(client: Client, branches: ModelProto) -> None:
    """A flag's value chooses the branch that is priced, for a sent file, a known file and a digest."""
    content = branches.SerializeToString()
    options = {"system": SYSTEM.name, "measured": False, "partial": True}
    cached, whole = (client.predict(content, values={"cached": flag}, **options) for flag in (1, 0))  # type: ignore[arg-type]
    assert [layer["op_type"] for layer in cached.document["layers"]] == ["Tanh"]
    assert "MatMul" in {layer["op_type"] for layer in whole.document["layers"]}
    assert client.predict(content, values={"cached": 1}, **options) == cached  # type: ignore[arg-type]
    assert client.prediction(cached.digest, values={"cached": True}, **options).document == cached.document
    with pytest.raises(ServiceError, match="cannot be 2"):
        client.predict(content, values={"cached": 2}, **options)  # type: ignore[arg-type]


def test_models_beside_are_passed_on(client: Client, light_models: Mapping[str, Path]) -> None:
    """The service gets the models beside the one asked about: it says that their effect was never measured there."""
    digest = client.send_model(light_models["squeezenet"])
    for model in (light_models["squeezenet"], digest):
        with pytest.raises(ServiceError, match="run `costmodel interference`"):
            client.predict(model, beside=[{"model": digest, "name": "neighbour"}])


def test_a_model_has_one_digest_whoever_sends_it(
    client: Client, other: Client, parse: Callable[..., ModelProto], tmp_path: Path
) -> None:
    """The digest does not depend on whether the client or the service removes the weights."""
    model = parse("(float[1, 512] x) => (float[1, 512] y) { y = MatMul(x, w) }", weights={"w": (512, 512)})
    (tmp_path / "mine.onnx").write_bytes(model.SerializeToString())
    digest = client.predict(tmp_path / "mine.onnx").digest
    with pytest.raises(ServiceError, match="not known here"):
        other.predict(digest)
    assert other.predict(read_without_weights(tmp_path / "mine.onnx")).digest == digest
    assert other.send_model(tmp_path / "mine.onnx") == digest
    assert client.predict(tmp_path / "mine.onnx").digest == digest


def test_models_are_listed_and_deleted(client: Client, parse: Callable[..., ModelProto], network: _Network) -> None:
    """Models are listed over several pages and deleted."""
    sent = {
        client.send_model(parse(f"(float[1, {size}] x) => (float[1, {size}] y) {{ y = Tanh(x) }}").SerializeToString())
        for size in range(3, 8)
    }
    network.asked.clear()
    listed = list(client.models())
    assert sent <= {model["digest"] for model in listed}
    assert len(network.asked) == -(-len(listed) // 2)
    assert client.model(min(sent))["kind"] == "onnx"
    assert all(client.delete_model(digest) for digest in sent)
    assert not sent & {model["digest"] for model in client.models()}
    with pytest.raises(ServiceError) as unknown:
        client.model(min(sent))
    assert unknown.value.kind == "unknown-model"
    assert not client.delete_model(min(sent))


def test_a_prediction_that_has_not_changed_is_not_sent_again(client: Client, light_models: Mapping[str, Path]) -> None:
    """An unchanged prediction is returned from the client's cache."""
    digest = client.predict(light_models["squeezenet"]).digest
    first = client.prediction(digest, system=SYSTEM.name)
    assert client.prediction(digest, system=SYSTEM.name, known=first) is first
    other = client.prediction(digest, system=SYSTEM.name, measured=False, known=first)
    assert other.latency_us != first.latency_us


def test_many_and_ranked(client: Client, light_models: Mapping[str, Path]) -> None:
    """Bulk items have an answer or an error, and a regressor version can be chosen."""
    layer = json.loads(elementwise(1, 64, 28, 28).text)
    (version,) = (one["version"] for one in client.regressors(system=SYSTEM.name) if one["champion"])
    good, bad = client.predict_bulk([{"layers": [0]}, {"layers": [1], "name": "bad"}], layers=[layer], version=version)
    assert good.latency_us is not None
    assert good.error is None
    assert (bad.name, bad.latency_us) == ("bad", None)
    assert "names the layer 1" in str(bad.error)
    digest = client.predict(light_models["squeezenet"]).digest
    best = client.rank([{"model": digest}], slo_us=1e9, versions={SYSTEM.name: version})["best"]
    assert best["system"] == SYSTEM.name
    with pytest.raises(ServiceError, match="has no regressor never"):
        client.rank([{"model": digest}], systems=[SYSTEM.name], versions={SYSTEM.name: "never"})
    assert [one["name"] for one in client.systems()] == [SYSTEM.name]
    assert client.system(SYSTEM.name)["champion"]["version"] == version


def test_traffic_and_settings(client: Client, network: _Network, parse: Callable[..., ModelProto]) -> None:
    """A file is sent once for both questions, whose options are passed on; a price is asked for where one is needed."""
    text = "(float[1,3,24,24] x) => (float[1,4,24,24] y) { y = Conv<pads = [1, 1, 1, 1]>(x, w) }"
    content = parse(text, weights={"w": (4, 3, 3, 3)}).SerializeToString()
    planned = client.capacity(content, name="asked", slo_us=50_000, arrivals_per_s=120, max_batch=2, max_wait_us=1000)
    assert (planned["model"], planned["objective"], planned["arrivals_per_s"]) == ("asked", "p99", 120)
    assert [one["batch_size"] for one in planned["latencies"]] == [1, 2]
    assert network.asked == ["POST /v1/capacity application/json", "POST /v1/capacity application/octet-stream"]
    digest = planned["digest"]
    assert client.capacity(digest, scenario="offline")["scenario"] == "offline"
    tuned = client.tune(content, objective="cost", max_batch=2, usd_per_hour=0.36, int8=digest)
    assert (tuned["objective"], tuned["digest"]) == ("cost", digest)
    assert {one["setting"]["batch"] for one in tuned["settings"]} == {1, 2}
    assert {one["setting"]["precision"] for one in tuned["settings"]} == {"float32", "int8"}
    assert network.asked[3:] == ["POST /v1/tune application/json"]
    with pytest.raises(ServiceError, match="usd_per_hour"):
        client.tune(digest, objective="cost")


def test_observations_are_ones_own(client: Client, other: Client, light_models: Mapping[str, Path]) -> None:
    """Observations are listed newest first over several pages, and deleted."""
    digest = client.predict(light_models["squeezenet"]).digest
    observed = [client.observe(digest, 1000.0 + number, system=SYSTEM.name, runs=3) for number in range(5)]
    assert [one["id"] for one in client.observations(system=SYSTEM.name)] == [one["id"] for one in reversed(observed)]
    assert list(other.observations()) == []
    assert client.delete_observation(observed[0]["id"])
    assert not client.delete_observation(observed[0]["id"])
    assert not other.delete_observation(observed[1]["id"])
    assert client.delete_observations(system=SYSTEM.name) == 4
    assert list(client.observations()) == []


def test_what_is_lost_on_the_way_is_asked_again(
    client: Client, network: _Network, parse: Callable[..., ModelProto]
) -> None:
    """Lost requests are repeated: files are sent whole, observations stored once, deletions stay."""
    network.faults += [_refused, _busy]
    content = parse("(float[1, 77] x) => (float[1, 77] y) { y = Tanh(x) }").SerializeToString()
    network.faults += [lambda *_: None, _answer_lost, _busy]
    digest = client.predict(content).digest
    assert [asked.rpartition(" ")[2] for asked in network.asked] == ["application/json"] * 3 + [
        "application/octet-stream"
    ] * 3
    assert client.model(digest)["digest"] == digest
    network.faults += [_answer_lost, _answer_lost]
    stored = client.observe(digest, 1234.5, system=SYSTEM.name)
    assert [one["id"] for one in client.observations()] == [stored["id"]]
    assert client.observe(digest, 1234.5, system=SYSTEM.name)["id"] != stored["id"]
    with pytest.raises(ServiceError) as conflict:
        client.observe(digest, 1.0, system=SYSTEM.name, idempotency_key=stored["idempotency_key"])
    assert (conflict.value.status, conflict.value.kind) == (409, "idempotency-conflict")
    network.faults += [_answer_lost]
    client.delete_observations()
    assert list(client.observations()) == []
    network.faults += [_answer_lost]
    assert client.delete_model(digest)
    assert not client.delete_model(digest)
    network.faults += [_busy]
    assert not client.delete_model(digest)  # nothing was lost: the service had refused to work
    with pytest.raises(ServiceError, match="not known here"):
        client.model(digest)


def _asked(status: int, retry_after: str | None = None, **options: object) -> tuple[list[float], list[str], str]:
    """Returns the waits, the request methods and the final error of a client whose service always answers `status`."""
    slept: list[float] = []
    asked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.method)
        detail = {"type": "urn:costmodel:problem:overloaded", "detail": "ask again", "status": status}
        return httpx.Response(status, json=detail, headers={"retry-after": retry_after} if retry_after else {})

    with (
        Client("http://nowhere", transport=httpx.MockTransport(answer), sleep=slept.append, **options) as client,  # type: ignore[arg-type]
        pytest.raises(ServiceError, match="ask again") as busy,
    ):
        client.system("some")
    return slept, asked, busy.value.kind


@pytest.mark.parametrize("status", [429, 503])
def test_the_service_says_how_long_to_wait(status: int) -> None:
    """Retry-After, in seconds or as a date, is obeyed with a small random addition."""
    slept, asked, kind = _asked(status, "7", retries=2)
    assert (len(asked), kind) == (3, "overloaded")
    assert all(7 <= waited <= 7.7 for waited in slept)
    (waited,), _, _ = _asked(status, format_datetime(datetime.now(UTC) + timedelta(seconds=30)), retries=1)
    assert 20 < waited <= 33


@given(retries=st.integers(0, 20), retry_s=st.floats(0, 100))
def test_retries_are_bounded(retries: int, retry_s: float) -> None:
    """Retries are limited in number and time, and waits grow without Retry-After."""
    slept, asked, _ = _asked(503, None, retries=retries, retry_s=retry_s)
    assert len(asked) == len(slept) + 1 <= retries + 1
    assert sum(slept) <= retry_s
    assert all(0.25 * 2**n / 2 <= waited <= 0.25 * 2**n or 4 <= waited <= 8 for n, waited in enumerate(slept))


def test_no_request_waits_longer_than_its_limit() -> None:
    """A Retry-After beyond the client's time limit ends the retries, and the error has the time."""
    slept, asked, _ = _asked(503, "3600")
    assert (slept, asked) == ([], ["GET"])
    assert _asked(503, "soon", retries=1)[0][0] < 1


@pytest.mark.parametrize("status", [400, 401, 404, 409, 422, 500])
def test_what_would_fail_again_is_not_repeated(status: int) -> None:
    """Permanent errors are not retried."""
    assert _asked(status)[:2] == ([], ["GET"])


def test_errors_carry_what_the_service_said() -> None:
    """Errors have the service's problem, whether busy, unknown, unreachable or unexpected."""

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/v1/systems":
            detail = {"type": "urn:costmodel:problem:overloaded", "detail": "ask again", "status": 503}
            return httpx.Response(503, json=detail, headers={"retry-after": "7", "x-request-id": "number"})
        if request.url.path == "/v1/models":
            return httpx.Response(200, text="<html>")
        if request.url.path == "/v1/regressors":
            return httpx.Response(502, text="<html>")
        raise httpx.ConnectError("refused")

    with Client("http://nowhere", transport=httpx.MockTransport(answer), retries=0) as client:
        with pytest.raises(ServiceError, match="ask again") as busy:
            list(client.systems())
        assert (busy.value.status, busy.value.kind, busy.value.retry_after_s) == (503, "overloaded", 7.0)
        assert busy.value.request_id == "number"
        with pytest.raises(ServiceError, match="is no costmodel service"):
            list(client.models())
        with pytest.raises(ServiceError, match="cannot answer now"):
            list(client.regressors())
        with pytest.raises(ServiceError, match="does not answer") as absent:
            client.rank([])
        assert absent.value.status is None


def test_the_file_stands_alone(tmp_path: Path) -> None:
    """The client file works without costmodel installed."""
    (tmp_path / "client.py").write_text(Path(client_module.__file__).read_text())
    code = "import client, sys; print([name for name in sys.modules if name.startswith('costmodel')])"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_model_that_was_never_sent_is_unknown(client: Client) -> None:
    """A hash of a model that was never sent is an error."""
    with pytest.raises(ServiceError) as unknown:
        client.predict("sha256:" + "0" * 64)
    assert unknown.value.kind == "unknown-model"
