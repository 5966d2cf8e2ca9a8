"""Enumerates the settings under which a model can run on a host."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from costmodel.runtimes.advice import levels_of, spins
from costmodel.runtimes.base import DEFAULT_RUNTIME, RuntimeSettings

__all__ = ["FLOAT32", "INT8", "Setting", "Space", "default_setting", "settings_of"]

FLOAT32, INT8 = "float32", "int8"


@dataclass(frozen=True, slots=True, order=True)
class Setting:
    """One way to run a model on a host.

    Attributes:
        runtime: Name of the runtime.
        precision: "float32" for the model in floating point, "int8" for the quantised one.
        threads: Number of threads of each session.
        level: Level to which the runtime optimises the graph.
        spinning: Whether idle threads wait actively.
        batch: Number of samples in a run.
        sessions: Number of sessions that run beside each other, each in a process of its own.
    """

    runtime: str
    precision: str = FLOAT32
    threads: int = 1
    level: str = "all"
    spinning: bool = True
    batch: int = 1
    sessions: int = 1

    @property
    def runtime_settings(self) -> RuntimeSettings:
        """The settings of each session."""
        return RuntimeSettings(self.threads, self.level, self.spinning)

    @property
    def samples(self) -> int:
        """Number of samples that all sessions together finish in the time of one run."""
        return self.batch * self.sessions

    def __str__(self) -> str:
        """Returns the setting in words, such as "onnxruntime, 2 threads, level all, batch 8"."""
        parts = [self.runtime, f"{self.threads} thread{'s' * (self.threads > 1)}", f"level {self.level}"]
        if not self.spinning:
            parts.append("no spinning")
        if self.batch > 1:
            parts.append(f"batch {self.batch}")
        if self.sessions > 1:
            parts.append(f"{self.sessions} sessions")
        if self.precision != FLOAT32:
            parts.append(self.precision)
        return ", ".join(parts)


@dataclass(frozen=True, slots=True)
class Space:
    """The settings among which one is chosen.

    Attributes:
        runtimes: Names of the runtimes, the default one first.
        cpus: Number of CPUs; sessions times threads do not exceed it.
        precisions: Precisions of the model files that there are, that of the given file first.
        batches: Batch sizes, ascending.
        side_by_side: Whether several sessions may run beside each other, which makes no single run faster.
        levels: Levels for every runtime; None for all that a runtime has.
    """

    runtimes: Sequence[str]
    cpus: int
    precisions: Sequence[str] = (FLOAT32,)
    batches: Sequence[int] = (1,)
    side_by_side: bool = False
    levels: Sequence[str] | None = None

    def levels_of(self, runtime: str) -> tuple[str, ...]:
        """Returns the levels of a runtime, the highest one first."""
        return tuple(self.levels) if self.levels is not None else levels_of(runtime)


def settings_of(space: Space, runtime: str, precision: str, level: str, batch: int) -> Iterator[Setting]:
    """Yields the settings with a runtime, a precision, a level and a batch size: every use of the CPUs.

    Numbers of sessions are the powers of two, and the most that the CPUs admit.
    """
    for threads in range(1, space.cpus + 1):
        most = space.cpus // threads if space.side_by_side else 1
        for sessions in sorted({*(2**power for power in range(most.bit_length())), most}):
            for spinning in (True, False) if spins(runtime, threads) else (True,):
                yield Setting(runtime, precision, threads, level, spinning, batch, sessions)


def default_setting(space: Space) -> Setting:
    """Returns how a model runs if nobody sets anything: the default runtime with a thread on each CPU, batch 1."""
    runtime = DEFAULT_RUNTIME if DEFAULT_RUNTIME in space.runtimes else space.runtimes[0]
    return Setting(runtime, space.precisions[0], space.cpus, space.levels_of(runtime)[0])
