"""The program of an engine: `python -m costmodel.serving.engine.program SETTINGS`.

It receives calls as messages on standard input and sends replies on standard output; see `costmodel.isolation.child`.
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

from costmodel.isolation.child import receive, send
from costmodel.isolation.limits import limit_memory
from costmodel.serving.engine.call import Call
from costmodel.serving.engine.operations import Operations
from costmodel.serving.engine.settings import EngineSettings
from costmodel.serving.logs import set_up_logging

__all__ = ["main"]

_PR_SET_PDEATHSIG = 1
# The web server's threads go first: they are short, and everybody waits for them.
_NICENESS = 10
# New objects after which the collector looks for cycles: a request of ten thousand models makes as many in no time, and
# with Python's own 700 half of its answer's time goes into looking at them.
_COLLECT_AFTER = 50_000
_OUT_OF_MEMORY = 3
_LARGE_BYTES = 4 << 20


def main() -> None:
    """Answer calls until standard input ends."""
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print must not come between replies
    with suppress(OSError, AttributeError):  # an engine is of no use without the server that started it
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
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
                _give_memory_back()
        except MemoryError:
            os._exit(_OUT_OF_MEMORY)
    operations.close()


def _give_memory_back() -> None:
    """Hand what a large request took back to the system, which glibc by itself does not do."""
    gc.collect()
    with suppress(AttributeError, OSError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)


def settings_from(document: Mapping[str, Any]) -> EngineSettings:
    """The settings that the server wrote down as JSON."""
    return TypeAdapter(EngineSettings).validate_python(document)


if __name__ == "__main__":
    main()
