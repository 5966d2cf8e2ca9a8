"""What one model may cost the process that reads it."""

import resource
from dataclasses import dataclass

__all__ = ["Limits", "apply_limits", "limit_memory", "renew_cpu_limit"]

_MIB = 1 << 20
_OPEN_FILES = 256


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one task in a reader.

    Attributes:
        memory_bytes: Address space beyond what the reader has when it starts.
        cpu_s: Processor time of one task.
        wall_s: Time on the clock for one task.
        wait_s: Time that a task waits for a reader.
        layers: Number of layers that a model may have.
        sequence_bytes: Size of the text of one layer sequence: its attributes, shapes and small constants.
        answer_bytes: Size of an answer. 20,000 different layers, with their names, take 8 MiB.
        kept_bytes: Size of a model without its weights.
        file_bytes: Size of a file that a reader writes. One file of zeros stands for all weights while a model is
            lowered, so this is also the size of the largest tensor that a model may have.
        tasks: Number of tasks after which a reader is replaced, so that what leaks does not add up.
    """

    memory_bytes: int = 2048 * _MIB
    cpu_s: int = 60
    wall_s: float = 60.0
    wait_s: float = 60.0
    layers: int = 20_000
    sequence_bytes: int = 1 * _MIB
    answer_bytes: int = 32 * _MIB
    kept_bytes: int = 64 * _MIB
    file_bytes: int = 2048 * _MIB
    tasks: int = 500


def apply_limits(limits: Limits) -> list[str]:
    """Limit this process, which has loaded all that it needs, for the rest of its life.

    The number of processes has no limit here: the system counts those of the user, the service among them. Where
    system calls are filtered, a reader starts none at all (`costmodel.isolation.system_calls`).

    Returns:
        One sentence for each limit that this host does not have.
    """
    missing = []
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for kind, most in ((resource.RLIMIT_FSIZE, limits.file_bytes), (resource.RLIMIT_NOFILE, _OPEN_FILES)):
        _, hard = resource.getrlimit(kind)
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (most, most))
    try:
        limit_memory(limits.memory_bytes)
    except (OSError, ValueError):
        missing.append("This system does not limit the memory of one process: limit that of the whole service.")
    return missing


def limit_memory(more_bytes: int) -> None:
    """Let this process allocate so much more address space than it has, for the rest of its life.

    Raises:
        OSError: The system does not say how much this process has.
        ValueError: The system has no such limit.
    """
    ceiling = _address_space_bytes() + more_bytes
    resource.setrlimit(resource.RLIMIT_AS, (ceiling, ceiling))


def renew_cpu_limit(limits: Limits) -> None:
    """Give this process the processor time of one more task."""
    spent = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (int(spent) + 1 + limits.cpu_s, hard))


def _address_space_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * resource.getpagesize()
