"""The OpenAPI document: what FastAPI derives from the routes, what it cannot derive, and examples of requests."""

import copy
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel, TypeAdapter

from costmodel.serving.http.docstrings import describe_members
from costmodel.serving.wire import answers
from costmodel.serving.wire.problems import MEDIA_TYPE, ProblemAnswer

__all__ = [
    "EXAMPLE_GRAPH", "FILE_BODY", "IF_NONE_MATCH", "JSON_BODY", "NOT_MODIFIED", "TAGGED", "describe", "describes_file",
    "describes_json", "describes_model", "problems",
]  # fmt: skip

_DESCRIPTION = (
    "Every answer has the header `X-Request-Id`, which identifies the request in the log of the service. Errors are "
    "problem details (RFC 9457). Lists are paged: `next` of a page is the parameter for the following one. A request "
    "that is answered with 429 or 503 may be repeated after `Retry-After` seconds."
)
_SCHEMAS = "#/components/schemas/"
_FILE_TYPE = "application/octet-stream"
# Request bodies that the routes parse themselves, so that FastAPI does not know their models.
_BODIES: dict[str, type[BaseModel]] = {}


_PROBLEMS = {
    400: "The request ended before its body did.",
    401: "A token is required.",
    403: "The token does not have the required scope.",
    404: "The model, system, regressor or observation does not exist here.",
    408: "The body did not arrive in time.",
    409: "The Idempotency-Key was used before for another observation.",
    411: "The length of the file is not declared (Content-Length).",
    413: "The body is too large, or the request exceeds a limit on its items.",
    415: "The media type or the encoding of the body is not supported.",
    421: "The Host header does not name this service.",
    422: "The request is not valid, or the model cannot be used.",
    429: "Too many requests of one client are in flight: repeat after Retry-After seconds.",
    431: "The URL and the headers of the request exceed 64 KiB.",
    503: "The service is busy, or its results store cannot be used: repeat after Retry-After seconds.",
}
_TEXT = {"type": "string"}
_SECONDS = {"description": "Seconds after which to repeat the request.", "schema": {"type": "integer", "minimum": 1}}
_HEADERS: dict[int, dict[str, Any]] = {
    401: {"WWW-Authenticate": {"schema": _TEXT}},
    403: {"WWW-Authenticate": {"schema": _TEXT}},
    429: {"Retry-After": _SECONDS},
    503: {"Retry-After": _SECONDS},
}
# Additional statuses of operations with a JSON body, and of those with a file.
JSON_BODY = (400, 408, 413, 415)
FILE_BODY = (*JSON_BODY, 411)

_ETAG = {"ETag": {"description": "Entity tag: changes whenever the answer changes.", "schema": _TEXT}}
TAGGED: dict[str, Any] = {"headers": _ETAG}
IF_NONE_MATCH: dict[str, Any] = {
    "name": "If-None-Match", "in": "header", "required": False, "schema": _TEXT,
    "description": "ETag of an answer that the client has; while it is valid, the answer is 304 without a body.",
}  # fmt: skip
NOT_MODIFIED: dict[str, Any] = {"description": "The answer with this ETag is still valid.", "headers": _ETAG}


def problems(*statuses: int, closed: bool = True) -> dict[int | str, dict[str, Any]]:
    """Returns the OpenAPI descriptions of the error responses of an operation, by HTTP status.

    Args:
        statuses: Error statuses of the operation in addition to those of every operation.
        closed: Whether the operation checks the Host header and the token, and so also responds with 401, 403 and 421.
    """
    every = (401, 403, 421, 429, 431) if closed else (429, 431)
    return {status: _problem(status) for status in sorted({*every, *statuses})}


def _problem(status: int) -> dict[str, Any]:
    found = {
        "description": _PROBLEMS[status],
        "content": {MEDIA_TYPE: {"schema": {"$ref": f"{_SCHEMAS}ProblemAnswer"}}},
    }
    return found | ({"headers": _HEADERS[status]} if status in _HEADERS else {})


# A convolution with its activation and a pooling, as ONNX Runtime executes them.
EXAMPLE_GRAPH: dict[str, Any] = {
    "layers": [
        {
            "name": "conv", "op": "Conv", "domain": "com.microsoft.nchwc", "since": 1,
            "attrs": {
                "activation": {"s": "Relu"}, "dilations": {"ints": [1, 1]}, "group": {"i": 1},
                "kernel_shape": {"ints": [3, 3]}, "pads": {"ints": [1, 1, 1, 1]}, "strides": {"ints": [1, 1]},
            },
            "in": ["image", "weights"], "out": ["conv_out"],
        },
        {
            "name": "pool", "op": "GlobalAveragePool", "domain": "com.microsoft.nchwc", "since": 1, "attrs": {},
            "in": ["conv_out"], "out": ["pooled"],
        },
    ],
    "types": {
        "image": ["float32", [1, 3, 224, 224], False], "weights": ["float32", [32, 3, 3, 3], False],
        "conv_out": ["float32", [1, 32, 224, 224], True], "pooled": ["float32", [1, 32, 1, 1], True],
    },
    "constants": {"weights": None}, "inputs": ["image"], "outputs": ["pooled"], "opset": 18,
}  # fmt: skip

