"""Runs the scheduler extender with uvicorn."""

from collections.abc import Callable

from costmodel.errors import CostModelError, MissingExtraError
from costmodel.interruption import ended_by_signals
from costmodel.serving.extender.settings import ExtenderSettings
from costmodel.serving.listening import listen
from costmodel.serving.logs import set_up_logging

try:
    import uvicorn

    from costmodel.client import Client, ServiceError
    from costmodel.serving.extender.app import create_extender
    from costmodel.serving.extender.cluster import connect
except ImportError as error:
    raise MissingExtraError("the scheduler extender", "serve") from error

__all__ = ["run_extender"]

_SHUTDOWN_S = 5


def run_extender(host: str, port: int, settings: ExtenderSettings, on_ready: Callable[[str], None]) -> None:
    """Answers the scheduler until stopped.

    Args:
        host: Address to listen on.
        port: Port to listen on; 0 for a free one.
        settings: Settings of the extender.
        on_ready: Function that is called with the URL of the extender as soon as clients can connect.

    Raises:
        CostModelError: The URL of the service or of the API server is not a URL, or the address cannot be listened on.
    """
    if not settings.server.startswith(("http://", "https://")):
        raise CostModelError(f"{settings.server!r} is not the URL of a service: give one such as http://127.0.0.1:8000")
    try:
        # A request is not repeated: the scheduler waits for the answer.
        client = Client(settings.server, token=settings.token, timeout_s=settings.timeout_s, retries=0)
    except ServiceError as error:
        raise CostModelError(str(error)) from error
    cluster = None
    if settings.cluster is not None:
        cluster = connect(
            settings.cluster, timeout_s=settings.timeout_s, cache_s=settings.cache_s, pause_s=settings.pause_s
        )
    app = create_extender(settings, client, None if cluster is None else cluster.systems)
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=_SHUTDOWN_S,
    )
    set_up_logging()
    socket, url = listen(host, port, config.backlog)
    with ended_by_signals():
        on_ready(url)
        uvicorn.Server(config).run(sockets=[socket])
