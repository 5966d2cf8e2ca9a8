"""How a number of threads divides the work of layer sequences."""

from collections.abc import Sequence

import numpy as np

from costmodel.estimate.thread_speedup import ThreadDivision
from costmodel.features.analytical_bound import layer_bound_us, threads_speedup, waiting_us
from costmodel.features.work import layer_work
from costmodel.ir.sequence import LayerSequence
from costmodel.runtimes.kernels import has_thread_rules
from costmodel.systems.system import System

__all__ = ["divide_work"]


def divide_work(sequences: Sequence[LayerSequence], system: System, threads: int) -> ThreadDivision:
    """Returns how a number of threads divides the work of sequences on the host of a system.

    Where it is not known how the kernels of the runtime divide their work, it is divided evenly.

    Args:
        sequences: Layer sequences, as the runtime of the system executes them.
        system: System with the host and the runtime, and with any number of threads.
        threads: Number of threads.
    """
    if threads == 1 or not has_thread_rules(system.runtime):
        return ThreadDivision.even(threads, len(sequences))
    known = {sequence.signature: sequence for sequence in sequences}
    divisions = {signature: _division(sequence, system, threads) for signature, sequence in known.items()}
    found = np.array([divisions[sequence.signature] for sequence in sequences]).reshape(-1, 2)
    return ThreadDivision(threads, found[:, 0], found[:, 1])


def _division(sequence: LayerSequence, system: System, threads: int) -> tuple[float, float]:
    """Returns speedup and wait of a sequence; of several layers, each counts by its bound."""
    works = [layer_work(sequence, layer) for layer in sequence.layers]
    bounds = [layer_bound_us(work, system) for work in works]
    divided = sum(bound / threads_speedup(work, system, threads) for work, bound in zip(works, bounds, strict=True))
    return sum(bounds) / divided, sum(waiting_us(work, system, threads) for work in works)
