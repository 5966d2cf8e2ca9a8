"""Runs an application with uvicorn in a thread of the test process."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread

import uvicorn

__all__ = ["running"]


@contextmanager
def running(config: uvicorn.Config) -> Iterator[str]:
    """Yields the URL of a server, once it accepts connections; stops it at the end."""
    socket = config.bind_socket()
    server = uvicorn.Server(config)
    thread = Thread(target=server.run, kwargs={"sockets": [socket]})
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{socket.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
        socket.close()
