"""The OpenAPI document: what FastAPI cannot see is added, and examples are questions that this service can answer."""

import copy
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel

from costmodel.serving.wire.answers import ProblemAnswer
from costmodel.serving.wire.problems import MEDIA_TYPE

__all__ = ["EXAMPLE_GRAPH", "PROBLEMS", "describe", "describes_file", "describes_json", "describes_model"]

_SCHEMAS = "#/components/schemas/"
_FILE_TYPE = "application/octet-stream"
# Read by their routes themselves, so that FastAPI does not know of them.
_BODIES: dict[str, type[BaseModel]] = {}


def _problem(description: str) -> dict[str, Any]:
    return {"description": description, "content": {MEDIA_TYPE: {"schema": {"$ref": f"{_SCHEMAS}ProblemAnswer"}}}}


PROBLEMS: dict[int | str, dict[str, Any]] = {
    400: _problem("The request ended before its body did."),
    401: _problem("A token is needed."),
    403: _problem("The token may not do that."),
    404: _problem("The model, the system or the regressor is not known here."),
    409: _problem("The Idempotency-Key was used for another observation."),
    411: _problem("The length of a file is not declared."),
    421: _problem("The Host header names another service."),
    429: _problem("Too many requests of one client are under way."),
    408: _problem("The body did not arrive in time."),
    413: _problem("The body is too large, or asks for too much at once."),
    415: _problem("The body is of a type that is not understood."),
    422: _problem("The request is not valid, or the model cannot be used."),
    503: _problem("The service is busy, or its store cannot be used: ask again after Retry-After seconds."),
}

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
    """Tells the document that the body is JSON of a model, which the route reads by itself."""
    _BODIES[model.__name__] = model
    schema = {"$ref": f"{_SCHEMAS}{model.__name__}"}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def describes_file() -> dict[str, Any]:
    """Tells the document that the body is an ONNX file."""
    content = {_FILE_TYPE: {"schema": {"type": "string", "format": "binary"}}}
    return {"requestBody": {"required": True, "content": content}}


def describes_model(model: type[BaseModel]) -> dict[str, Any]:
    """Tells the document that the body is JSON of a model, or an ONNX file."""
    described = describes_json(model)
    described["requestBody"]["content"] |= describes_file()["requestBody"]["content"]
    return described


def describe(app: FastAPI) -> dict[str, Any]:
    """The document of an application; made once, with examples for a system that it answers for."""
    if app.openapi_schema:
        return app.openapi_schema
    document = copy.deepcopy(get_openapi(title=app.title, version=app.version, summary=app.summary, routes=app.routes))
    components = document["components"]["schemas"]
    bodies: list[type[BaseModel]] = [ProblemAnswer, *_BODIES.values()]
    for model in bodies:
        _add(components, model)
    document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    document["security"] = [{"token": []}, {}]
    state = getattr(app.state, "costmodel", None)
    systems = list(state.directory.snapshot.entries) if state is not None else []
    for path, example in _examples(systems[0] if systems else "c5.xlarge").items():
        document["paths"][path]["post"]["requestBody"]["content"]["application/json"]["example"] = example
    if systems:  # before that the examples are of no system
        app.openapi_schema = document
    return document


def _add(components: dict[str, Any], model: type[BaseModel]) -> None:
    schema = model.model_json_schema(ref_template=_SCHEMAS + "{model}")
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
        "/v1/rank": {"models": [{"graph": EXAMPLE_GRAPH, "name": "example"}], "slo_us": 5000, "quantile": "p90"},
        "/v1/observations": {
            "graph": EXAMPLE_GRAPH,
            "name": "example",
            "system": system,
            "latency_us": 2500,
            "runs": 100,
        },
    }
