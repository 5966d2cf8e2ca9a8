"""The process above the web servers: it starts another one for each that dies."""

import logging
from socket import socket

from uvicorn import Config
from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors import Multiprocess
from uvicorn.supervisors.multiprocess import Process

__all__ = ["Supervisor"]

_LOG = logging.getLogger("costmodel.service")
_PAUSE_S = 1.0


class Supervisor(Multiprocess):
    """uvicorn's supervisor, which goes on when a web server does not start although others did before.

    uvicorn ends the service then, because what keeps one from starting is likely to keep all. That holds for the first
    ones; later a database that is down, or memory that is short for a moment, must not stop those that answer.
    """

    def __init__(self, config: Config, sockets: list[socket]) -> None:
        """Nothing was started yet."""
        super().__init__(config, sockets)
        self._served = False

    def keep_subprocess_alive(self) -> None:
        """Replace processes that died, or do not answer."""
        for place, process in enumerate(self.processes):
            if process.is_alive(timeout=self.config.timeout_worker_healthcheck):
                self._served = self._served or process.is_ready(self.config.timeout_worker_healthcheck)
                continue
            process.kill()
            process.join()
            if process.exitcode == STARTUP_FAILURE and not self._served:
                _LOG.error("a web server does not start: see above why")
                self.should_exit.set()
            elif process.exitcode == STARTUP_FAILURE:
                _LOG.error("a web server did not start: see above why; another one is started")
                self.should_exit.wait(_PAUSE_S)
            else:
                _LOG.warning("a web server died, or did not answer; another one is started")
            if self.should_exit.is_set():
                return
            self.processes[place] = Process(self.config, self.sockets)
            self.processes[place].start()
