"""Estimates how long a machine stays disturbed, from the time that it spent in each state in groups of measurements.

    python benchmarks/sojourns.py data/*.parquet

A group was measured for a second or so, and its record has the share of that time in which the machine was not quiet.
For a machine that changes at random between quiet and disturbed, with a correlation that falls as exp(-time / c), that
share has the variance 2 p (1 - p) (c / T) (1 - (c / T) (1 - exp(-T / c))) over groups of length T. Prints c, and the
mean lengths that follow from it: c / (1 - p) disturbed, c / p quiet.
"""

import math
import sys
from pathlib import Path

import numpy as np
from scipy.optimize import brentq

from costmodel.measure.machine_state import QUIET
from costmodel.store.parquet import read_results

_LEAST_GROUPS = 20
_LIMITS_S = (1e-3, 1e4)


def main() -> None:
    """Prints a line for each file."""
    print(f"{'file':<50}{'groups':>7}{'median':>8}{'disturbed':>11}{'c':>7}{'disturbed for':>15}{'quiet for':>11}  (s)")
    for path in map(Path, sys.argv[1:]):
        records = (one.environment.get("states_us", {}) for one in read_results(path).measurements)
        groups = {tuple(sorted(states_us.items())) for states_us in records if states_us}
        lengths_s = np.array([sum(us for _, us in states) / 1e6 for states in groups])
        quiet_s = np.array([dict(states).get(QUIET, 0.0) / 1e6 for states in groups])
        share = 1 - quiet_s.sum() / lengths_s.sum() if groups else 0.0
        if len(groups) < _LEAST_GROUPS or share == 0:
            print(f"{path.stem:<50}{len(groups):>7}   too few")
            continue
        c_s = correlation_s(lengths_s, 1 - quiet_s / lengths_s, share)
        print(
            f"{path.stem:<50}{len(groups):>7}{np.median(lengths_s):>8.1f}{share:>11.1%}{c_s:>7.2f}"
            f"{c_s / (1 - share):>15.1f}{c_s / share:>11.1f}",
            flush=True,
        )


def correlation_s(lengths_s: np.ndarray, disturbed: np.ndarray, share: float) -> float:
    """Returns the time c at which the disturbed share of groups has the variance that was seen; nan if none has."""
    seen = float((lengths_s**2 * (disturbed - share) ** 2).sum())

    def excess(log_c: float) -> float:
        relative = math.exp(log_c) / lengths_s
        expected = 2 * share * (1 - share) * relative * (1 - relative * -np.expm1(-1 / relative))
        return float((lengths_s**2 * expected).sum()) - seen

    low, high = map(math.log, _LIMITS_S)
    return math.exp(brentq(excess, low, high)) if excess(low) < 0 < excess(high) else math.nan


if __name__ == "__main__":
    main()
