"""The static files of the web page; `test_browser.py` tests its behaviour."""

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
    """Pages and their parts are served with a content security policy that allows this host only."""
    response = client.get(path)
    assert response.status_code == 200
    policy = response.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "http" not in policy


@pytest.mark.parametrize(
    "path", ["/static/../app.py", "/static/%2e%2e/app.py", "/static/..%2fapp.py", "/static/examples"]
)
def test_nothing_else_is(client: TestClient, path: str) -> None:
    """No file outside the folder and no directory listing is served."""
    assert client.get(path).status_code == 404


def test_no_file_asks_another_host() -> None:
    """No file contains an external URL except SVG's namespace."""
    for path in STATIC.rglob("*"):
        if path.is_file():
            addresses = set(re.findall(r"(?:https?:)?//[\w.-]+\.[a-z]{2,}[^\s\"'`)]*", path.read_text()))
            assert addresses <= {"http://www.w3.org/2000/svg"}, path


def test_examples_are_graphs_that_can_be_priced(client: TestClient) -> None:
    """Every example of the page is a graph that the service prices."""
    listed = json.loads((STATIC / "examples" / "index.json").read_text())
    assert len(listed) >= 3
    for example in listed:
        graph = json.loads((STATIC / "examples" / example["file"]).read_text())
        WireGraph.model_validate(graph)
        response = client.post("/v1/predict", json={"graph": graph, "name": example["title"]})
        assert response.status_code == 200, response.text
        assert response.json()["latency_us"] > 0
