"""Resource limits of reader processes."""

import resource
from dataclasses import dataclass

__all__ = ["Limits", "apply_limits", "limit_memory", "renew_cpu_limit"]

_MIB = 1 << 20
_OPEN_FILES = 256


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one task in a reader.

    Attributes:
        memory_bytes: Address space that a reader may use beyond what it has when it starts.
        cpu_s: Maximum processor time of one task in seconds.
        wall_s: Maximum wall-clock time of one task in seconds.
        wait_s: Maximum time in seconds that a task waits for a reader.
        layers: Maximum number of layers of a model.
        sequence_bytes: Maximum size of the text of one layer sequence: its attributes, shapes and small constants.
        answer_bytes: Maximum size of an answer. 20,000 different layers, with their names, take 8 MiB.
        stripped_bytes: Maximum size of a model without its weights.
        file_bytes: Maximum size of a file that a reader writes. One file of zeros replaces all weights while a model
            is lowered, so this is also the maximum size of a tensor.
        tasks: Number of tasks after which a reader is replaced, so that memory leaks do not accumulate.
    """

    memory_bytes: int = 2048 * _MIB
    cpu_s: int = 60
    wall_s: float = 60.0
    wait_s: float = 60.0
    layers: int = 20_000
    sequence_bytes: int = 1 * _MIB
    answer_bytes: int = 32 * _MIB
    stripped_bytes: int = 64 * _MIB
    file_bytes: int = 2048 * _MIB
    tasks: int = 500


def apply_limits(limits: Limits) -> list[str]:
    """Applies the limits to this process, which has loaded all that it needs, for the rest of its life.

    The number of processes is not limited here, because the system counts all processes of the user, including the
    service. The seccomp filter keeps a reader from starting any (`costmodel.serving.isolation.system_calls`).

    Returns:
        One sentence for each limit that this host does not support.
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
    """Limits the address space of this process to its current size plus `more_bytes`, for the rest of its life.

    Raises:
        OSError: The system does not report the address space of this process.
        ValueError: The system does not support the limit.
    """
    ceiling = _address_space_bytes() + more_bytes
    resource.setrlimit(resource.RLIMIT_AS, (ceiling, ceiling))


def renew_cpu_limit(limits: Limits) -> None:
    """Sets the processor time limit of this process to the time spent so far plus that of one task."""
    spent = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (int(spent) + 1 + limits.cpu_s, hard))


def _address_space_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * resource.getpagesize()
