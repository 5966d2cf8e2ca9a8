"""What an idle time costs: the run after it takes longer, and the thread that serves has to be woken.

After an idle time g, a request takes longer by (1 - exp(-g / cooling)) times a constant that hardly depends on the
model: caches, branch predictors and the processor's clock recover within a run. docs/adr/0021 has the measurements.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

__all__ = ["ALWAYS_WARM", "TYPICAL", "IdleEffects", "measured_idle_effects"]


@dataclass(frozen=True, slots=True)
class IdleEffects:
    """How an idle time lengthens the latency of the request after it.

    Attributes:
        extra_us: Time in microseconds by which the first run takes longer after a long idle time.
        cooling_us: Idle time in microseconds after which 63% of the effects are there.
        wake_up_us: Time in microseconds from the arrival of a request to the begin of its run if the serving thread has
            to be woken after a long idle time.
    """

    extra_us: float = 0.0
    cooling_us: float = 1.0
    wake_up_us: float = 0.0

    @property
    def total_us(self) -> float:
        """Time in microseconds by which a request takes longer after a long idle time."""
        return self.extra_us + self.wake_up_us

    def delay_us(self, idle_us: float) -> float:
        """Returns the time in microseconds by which a request takes longer after an idle time in microseconds."""
        return -self.total_us * math.expm1(-idle_us / self.cooling_us)

    def ends(self, arrivals: Iterable[float], work_us: np.ndarray, slowness: Iterable[float]) -> np.ndarray:
        """Returns the times at which one machine completes requests that it serves one by one, in units of work.

        Args:
            arrivals: Time of arrival of each request in units of work, ascending.
            work_us: Run time of each request on the warm machine in units of work, shape [num_requests].
            slowness: Time in microseconds that a unit of work takes when each request arrives.
        """
        total_us, cooling_us, expm1 = self.total_us, self.cooling_us, math.expm1
        found: list[float] = []
        end = 0.0
        for arrived, work, slow in zip(arrivals, work_us.tolist(), slowness, strict=True):
            if arrived > end:
                end = arrived - total_us * expm1((end - arrived) * slow / cooling_us) + work
            else:
                end += work
            found.append(end)
        return np.asarray(found)


ALWAYS_WARM = IdleEffects()
# What is assumed of a system on which it was not measured: rounded from a Zen 4 under KVM (docs/adr/0021).
TYPICAL = IdleEffects(extra_us=200.0, cooling_us=5_000.0, wake_up_us=50.0)


def measured_idle_effects(capabilities: Mapping[str, float]) -> IdleEffects | None:
    """Returns the effects that are among the capabilities of a system; None if they were not measured there."""
    if "idle_extra_us" not in capabilities:
        return None
    return IdleEffects(*(capabilities[f"idle_{name}_us"] for name in ("extra", "cooling", "wake_up")))
