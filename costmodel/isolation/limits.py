"""What one model may cost the process that reads it."""

import resource
from dataclasses import dataclass

__all__ = ["Limits", "apply_limits", "limit_memory", "renew_cpu_limit"]

_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Limits:
    """Of one task in a worker.

    Attributes:
        memory_bytes: Address space beyond what the worker has when it starts.
        cpu_s: Processor time.
        wall_s: Time on the clock.
        wait_s: That a task waits for a worker.
        layers: That a model may have.
        answer_bytes: That a worker may answer with.
        tasks: After which a worker is replaced, so that what leaks does not add up.
    """

    memory_bytes: int = 2048 * _MIB
    cpu_s: int = 60
    wall_s: float = 60.0
    wait_s: float = 60.0
    layers: int = 20_000
    answer_bytes: int = 256 * _MIB
    tasks: int = 500


def apply_limits(limits: Limits) -> None:
    """Limit this process, which has loaded all that it needs, for the rest of its life."""
    limit_memory(limits.memory_bytes)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def limit_memory(more_bytes: int) -> None:
    """Let this process allocate so much more address space than it has, for the rest of its life."""
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
