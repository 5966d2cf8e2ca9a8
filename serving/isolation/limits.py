"""Resource limits of reader processes, which parse untrusted models."""

import resource
from dataclasses import dataclass

__all__ = ["Limits", "apply_limits", "limit_memory", "renew_cpu_limit"]

_MIB = 1 << 20
_OPEN_FILES = 256


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits on a reader process and on each of its tasks; a task is to read one model.

    Attributes:
        memory_bytes: Address space in bytes that a reader may use beyond what it has after its start.
        cpu_s: Maximum processor time of one task in seconds.
        wall_s: Maximum wall-clock time of one task in seconds.
        wait_s: Maximum time in seconds that a task waits for a free reader.
        layers: Maximum number of layers of a model.
        sequence_bytes: Maximum size in bytes of the canonical text of a layer sequence: attributes, shapes and small
            constants.
        answer_bytes: Maximum size in bytes of a reader's answer; an answer with 20,000 different layers and their names
            takes 8 MiB.
        stripped_bytes: Maximum size in bytes of a model file without weights.
        file_bytes: Maximum size in bytes of a file that a reader writes, and also of a tensor, because one file of
            zeros, as large as the largest tensor, stands in for all weights while a model is lowered.
        tasks: Number of tasks that a reader performs before it is replaced, so that memory leaks do not accumulate.
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
    """Limits the memory and the files of this process, a reader, for the rest of its life.

    The process must have loaded all that it needs. The number of processes is not limited here, because the system
    counts all processes of the user, including the service. The seccomp filter keeps a reader from starting any process
    (`costmodel.serving.isolation.system_calls`).

    Returns:
        One sentence, with a remedy, for each limit that this host does not support.
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
    """Sets this process's limit of processor time to the time spent so far plus `cpu_s` for the next task."""
    spent = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (int(spent) + 1 + limits.cpu_s, hard))


def _address_space_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * resource.getpagesize()
