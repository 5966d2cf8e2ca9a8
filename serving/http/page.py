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
    """Returns the page that predicts the latency of a model."""
    return FileResponse(_STATIC / "index.html")


@router.get("/systems")
async def systems() -> Response:
    """Returns the page about systems: champions, accuracy and drift."""
    return FileResponse(_STATIC / "systems.html")


def mount_static(app: FastAPI) -> None:
    """Serves scripts, styles and pictures under /static."""
    app.mount("/static", StaticFiles(directory=_STATIC), name="static")
