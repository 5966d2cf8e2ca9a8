"""Service times: how long a replica takes for a batch of each size on the quiet machine."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

__all__ = ["ServiceTimes"]


@dataclass(frozen=True)
class ServiceTimes:
    """Service times at several batch sizes, interpolated between them.

    Between two sizes the time is linear in the size. Beyond the largest size it continues with the slope between the
    two largest ones; if there is only one size, it is proportional to the size.

    Attributes:
        latency_us: Latency of one run on the quiet machine in microseconds, by batch size.

    Raises:
        ValueError: There is no size, a size is less than 1, or a latency is not positive.
    """

    latency_us: Mapping[int, float]

    def __post_init__(self) -> None:
        """Checks sizes and latencies."""
        if not self.latency_us:
            raise ValueError("service times need the latency at one batch size at least")
        for size, latency_us in self.latency_us.items():
            if size < 1 or not 0 < latency_us < float("inf"):
                raise ValueError(f"a batch of {size} cannot take {latency_us} us")

    def up_to(self, largest: int) -> np.ndarray:
        """Returns the service times of batches of 0 to `largest` requests in microseconds, shape [largest + 1].

        The time of an empty batch is 0. A larger batch takes at least as long as a smaller one, even where predicted
        latencies say otherwise.
        """
        sizes = sorted(self.latency_us)
        known_us = [self.latency_us[size] for size in sizes]
        if len(sizes) == 1:
            sizes, known_us = [0, *sizes], [0.0, *known_us]
        slope = (known_us[-1] - known_us[-2]) / (sizes[-1] - sizes[-2])
        all_sizes = np.arange(1, largest + 1)
        times_us = np.interp(all_sizes, sizes, known_us) + slope * np.maximum(0, all_sizes - sizes[-1])
        return np.concatenate([[0.0], np.maximum.accumulate(times_us)])
