"""What the layer sequences of a model read and write, for the prediction of interference between models."""

from collections.abc import Sequence

import numpy as np

from costmodel.estimate.interference import ModelTraffic
from costmodel.features.work import layer_work
from costmodel.ir.footprint import read_bytes
from costmodel.ir.sequence import LayerSequence

__all__ = ["model_traffic"]


def model_traffic(sequences: Sequence[LayerSequence], latencies_us: Sequence[float] | np.ndarray) -> ModelTraffic:
    """Returns the memory traffic of a model.

    Args:
        sequences: Layer sequences of the model, repetitions included.
        latencies_us: Latency of each sequence inside the model in microseconds.
    """
    known: dict[str, tuple[int, int]] = {}
    for sequence in sequences:
        if sequence.signature not in known:
            works = [layer_work(sequence, layer) for layer in sequence.layers]
            activations = sum(work.input_bytes + work.output_bytes for work in works)
            known[sequence.signature] = read_bytes(sequence), activations
    found = np.array([known[sequence.signature] for sequence in sequences], dtype=np.float64).reshape(-1, 2)
    return ModelTraffic(np.asarray(latencies_us, dtype=np.float64), found[:, 0], found[:, 1])
