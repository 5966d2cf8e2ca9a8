"""Measures what an idle time costs twelve models, and the network with which costmodel measures it on a system.

    python benchmarks/idle_times.py

Prints, for each network, its latency, the time by which a run takes longer after a long idle time, the idle time after
which 63% of that is there, and how long the serving thread takes to wake up. Takes about a minute; the machine has to
be idle otherwise.
"""

from collections.abc import Iterator

import numpy as np
from made_models import MODELS

from costmodel.measure.idle import idle_sequence, measure_idle_effects
from costmodel.measure.stopwatch import repeated_us
from costmodel.onnx_io.model import read_model
from costmodel.runtimes.base import Runner, RuntimeSettings, get_runtime

SETTINGS = RuntimeSettings()
OWN = "(costmodel's own)"


def runners() -> Iterator[tuple[str, Runner]]:
    """Yields the networks; costmodel's own comes several times, so that its scatter is seen."""
    runtime = get_runtime()
    for number, (name, make) in enumerate(MODELS.items()):
        if number % 4 == 0:
            yield OWN, runtime.open_sequence(idle_sequence(), SETTINGS)
        yield name, runtime.open_model(read_model(make(), name=name), SETTINGS)
    yield OWN, runtime.open_sequence(idle_sequence(), SETTINGS)


def main() -> None:
    """Prints a line for each network, and the medians over the models."""
    found: list[tuple[float, ...]] = []
    print(f"{'network':<24}{'latency':>10}{'longer by':>11}{'63% after':>11}{'wakes after':>12}  (us)")
    for name, runner in runners():
        latency_us = repeated_us(runner)
        effects = tuple(measure_idle_effects(runner).values())
        print(f"{name:<24}{latency_us:>10.0f}{effects[0]:>11.0f}{effects[1]:>11.0f}{effects[2]:>12.0f}", flush=True)
        if name != OWN:
            found.append(effects)
    extra_us, cooling_us, wake_up_us = np.median(found, axis=0)
    print(f"{'median of the models':<34}{extra_us:>11.0f}{cooling_us:>11.0f}{wake_up_us:>12.0f}")


if __name__ == "__main__":
    main()
