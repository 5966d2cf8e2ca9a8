"""The page as files; what it does in a browser is in `test_browser.py`."""

import json
import re
from pathlib import Path

import pytest
from starlette.testclient import TestClient

import costmodel.serving.http.page as page
from costmodel.serving.wire.graphs import WireGraph

STATIC = Path(page.__file__).parent / "static"


@pytest.mark.parametrize("path", ["/", "/systems", "/static/style.css", "/static/index.js", "/static/strip.js"])
def test_pages_and_their_parts_are_served(client: TestClient, path: str) -> None:
    """With a policy that lets the browser ask nobody but this host."""
    response = client.get(path)
    assert response.status_code == 200
    policy = response.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "http" not in policy


@pytest.mark.parametrize(
    "path", ["/static/../app.py", "/static/%2e%2e/app.py", "/static/..%2fapp.py", "/static/examples"]
)
def test_nothing_else_is(client: TestClient, path: str) -> None:
    """Neither what lies beside the folder nor lists of it."""
    assert client.get(path).status_code == 404


def test_no_file_asks_another_host() -> None:
    """No address is in any of them, but the name of SVG's namespace."""
    for path in STATIC.rglob("*"):
        if path.is_file():
            addresses = set(re.findall(r"(?:https?:)?//[\w.-]+\.[a-z]{2,}[^\s\"'`)]*", path.read_text()))
            assert addresses <= {"http://www.w3.org/2000/svg"}, path


def test_examples_are_graphs_that_can_be_priced(client: TestClient) -> None:
    """Each that the page offers."""
    listed = json.loads((STATIC / "examples" / "index.json").read_text())
    assert len(listed) >= 3
    for example in listed:
        graph = json.loads((STATIC / "examples" / example["file"]).read_text())
        WireGraph.model_validate(graph)
        response = client.post("/v1/predict", json={"graph": graph, "name": example["title"]})
        assert response.status_code == 200, response.text
        assert response.json()["latency_us"] > 0
