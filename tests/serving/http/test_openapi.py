"""The OpenAPI document matches the service."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from httpx import Response
from jsonschema import Draft202012Validator
from openapi_spec_validator import validate
from starlette.testclient import TestClient

from tests.served import Serve


@pytest.fixture(scope="module")
def document(client: TestClient) -> Mapping[str, Any]:
    """The OpenAPI document that the service returns."""
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


def _operations(document: Mapping[str, Any]) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            yield method, path, operation


def test_every_reference_leads_somewhere(document: Mapping[str, Any]) -> None:
    """Every reference resolves within the document."""
    found = set(_references(document))
    assert found
    for reference in found:
        assert reference.startswith("#/components/schemas/")
        assert reference.rpartition("/")[2] in document["components"]["schemas"]


def test_every_example_is_answered(client: TestClient, document: Mapping[str, Any]) -> None:
    """Every example request gets the documented answer."""
    asked = 0
    for path, operations in document["paths"].items():
        for operation in operations.values():
            content = operation.get("requestBody", {}).get("content", {})
            if "application/json" in content:
                response = client.post(path, json=content["application/json"]["example"])
                assert response.is_success, (path, response.text)
                _check(document, operation, response)
                asked += 1
    assert asked == 6


def test_every_list_is_as_documented(client: TestClient, document: Mapping[str, Any]) -> None:
    """What GET requests return matches the documented schemas."""
    for path, operations in document["paths"].items():
        if "get" in operations and "{" not in path and path != "/metrics":
            _check(document, operations["get"], client.get(path))


def _check(document: Mapping[str, Any], operation: Mapping[str, Any], response: Response) -> None:
    """Checks that a response is one of those that its operation documents."""
    documented = operation["responses"][str(response.status_code)]["content"]["application/json"]["schema"]
    schema = {**documented, "components": document["components"]}
    Draft202012Validator(schema).validate(response.json())


def test_every_member_of_an_estimate_is_described(document: Mapping[str, Any]) -> None:
    """Members of answers are described by the docstrings of their types, which descriptions of schemas leave out."""
    schemas = document["components"]["schemas"]
    for name in ("PredictAnswer", "LayerDocument", "RegressorAnswer", "ObservationAnswer", "SystemAnswer", "Ranked"):
        assert all("description" in member for member in schemas[name]["properties"].values()), name
    assert "null without observations" in schemas["Drift"]["properties"]["ratio"]["description"]
    assert not any("Attributes:" in schema.get("description", "") for schema in schemas.values())


def test_every_operation_says_how_it_fails(document: Mapping[str, Any]) -> None:
    """Every operation documents its problem responses and has a description."""
    for method, path, operation in _operations(document):
        assert operation["description"], path
        statuses = {int(status) for status in operation["responses"] if int(status) >= 400}
        expected = {429} if path in ("/healthz", "/readyz") else {401, 403, 421, 429}
        if "requestBody" in operation:
            expected |= {400, 408, 413, 415, 422, 503}
        if "application/octet-stream" in operation.get("requestBody", {}).get("content", {}):
            expected |= {411}
        if "{" in path:
            expected |= {404, 422}
        assert expected <= statuses, (method, path)
        if "requestBody" not in operation:
            assert not statuses & {400, 408, 409, 411, 413, 415}, (method, path)
        for status in statuses - ({503} if path == "/readyz" else set()):
            response = operation["responses"][str(status)]
            assert method == "head" or "application/problem+json" in response["content"]
            assert ("Retry-After" in response.get("headers", {})) == (status in (429, 503))


def test_it_is_valid(document: dict[str, Any]) -> None:
    """The document is valid OpenAPI, and its examples match their schemas."""
    validate(document)


def test_operations_have_names_that_stay(document: Mapping[str, Any]) -> None:
    """Operation ids are fixed, because generated clients use them as function names."""
    assert {operation["operationId"] for method, _, operation in _operations(document) if method != "head"} == {
        "predict", "predictBulk", "rank", "capacity", "tune", "sendModel", "listModels", "getModel", "getPrediction",
        "deleteModel", "createObservation", "listObservations", "deleteObservation", "deleteObservations",
        "listSystems", "getSystem", "listRegressors", "getHealth", "getReadiness", "getMetrics",
    }  # fmt: skip


def test_heads_are_offered_beside_what_is_read(client: TestClient, document: Mapping[str, Any]) -> None:
    """Every GET has a HEAD with the same headers and no body."""
    heads = {path for method, path, _ in _operations(document) if method == "head"}
    assert heads == {path for method, path, _ in _operations(document) if method == "get" and path.startswith("/v1/")}
    for path in heads:
        if "{" not in path:
            head, get = client.head(path), client.get(path)
            assert (head.status_code, head.content) == (200, b"")
            assert head.headers["content-length"] == get.headers["content-length"]


def test_it_says_where_the_service_is(serve: Serve) -> None:
    """Behind a proxy with a prefix, the document states the prefixed server URL."""
    client = serve(root_path="/costmodel")
    for prefix in ("", "/costmodel"):  # some proxies remove the prefix
        assert client.get(f"{prefix}/openapi.json").json()["servers"] == [{"url": "/costmodel"}]
        assert client.get(f"{prefix}/v1/systems").status_code == 200