_EXAMPLE_SEQUENCE: dict[str, Any] = {
    "layers": [
        {"op": "Softmax", "domain": "", "since": 13, "attrs": {"axis": {"i": -1}}, "in": [0], "out": [1], "captured": 0}
    ],
    "values": [["float32", [12, 128, 128], 0, "input", None], ["float32", [12, 128, 128], 0, "internal", None]],
    "outputs": [1],
}  # fmt: skip


def describes_json(model: type[BaseModel]) -> dict[str, Any]:
    """Returns the OpenAPI description of a JSON request body that the route parses itself.

    The schema of the body is added to the OpenAPI document.

    Args:
        model: Pydantic model of the body.
    """
    _BODIES[model.__name__] = model
    schema = {"$ref": f"{_SCHEMAS}{model.__name__}"}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def describes_file() -> dict[str, Any]:
    """Returns the OpenAPI description of a request body that is an ONNX file."""
    content = {_FILE_TYPE: {"schema": {"type": "string", "format": "binary"}}}
    return {"requestBody": {"required": True, "content": content}}


def describes_model(model: type[BaseModel]) -> dict[str, Any]:
    """Returns the OpenAPI description of a request body that is either an ONNX file or the JSON of a pydantic model."""
    described = describes_json(model)
    described["requestBody"]["content"] |= describes_file()["requestBody"]["content"]
    return described


def describe(app: FastAPI) -> dict[str, Any]:
    """Returns the OpenAPI document of an application.

    The examples name a system of the results store, or a placeholder as long as the store has none. Until it has one,
    the document is built anew in each call; afterwards it is built once and kept.
    """
    if app.openapi_schema:
        return app.openapi_schema
    found = get_openapi(
        title=app.title, version=app.version, summary=app.summary, description=_DESCRIPTION, routes=app.routes
    )
    document = copy.deepcopy(found)
    components = document["components"]["schemas"]
    for model in (ProblemAnswer, *_BODIES.values()):
        _add(components, model)
    for name in answers.__all__:
        describe_members(components, getattr(answers, name))
    document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    document["security"] = [{"token": []}, {}]
    for path, operations in document["paths"].items():
        if path.startswith("/v1/") and "get" in operations:
            operations["head"] = _head_of(operations["get"])
    state = getattr(app.state, "costmodel", None)
    systems = list(state.directory.entries) if state is not None else []
    for path, example in _examples(systems[0] if systems else "c5.xlarge").items():
        document["paths"][path]["post"]["requestBody"]["content"]["application/json"]["example"] = example
    if systems:  # until then the examples name a placeholder system
        app.openapi_schema = document
    return document


def _head_of(operation: dict[str, Any]) -> dict[str, Any]:
    """Returns the OpenAPI description of the HEAD operation that belongs to a GET operation: the same without bodies.

    `RequestMiddleware` answers HEAD requests.
    """
    head = copy.deepcopy(operation)
    head["operationId"] += "Head"
    head["summary"] += " (headers only)"
    for response in head["responses"].values():
        response.pop("content", None)
    return head


def _add(components: dict[str, Any], model: Any) -> None:
    schema = TypeAdapter(model).json_schema(ref_template=_SCHEMAS + "{model}")
    components |= schema.pop("$defs", {})
    components[model.__name__] = schema


def _examples(system: str) -> dict[str, dict[str, Any]]:
    return {
        "/v1/predict": {"graph": EXAMPLE_GRAPH, "name": "example", "system": system},
        "/v1/predict/bulk": {
            "system": system,
            "layers": [_EXAMPLE_SEQUENCE],
            "items": [{"name": "one", "layers": [0]}, {"name": "two", "layers": [0, 0]}],
        },
        "/v1/capacity": {
            "graph": EXAMPLE_GRAPH,
            "name": "example",
            "system": system,
            "slo_us": 50_000,
            "arrivals_per_s": 120,
        },
        "/v1/tune": {"graph": EXAMPLE_GRAPH, "name": "example", "system": system, "slo_us": 5000},
        "/v1/rank": {"models": [{"graph": EXAMPLE_GRAPH, "name": "example"}], "slo_us": 5000, "quantile": "p90"},
        "/v1/observations": {
            "graph": EXAMPLE_GRAPH,
            "name": "example",
            "system": system,
            "latency_us": 2500,
            "runs": 100,
        },
    }
