"""The parent process of the web servers, which replaces each web server that dies."""

import logging
from socket import socket

from prometheus_client.multiprocess import mark_process_dead
from uvicorn import Config
from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors import Multiprocess
from uvicorn.supervisors.multiprocess import Process

__all__ = ["Supervisor"]

_LOG = logging.getLogger("costmodel.service")
_PAUSE_S = 1.0


class Supervisor(Multiprocess):
    """Supervisor of uvicorn's web servers that continues when one of them fails to start after others did.

    uvicorn itself ends the service if a web server fails to start, because the cause is likely to affect all of them.
    This behaviour is right at the first start; later, a database that is down or a moment of little memory must not
    stop the web servers that still answer.
    """

    def __init__(self, config: Config, sockets: list[socket]) -> None:
        """Notes that no web server has been ready yet."""
        super().__init__(config, sockets)
        self._served = False
        self._seen: set[int] = set()

    def keep_subprocess_alive(self) -> None:
        """Replaces web servers that died or do not answer; ends the service if the first ones cannot start."""
        self._forget_gauges()
        for index, process in enumerate(self.processes):
            if process.is_alive(timeout=self.config.timeout_worker_healthcheck):
                self._served = self._served or process.is_ready(self.config.timeout_worker_healthcheck)
                continue
            process.kill()
            process.join()
            if process.exitcode == STARTUP_FAILURE and not self._served:
                _LOG.error("a web server does not start: see the log above")
                self.should_exit.set()
            elif process.exitcode == STARTUP_FAILURE:
                _LOG.error("a web server did not start: see the log above; starting another one")
                self.should_exit.wait(_PAUSE_S)
            else:
                _LOG.warning("a web server died or did not answer; starting another one")
            if self.should_exit.is_set():
                return
            self.processes[index] = Process(self.config, self.sockets)
            self.processes[index].start()

    def _forget_gauges(self) -> None:
        """Removes the gauges of web servers that ended from the sums over all of them."""
        running = {process.pid for process in self.processes if process.pid is not None}
        for pid in self._seen - running:
            mark_process_dead(pid)  # type: ignore[no-untyped-call]
        self._seen = running
