"""Opens the socket that a service listens on."""

import errno
import socket

from costmodel.errors import CostModelError

__all__ = ["listen"]


def listen(host: str, port: int, backlog: int) -> tuple[socket.socket, str]:
    """Returns a socket that listens on an address, and the URL under which clients reach it.

    Args:
        host: Address to listen on, or the name of one.
        port: Port to listen on; 0 for a free one.
        backlog: Number of clients that may wait until they are accepted.

    Raises:
        CostModelError: The address cannot be listened on.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family, backlog=backlog)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise CostModelError(f"port {port} of {host} is in use: choose another with --port") from error
        raise CostModelError(
            f"{host}, port {port}, cannot be listened on ({error.strerror}): choose others with --host and --port"
        ) from error
    listening.set_inheritable(True)
    shown = f"[{host}]" if ":" in host else host
    return listening, f"http://{shown}:{listening.getsockname()[1]}"
