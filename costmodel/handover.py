"""Whether the threads of a system are near each other, and waiting until they are.

A virtual machine's cores are moved by its host: side by side they hand work over in a moment, apart it takes
microseconds. A layer whose threads share ten microseconds of work then takes as long as on one thread, and one that
waits for memory is quicker, because there are two last-level caches. No other clock shows it: a long product of
matrices takes the same. A chain of short ones does (docs/adr/0005).
"""

import math
import time
from collections.abc import Callable
from statistics import median

from costmodel.graph import TensorType
from costmodel.measurement import Protocol, timed_us
from costmodel.runtimes import Runner
from costmodel.sequence import LayerSequence, SequenceLayer, Value

__all__ = ["APART", "Handover", "handover_sequence"]

# Near and apart differ by a factor of two; near ones among themselves by a tenth.
APART = 1.3
_RUNS = 5
_REST_US = 50_000.0
_FIRST_LOOKS = 100
_WAITING_SHARE = 2.0
_SIDE, _LAYERS = 64, 24


def handover_sequence() -> LayerSequence:
    """Matrix products that are just large enough to be shared by two threads, each on what the last one made."""
    square = TensorType("float32", (_SIDE, _SIDE))
    first = 1 + _LAYERS
    return LayerSequence(
        layers=tuple(
            SequenceLayer("MatMul", "", 1, {}, (first + i - 1 if i else 0, 1 + i), (first + i,)) for i in range(_LAYERS)
        ),
        values=(
            Value(square, "input"),
            *(Value(square, "constant") for _ in range(_LAYERS)),
            *(Value(square, "internal") for _ in range(_LAYERS)),
        ),
        outputs=(first + _LAYERS - 1,),
    )


class Handover:
    """Looks at the threads now and then.

    Attributes:
        near_us: Quickest that `handover_sequence` was found to run.
        looks_us: What it took at each look since `restart`.
        apart: Looks among these after which timing went on although threads were apart.
        lost_us: What was waited since, and timed in vain.
    """

    def __init__(
        self,
        runner: Runner | None,
        protocol: Protocol,
        near_us: float | None = None,
        *,
        clock_ns: Callable[[], int] = time.perf_counter_ns,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Get to know how near they can be.

        Args:
            runner: Of `handover_sequence`, loaded and fed; None if there is one thread, which is never apart.
            protocol: How often to look, and how long to wait.
            near_us: Quickest known of this system; None to find out, which takes five seconds.
            clock_ns: A monotonic clock, in nanoseconds.
            sleep: Rests for so many seconds.
        """
        self._runner = runner
        self._protocol = protocol
        self._clock_ns = clock_ns
        self._sleep = sleep
        self._patience_us = protocol.patience_us
        self.near_us = math.inf if near_us is None else near_us
        self.restart()
        if near_us is None and runner is not None:
            for _ in range(_FIRST_LOOKS):
                self._look(runner)
                self._rest()
            self.restart()

    def restart(self) -> None:
        """Forget the looks: another group begins."""
        self._looked_ns = self._clock_ns()
        self.looks_us: list[float] = []
        self.apart = 0
        self.lost_us = 0.0

    def told(self) -> dict[str, float]:
        """For the circumstances of what was timed since `restart`."""
        if self._runner is None:
            return {}
        looks = {"handover_us": median(self.looks_us)} if self.looks_us else {}
        return {**looks, "handover_near_us": self.near_us, "looks": len(self.looks_us), "looks_apart": self.apart}

    @property
    def due(self) -> bool:
        """Whether it is time to look."""
        return (
            self._runner is not None and self._clock_ns() - self._looked_ns >= self._protocol.handover_every_us * 1000
        )

    def stayed_near(self, deadline_ns: float = math.inf) -> bool:
        """Whether what was timed since the last look can stay; if not, it waits for them to be near, so time it again.

        Patience shrinks by what is waited and timed in vain, and grows with what stays, so that the one takes at most
        about twice as long as the other. Without any, times are kept as they are, and counted as taken apart.

        Args:
            deadline_ns: When all patience ends.
        """
        timed_for_us = (self._clock_ns() - self._looked_ns) / 1000
        if self._is_near():
            self._patience_us = min(self._protocol.patience_us, self._patience_us + _WAITING_SHARE * timed_for_us)
            return True
        begin_ns = self._clock_ns()
        self._patience_us -= timed_for_us
        while (self._clock_ns() - begin_ns) / 1000 < self._patience_us and self._clock_ns() < deadline_ns:
            self._rest()
            if self._is_near():
                waited_us = (self._clock_ns() - begin_ns) / 1000
                self._patience_us -= waited_us
                self.lost_us += timed_for_us + waited_us
                return False
        self.lost_us += (self._clock_ns() - begin_ns) / 1000
        self._patience_us = 0.0
        self.apart += 1
        return True

    def _is_near(self) -> bool:
        return self._runner is None or self._look(self._runner) <= APART * self.near_us

    def _look(self, runner: Runner) -> float:
        took_us = median(timed_us(runner, self._clock_ns) for _ in range(_RUNS))
        self.near_us = min(self.near_us, took_us)
        self._looked_ns = self._clock_ns()
        self.looks_us.append(took_us)
        return took_us

    def _rest(self) -> None:
        # A host that finds a core at rest places it anew; one that is busy stays where it is.
        self._sleep(_REST_US / 1e6)
