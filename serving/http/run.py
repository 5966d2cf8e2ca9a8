"""Running the service with uvicorn: the one file that knows it."""

import os
import resource
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from costmodel.errors import MissingExtraError

try:
    import uvicorn
except ImportError as error:
    raise MissingExtraError("the service", "serve") from error

__all__ = ["run"]

_SHUTDOWN_S = 20


def run(host: str, port: int, workers: int, settings: Mapping[str, str], told: Callable[[str], None]) -> None:
    """Answer until stopped; what is under way is finished.

    Args:
        host: Address to listen on.
        port: To listen on; 0 for a free one.
        workers: Processes that answer.
        settings: That go before those of the environment, by the names that they have there.
        told: Given the URL before the first answer.
    """
    given = dict(settings)
    if workers > 1 and "PROMETHEUS_MULTIPROC_DIR" not in os.environ:  # read where the library is imported
        given["PROMETHEUS_MULTIPROC_DIR"] = tempfile.mkdtemp(prefix="costmodel-metrics-")
    with _environment(given):  # the one thing that reaches the processes of the workers
        _run(host, port, workers, told)


def _run(host: str, port: int, workers: int, told: Callable[[str], None]) -> None:
    # Looked at here, where what is wrong is one sentence, and not in each worker.
    from costmodel.serving.http.app import create_app
    from costmodel.serving.logs import set_up_logging

    create_app()
    _, most_files = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most_files, most_files))  # a connection is a file
    config = uvicorn.Config(
        "costmodel.serving.http.run:application",
        factory=True,
        host=host,
        port=port,
        workers=workers,
        log_config=None,
        access_log=False,  # ours says more
        server_header=False,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=_SHUTDOWN_S,
        http="costmodel.serving.http.protocol:LimitedProtocol",
    )
    set_up_logging()
    socket = config.bind_socket()
    socket.listen(config.backlog)  # who comes before a worker is ready waits, and is not refused
    shown = f"[{host}]" if ":" in host else host
    told(f"http://{shown}:{socket.getsockname()[1]}")
    if workers > 1:
        from costmodel.serving.http.supervisor import Supervisor

        Supervisor(config, [socket]).run()
    else:
        uvicorn.Server(config).run(sockets=[socket])


@contextmanager
def _environment(given: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in given}
    os.environ.update(given)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def application() -> object:
    """The application, in a process of its own."""
    from costmodel.serving.http.app import create_app
    from costmodel.serving.logs import set_up_logging

    set_up_logging()
    return create_app()
