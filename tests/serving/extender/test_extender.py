"""The scheduler extender in front of the real service, with requests as kube-scheduler sends them."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from starlette.testclient import TestClient

from costmodel.client import Client
from costmodel.errors import KubernetesError
from costmodel.paths import Home
from costmodel.serving.extender.app import create_extender
from costmodel.serving.extender.settings import ExtenderSettings
from costmodel.store.store import Store
from tests.served import InProcess, listening
from tests.serving.extender.scheduler import args, filtered, node, pod, scores
from tests.synthetic import SYSTEM, copied, corpus, fill

SLOW = replace(SYSTEM, name="made.up.slow", capabilities={**SYSTEM.capabilities, "gemm_gflops": 20.0})
UNMEASURED = "never.measured"
NODES = (node("fast-1", SYSTEM.name), node("slow-1", SLOW.name), node("fast-2", SYSTEM.name))
Extend = Callable[..., TestClient]


class _Network(httpx.HTTPTransport):
    """The network between extender and service: counts requests, and may be down."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0
        self.down = False

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self.asked += 1
        if self.down:
            raise httpx.ConnectTimeout("timed out")
        return super().handle_request(request)


@pytest.fixture(scope="module")
def service(trained: Home, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of a service that knows two systems, on which SqueezeNet was measured."""
    home = copied(trained, tmp_path_factory.mktemp("extender") / "home")
    store = Store(home.store_url)
    fill(store, [corpus(home.cache)["light_squeezenet"]], system=SLOW, samples=0)
    store.close()
    with pytest.MonkeyPatch.context() as patch, listening(home, patch, make_engines=InProcess) as url:
        yield url


@pytest.fixture(scope="module")
def model(service: str, light_models: Mapping[str, Path]) -> str:
    """Digest of a model that the service has."""
    with Client(service) as client:
        return client.send_model(light_models["squeezenet"])


@pytest.fixture(scope="module")
def latencies_us(service: str, model: str) -> Mapping[str, float]:
    """Median latency of the model by system."""
    with Client(service) as client:
        ranking = client.rank([{"model": model}], systems=[SYSTEM.name, SLOW.name])["ranking"]
    return {one["system"]: one["slo_latency_us"] for one in ranking}


@pytest.fixture
def between(latencies_us: Mapping[str, float]) -> str:
    """An objective in microseconds that the fast system meets and the slow one does not."""
    assert latencies_us[SYSTEM.name] < latencies_us[SLOW.name]
    return str(round(sum(latencies_us.values()) / 2))


@pytest.fixture
def network() -> _Network:
    """The network between extender and service."""
    return _Network()


@pytest.fixture
def extend(service: str, network: _Network) -> Iterator[Extend]:
    """Function that starts an extender with given settings; `systems` returns the labels of nodes."""
    with ExitStack() as stack:

        def start(systems: Callable[[], Mapping[str, str]] | None = None, **settings: object) -> TestClient:
            client = Client(service, transport=network, retries=0)
            app = create_extender(ExtenderSettings(service, **settings), client, systems)  # type: ignore[arg-type]
            return stack.enter_context(TestClient(app))

        yield start


def test_nodes_that_are_too_slow_are_removed(extend: Extend, model: str, between: str) -> None:
    """Whole nodes return unchanged; the reason for a removed one has both latencies and the system."""
    kept, reasons = filtered(extend(), args(pod(model=model, slo_us=between), NODES))
    assert kept == ["fast-1", "fast-2"]
    assert "on made.up.slow exceeds the objective of" in reasons["slow-1"]
    assert reasons["slow-1"].startswith("predicted p50 latency ")


def test_nodes_are_given_by_name(extend: Extend, model: str, between: str) -> None:
    """For a scheduler that sends names only, the labels are those of the cluster."""
    labels = {"fast-1": SYSTEM.name, "slow-1": SLOW.name}
    extender = extend(lambda: labels)
    sent = args(pod(model=model, slo_us=between), ["slow-1", "fast-1", "other"])
    assert filtered(extender, sent)[0] == ["fast-1", "other"]
    assert scores(extender, sent)["fast-1"] == 10


def test_the_quantile_and_the_batch_count(extend: Extend, service: str, model: str) -> None:
    """The objective refers to the annotated quantile and batch, as in the service's own ranking."""
    with Client(service) as client:
        asked = [{"model": model, "batch": 4}]
        ranking = client.rank(asked, systems=[SYSTEM.name], quantile="p99")["ranking"]
    p99_us = ranking[0]["slo_latency_us"]
    for slo_us, kept in ((p99_us + 1, ["a"]), (p99_us - 1, [])):
        sent = args(pod(model=model, batch="4", quantile="p99", slo_us=f"{slo_us:f}"), [node("a", SYSTEM.name)])
        assert filtered(extend(), sent)[0] == kept


def test_lower_case_requests_are_read(extend: Extend, model: str, between: str) -> None:
    """Names of fields are read in any capitalisation, as Go reads them."""
    sent = {key.lower(): value for key, value in args(pod(model=model, slo_us=between), NODES).items()}
    answer = extend().post("/filter", json=sent).json()
    assert list(answer["FailedNodes"]) == ["slow-1"]


@pytest.mark.parametrize("metadata", [{"annotations": None}, {"annotations": {"other": "x"}}, {}])
def test_a_pod_without_a_model_may_run_anywhere(extend: Extend, network: _Network, metadata: dict[str, object]) -> None:
    """Other pods keep all nodes with score 0, and the service is not asked."""
    extender = extend(unknown="remove")
    sent = args({"metadata": metadata, "spec": {}}, NODES)
    assert filtered(extender, sent)[0] == ["fast-1", "slow-1", "fast-2"]
    assert set(scores(extender, sent).values()) == {0}
    assert network.asked == 0


def test_no_nodes_are_no_error(extend: Extend, model: str) -> None:
    """Go writes an empty list as null."""
    sent = {"Pod": pod(model=model), "Nodes": {"metadata": {}, "items": None}, "NodeNames": None}
    assert filtered(extend(), sent) == ([], {})
    assert scores(extend(), sent) == {}


@pytest.mark.parametrize(("unknown", "kept"), [("keep", ["fast", "bare", "empty", "unmeasured"]), ("remove", ["fast"])])
def test_nodes_without_a_prediction_are_kept_or_removed(
    extend: Extend, model: str, unknown: str, kept: list[str]
) -> None:
    """Nodes without a label, and those of systems without a prediction, are kept or removed as configured."""
    nodes = [node("fast", SYSTEM.name), node("bare"), node("empty", ""), node("unmeasured", UNMEASURED)]
    extender = extend(unknown=unknown)
    found, reasons = filtered(extender, args(pod(model=model, slo_us="1000000000"), nodes))
    assert found == kept
    if unknown == "remove":
        assert reasons["bare"] == "the node has no label costmodel.dev/system"
        assert UNMEASURED in reasons["unmeasured"]
    assert scores(extender, args(pod(model=model), nodes)) == {"fast": 10, "bare": 0, "empty": 0, "unmeasured": 0}


def test_a_model_that_the_service_does_not_have(extend: Extend, network: _Network) -> None:
    """An unknown digest is no failure of the service: its nodes are those without a prediction."""
    sent = args(pod(model="sha256:" + "0" * 64, slo_us="1000"), NODES[:1])
    assert filtered(extend(), sent)[0] == ["fast-1"]
    assert "not known" in filtered(extend(unknown="remove"), sent)[1]["fast-1"]
    assert filtered(extend(), args(pod(model="sha256:" + "0" * 64), NODES))[0] == ["fast-1", "slow-1", "fast-2"]
    assert network.asked == 3


def test_scores_are_relative_to_the_best_node(extend: Extend, model: str, latencies_us: Mapping[str, float]) -> None:
    """The fastest node has score 10, another one less in proportion to its latency."""
    slow = round(10 * latencies_us[SYSTEM.name] / latencies_us[SLOW.name])
    assert 0 < slow < 10
    assert scores(extend(), args(pod(model=model), NODES)) == {"fast-1": 10, "slow-1": slow, "fast-2": 10}
    assert scores(extend(), args(pod(model=model), NODES[1:2])) == {"slow-1": 10}


def test_scores_by_cost(extend: Extend, model: str) -> None:
    """By cost, a slow machine that is cheap enough is preferred; a machine without a price has score 0."""
    extender = extend(score="cost", usd_per_hour={SYSTEM.name: 10.0, SLOW.name: 0.01})
    found = scores(extender, args(pod(model=model), NODES))
    assert found["slow-1"] == 10
    assert found["fast-1"] < 5
    assert scores(extend(score="cost"), args(pod(model=model), NODES)) == {"fast-1": 0, "slow-1": 0, "fast-2": 0}


@pytest.mark.parametrize(
    ("annotations", "reason"),
    [
        ({"model": "detector"}, "costmodel.dev/model is 'detector': give the digest"),
        ({"slo_us": "5ms"}, "costmodel.dev/slo-us is '5ms': give a number of microseconds"),
        ({"slo_us": "0"}, "costmodel.dev/slo-us is '0'"),
        ({"slo_us": "nan"}, "costmodel.dev/slo-us is 'nan'"),
        ({"batch": "0"}, "costmodel.dev/batch is '0': give a whole number"),
        ({"batch": "1.5"}, "costmodel.dev/batch is '1.5'"),
        ({"quantile": "p95"}, "costmodel.dev/quantile is 'p95': give one of p50, p90, p99, quiet"),
    ],
)
def test_invalid_annotations_are_the_reason(
    extend: Extend, network: _Network, model: str, annotations: dict[str, str], reason: str
) -> None:
    """A pod with an invalid annotation fits no node, and each node has the reason."""
    sent = args(pod(**{"model": model} | annotations), NODES)
    kept, reasons = filtered(extend(), sent)
    assert kept == []
    assert all(text.startswith(reason) for text in reasons.values())
    assert set(scores(extend(), sent).values()) == {0}
    assert network.asked == 0


def test_answers_are_cached(extend: Extend, network: _Network, model: str, between: str) -> None:
    """Filter and prioritise of all replicas, with any objective, ask once for each system."""
    extender = extend()
    filtered(extender, args(pod(model=model, slo_us=between), NODES[:1]))
    assert network.asked == 1
    for slo_us in (between, "1", "99999999"):
        filtered(extender, args(pod(model=model, slo_us=slo_us), NODES))
        scores(extender, args(pod(model=model, slo_us=slo_us), NODES))
    assert network.asked == 2
    scores(extender, args(pod(model=model, quantile="p90"), NODES))
    assert network.asked == 3


def test_nothing_is_cached_if_so_configured(extend: Extend, network: _Network, model: str) -> None:
    """With a cache time of 0, each request is asked."""
    extender = extend(cache_s=0.0)
    for _ in range(2):
        scores(extender, args(pod(model=model), NODES))
    assert network.asked == 2


def test_a_service_that_is_down_blocks_nothing(extend: Extend, network: _Network, model: str, between: str) -> None:
    """By default all nodes are kept with score 0, and the service is not asked again for a while."""
    network.down = True
    extender = extend()
    sent = args(pod(model=model, slo_us=between), NODES)
    for _ in range(3):
        assert filtered(extender, sent) == (["fast-1", "slow-1", "fast-2"], {})
        assert set(scores(extender, sent).values()) == {0}
    assert network.asked == 1


def test_a_service_that_is_down_may_stop_scheduling(extend: Extend, network: _Network, model: str) -> None:
    """With the other policy, the scheduler gets an error, which becomes an event of the pod."""
    network.down = True
    extender = extend(on_error="fail", unknown="remove")
    with pytest.raises(RuntimeError, match="does not answer"):
        filtered(extender, args(pod(model=model), NODES))
    with pytest.raises(RuntimeError, match="does not answer"):
        scores(extender, args(pod(model=model), NODES))


def test_the_service_is_asked_again_after_the_pause(
    extend: Extend, network: _Network, model: str, between: str
) -> None:
    """When the service is back, its predictions count again."""
    network.down = True
    extender = extend(pause_s=0.0)
    sent = args(pod(model=model, slo_us=between), NODES)
    assert filtered(extender, sent)[0] == ["fast-1", "slow-1", "fast-2"]
    network.down = False
    assert filtered(extender, sent)[0] == ["fast-1", "fast-2"]


@pytest.mark.parametrize(("on_error", "error"), [("ignore", None), ("fail", "cannot be listed")])
def test_a_cluster_that_is_down(extend: Extend, model: str, on_error: str, error: str | None) -> None:
    """An API server that does not list its nodes is treated as a service that is down."""

    def systems() -> Mapping[str, str]:
        raise KubernetesError("the nodes of the cluster cannot be listed")

    extender = extend(systems, on_error=on_error)
    sent = args(pod(model=model, slo_us="1"), ["a", "b"])
    if error is None:
        assert filtered(extender, sent)[0] == ["a", "b"]
    else:
        with pytest.raises(RuntimeError, match=error):
            filtered(extender, sent)


def test_requests_of_others_are_refused(extend: Extend) -> None:
    """A malformed request is answered with a 4xx status, and the process stays alive."""
    extender = extend()
    for body in ([], {"Pod": None}, {"Pod": {}, "Nodes": {"items": [{"metadata": {}}]}}, {"Pod": {}, "NodeNames": [1]}):
        assert extender.post("/filter", json=body).status_code == 422
    assert extender.get("/healthz").json() == {"status": "ok"}


def test_more_systems_than_one_request_ranks(extend: Extend, network: _Network, model: str) -> None:
    """The service ranks up to 100 systems in a request; more take several requests."""
    nodes = [node(f"n{i}", f"never.measured.{i}") for i in range(150)] + [node("fast", SYSTEM.name)]
    found = scores(extend(), args(pod(model=model), nodes))
    assert network.asked == 2
    assert {name for name, score in found.items() if score} == {"fast"}


def test_the_log_says_why_nodes_have_no_prediction(
    extend: Extend, model: str, between: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A line for each pod has the numbers of nodes, and a reason each for removed nodes and for missing predictions."""
    with caplog.at_level("INFO", "costmodel.extender"):
        filtered(extend(), args(pod(model=model, slo_us=between), [*NODES, node("new", UNMEASURED)]))
    (line,) = (record.fields for record in caplog.records if record.message == "filtered")  # type: ignore[attr-defined]
    assert (line["pod"], line["nodes"], line["removed"]) == ("vision/detector-7d9c", 4, 1)
    assert "exceeds the objective" in line["reason"]
    assert UNMEASURED in line["unpredicted"]
