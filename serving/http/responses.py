"""HTTP responses with problem details (RFC 9457)."""

from starlette.requests import Request
from starlette.responses import JSONResponse

from costmodel.serving.wire.problems import MEDIA_TYPE, Problem

__all__ = ["problem_response"]


def problem_response(request: Request, problem: Problem) -> JSONResponse:
    """Returns the HTTP response for a problem, with the request identifier under which the log has the details.

    Args:
        request: Request that cannot be answered.
        problem: Reason why it cannot be answered.
    """
    content = problem.to_dict()
    request_id = request.scope.get("request_id")
    if request_id:
        content["request_id"] = request_id
    return JSONResponse(content, problem.status, problem.headers, media_type=MEDIA_TYPE)
