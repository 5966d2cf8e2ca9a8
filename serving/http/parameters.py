"""Refuses requests with query parameters that their route does not have, such as misspelt ones."""

from collections.abc import Mapping
from typing import Any

from fastapi import Request

from costmodel.serving.wire.problems import Problem

__all__ = ["QueryParameters", "only_known_parameters", "query_parameters"]

QueryParameters = Mapping[tuple[str, str], frozenset[str]]
"""Names of the query parameters of each route, by the route's path and its method."""


def query_parameters(document: Mapping[str, Any]) -> QueryParameters:
    """Returns the query parameters of all routes.

    Args:
        document: The OpenAPI document of the service.
    """
    return {
        (path, method.upper()): frozenset(
            parameter["name"] for parameter in operation.get("parameters", ()) if parameter["in"] == "query"
        )
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
    }


async def only_known_parameters(request: Request) -> None:
    """Refuses a request with a query parameter that its route does not have: a dependency of routes.

    Raises:
        Problem: There is such a parameter.
    """
    routes: QueryParameters = request.app.state.query_parameters
    known = routes[request.scope["route"].path, request.method]
    unknown = next((name for name in request.query_params if name not in known), None)
    if unknown is not None:
        there_are = f"there are {', '.join(sorted(known))}" if known else "there are none"
        raise Problem(422, "invalid-request", f"{unknown[:100]!r} is no parameter of this request: {there_are}")
