"""The OpenAPI document is true."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from starlette.testclient import TestClient


@pytest.fixture(scope="module")
def document(client: TestClient) -> Mapping[str, Any]:
    """As the service gives it."""
    found: dict[str, Any] = client.get("/openapi.json").json()
    return found


def _references(part: Any) -> Iterator[str]:
    if isinstance(part, dict):
        for key, value in part.items():
            if key == "$ref":
                yield value
            else:
                yield from _references(value)
    elif isinstance(part, list):
        for value in part:
            yield from _references(value)


def test_every_reference_leads_somewhere(document: Mapping[str, Any]) -> None:
    """Within the document."""
    found = set(_references(document))
    assert found
    for reference in found:
        assert reference.startswith("#/components/schemas/")
        assert reference.rpartition("/")[2] in document["components"]["schemas"]


def test_every_example_is_answered(client: TestClient, document: Mapping[str, Any]) -> None:
    """As the document says it is."""
    asked = 0
    for path, operations in document["paths"].items():
        for operation in operations.values():
            content = operation.get("requestBody", {}).get("content", {})
            if "application/json" in content:
                response = client.post(path, json=content["application/json"]["example"])
                assert response.is_success, (path, response.text)
                assert str(response.status_code) in operation["responses"]
                asked += 1
    assert asked == 4


def test_every_operation_says_how_it_fails(document: Mapping[str, Any]) -> None:
    """With problem details, and a sentence on what it does."""
    for path, operations in document["paths"].items():
        for operation in operations.values():
            assert operation["description"], path
            if path.startswith("/v1"):
                for status in ("401", "422", "503"):
                    assert "application/problem+json" in operation["responses"][status]["content"]
