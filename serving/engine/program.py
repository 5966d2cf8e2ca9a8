"""Program that an engine process runs: `python -m costmodel.serving.engine.program SETTINGS`.

SETTINGS is a JSON object with the fields of `EngineSettings`. The engine receives calls as messages on standard input
and sends its replies as messages on standard output; `costmodel.serving.isolation.child` defines their format.
"""

import ctypes
import gc
import json
import os
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from pydantic import TypeAdapter

from costmodel.serving.engine.call import Call
from costmodel.serving.engine.operations import Operations
from costmodel.serving.engine.settings import EngineSettings
from costmodel.serving.isolation.child import open_answers, receive, send
from costmodel.serving.isolation.limits import limit_memory
from costmodel.serving.logs import set_up_logging

__all__ = ["main"]

# Engines yield the processor to the threads of the web server, which are short and which all clients wait for.
_NICENESS = 10
# Number of new objects after which the garbage collector runs. A request of ten thousand models creates that many at
# once; with Python's default of 700, half of the time of its answer goes into garbage collection.
_COLLECT_AFTER = 50_000
_OUT_OF_MEMORY = 3
_LARGE_BYTES = 4 << 20


def main() -> None:
    """Answers the calls of a web server until standard input ends."""
    replies = open_answers()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the server, which ends its engines
    with suppress(OSError):
        os.nice(_NICENESS)
    set_up_logging()
    gc.set_threshold(_COLLECT_AFTER)
    settings = settings_from(json.loads(sys.argv[1]))
    operations = Operations(settings)
    operations.start()
    limit_memory(settings.memory_bytes)
    send(replies, {"confinement": operations.confinement})
    while (message := receive(sys.stdin.buffer)) is not None:
        try:
            reply = operations.perform(Call.from_message(*message))
            send(replies, reply.to_header(), reply.body)
            if len(message[1]) > _LARGE_BYTES:
                _release_memory()
        except MemoryError:
            os._exit(_OUT_OF_MEMORY)
    operations.close()


def _release_memory() -> None:
    """Gives the memory of a large request back to the operating system, which glibc does not do on its own."""
    gc.collect()
    with suppress(AttributeError, OSError):  # a C library without malloc_trim
        ctypes.CDLL(None).malloc_trim(0)


def settings_from(document: Mapping[str, Any]) -> EngineSettings:
    """Returns the engine settings that the web server passed as a JSON object."""
    return TypeAdapter(EngineSettings).validate_python(document)


if __name__ == "__main__":
    main()
