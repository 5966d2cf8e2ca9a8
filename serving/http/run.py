"""Runs the service with uvicorn."""

import os
import resource
import tempfile
from collections.abc import Callable, Mapping

from costmodel.errors import MissingExtraError
from costmodel.interruption import ended_by_signals
from costmodel.process_state import environment_variables
from costmodel.serving.listening import listen

try:
    import uvicorn
except ImportError as error:
    raise MissingExtraError("the service", "serve") from error

__all__ = ["run_service"]

_SHUTDOWN_S = 20


def run_service(
    host: str, port: int, workers: int, settings: Mapping[str, str], on_ready: Callable[[str], None]
) -> None:
    """Serves requests until stopped; requests in progress are finished first.

    Args:
        host: Address to listen on.
        port: Port to listen on; 0 for a free one.
        workers: Number of web server processes.
        settings: Settings by the names of their environment variables; they take precedence over the environment.
        on_ready: Function that is called with the URL of the service as soon as clients can connect.

    Raises:
        CostModelError: The address cannot be listened on, or an optional dependency is not installed.
    """
    given = dict(settings)
    with tempfile.TemporaryDirectory(prefix="costmodel-metrics-") as folder:
        # prometheus_client reads it when it is imported
        if workers > 1 and "PROMETHEUS_MULTIPROC_DIR" not in os.environ:
            given["PROMETHEUS_MULTIPROC_DIR"] = folder
        with environment_variables(given):  # the worker processes receive settings through the environment only
            _run(host, port, workers, on_ready)


def _run(host: str, port: int, workers: int, on_ready: Callable[[str], None]) -> None:
    # Checks the settings here, where an error is reported in one sentence, and not once per worker.
    try:
        from costmodel.serving.http.app import create_app
    except ModuleNotFoundError as error:  # uvicorn may be there for the sake of another package
        raise MissingExtraError("the service", "serve") from error
    from costmodel.serving.logs import set_up_logging

    create_app()
    _, most_files = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most_files, most_files))  # each connection needs a file descriptor
    config = uvicorn.Config(
        "costmodel.serving.http.run:application",
        factory=True,
        host=host,
        port=port,
        workers=workers,
        log_config=None,
        access_log=False,  # `RequestMiddleware` logs more
        server_header=False,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=_SHUTDOWN_S,
        http="costmodel.serving.http.protocol:LimitedProtocol",
    )
    set_up_logging()
    # Clients that connect before a worker is ready wait and are not refused.
    socket, url = listen(host, port, config.backlog)
    with ended_by_signals():
        on_ready(url)
        if workers > 1:
            from costmodel.serving.http.supervisor import Supervisor

            Supervisor(config, [socket]).run()
        else:
            uvicorn.Server(config).run(sockets=[socket])


def application() -> object:
    """Returns the service as an ASGI application; uvicorn calls this function in each web server process."""
    from costmodel.serving.http.app import create_app
    from costmodel.serving.logs import set_up_logging

    set_up_logging()
    return create_app()
