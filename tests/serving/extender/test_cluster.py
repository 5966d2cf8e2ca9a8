"""Labels of nodes from the API server of a cluster, which a fake stands for."""

from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from costmodel.errors import KubernetesError
from costmodel.serving.extender.cluster import ClusterNodes, ServiceAccount, cluster_url, connect

LABEL = "costmodel.dev/system"


class _ApiServer:
    """An API server that lists nodes on pages of one node, as their metadata."""

    def __init__(self, **nodes: str) -> None:
        self.nodes = nodes
        self.asked: list[httpx.Request] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request)
        assert request.url.path == "/api/v1/nodes"
        assert request.url.params["labelSelector"] == LABEL
        assert request.headers["accept"].startswith("application/json;as=PartialObjectMetadataList")
        first = int(request.url.params.get("continue", "0"))
        page = list(self.nodes.items())[first : first + 1]
        following = {"continue": str(first + 1)} if first + 1 < len(self.nodes) else {}
        items = [{"metadata": {"name": name, "labels": {LABEL: system}}} for name, system in page]
        return httpx.Response(200, json={"kind": "PartialObjectMetadataList", "metadata": following, "items": items})


def _reader(
    server: Callable[[httpx.Request], httpx.Response], account: Path, clock: Callable[[], float] = lambda: 0.0
) -> ClusterNodes:
    http = httpx.Client(base_url="https://cluster", transport=httpx.MockTransport(server), auth=ServiceAccount(account))
    return ClusterNodes(http, cache_s=30.0, pause_s=5.0, clock=clock)


def test_labels_are_listed_page_by_page(tmp_path: Path) -> None:
    """All pages are read, with the token of the service account as it is at that moment."""
    server = _ApiServer(a="zen", b="lake", c="zen")
    (tmp_path / "token").write_text("first\n")
    assert _reader(server, tmp_path).systems() == {"a": "zen", "b": "lake", "c": "zen"}
    assert [request.headers["authorization"] for request in server.asked] == ["Bearer first"] * 3


def test_labels_are_cached(tmp_path: Path) -> None:
    """The API server is asked again when the cache time is over."""
    now = [0.0]
    server = _ApiServer(a="zen")
    reader = _reader(server, tmp_path, lambda: now[0])
    assert reader.systems() == reader.systems()
    assert len(server.asked) == 1
    now[0], server.nodes = 31.0, {"a": "lake"}
    assert reader.systems() == {"a": "lake"}


def test_labels_outlive_a_failure(tmp_path: Path) -> None:
    """While the API server is down the last labels count, and it is asked again after a pause only."""
    now, asked = [0.0], []
    server = _ApiServer(a="zen")
    answers: list[Callable[[httpx.Request], httpx.Response]] = [server, _unreachable, server]

    def faulty(request: httpx.Request) -> httpx.Response:
        asked.append(now[0])
        return answers[len(asked) - 1](request)

    reader = _reader(faulty, tmp_path, lambda: now[0])
    for now[0] in (0.0, 31.0, 33.0, 37.0):
        assert reader.systems() == {"a": "zen"}
    assert asked == [0.0, 31.0, 37.0]


def _unreachable(request: httpx.Request) -> httpx.Response:
    raise httpx.ConnectError("refused")


@pytest.mark.parametrize(
    "server",
    [
        lambda _: httpx.Response(403, json={"kind": "Status"}),
        lambda _: httpx.Response(200, text="<html>"),
        _unreachable,
    ],
    ids=["forbidden", "no JSON", "unreachable"],
)
def test_a_server_that_lists_nothing(tmp_path: Path, server: Callable[[httpx.Request], httpx.Response]) -> None:
    """The error names the permission that is needed."""
    with pytest.raises(KubernetesError, match="needs the verb list on nodes"):
        _reader(server, tmp_path).systems()


def test_the_cluster_is_found_by_its_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kubernetes gives each container the address of its API server; outside of a cluster there is none."""
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    assert cluster_url() is None
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    for host, url in (("10.0.0.1", "https://10.0.0.1:443"), ("fd00::1", "https://[fd00::1]:443")):
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
        assert cluster_url() == url


def test_the_address_of_the_cluster_is_a_url() -> None:
    """A wrong address is refused before the first request."""
    with pytest.raises(KubernetesError, match="is not the URL"):
        connect("kubernetes.default.svc", timeout_s=1.0, cache_s=1.0, pause_s=1.0)
