"""The web pages: static files that use the same API as all clients."""

from importlib.resources import files
from pathlib import Path

from fastapi import APIRouter, FastAPI
from starlette.responses import FileResponse, Response
from starlette.staticfiles import StaticFiles

__all__ = ["mount_static", "router"]

router = APIRouter(include_in_schema=False)
_STATIC = Path(str(files("costmodel.serving.http") / "static"))


@router.get("/")
async def index() -> Response:
    """Returns the web page on which the latency of a model is predicted."""
    return FileResponse(_STATIC / "index.html")


@router.get("/systems")
async def systems() -> Response:
    """Returns the web page about systems: their champions, accuracy and drift."""
    return FileResponse(_STATIC / "systems.html")


def mount_static(app: FastAPI) -> None:
    """Adds the scripts, styles and pictures of the web pages to an application, under /static."""
    app.mount("/static", StaticFiles(directory=_STATIC), name="static")
