"""Particular values that say which, where and how often: indices, regions, lengths of sequences."""

from collections.abc import Callable, Mapping

import numpy as np

from costmodel.call import Call

__all__ = ["PREFERRED", "REQUIRED"]

_SEED = 2019  # as in costmodel.synthesis

_Rule = Callable[[Call], np.ndarray | None]


def _below(limit: int, shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(_SEED).integers(0, max(1, limit), shape)


def _zeros(call: Call) -> np.ndarray:
    return np.zeros(())


def _index_along_axis(call: Call) -> np.ndarray:
    data = call.shape(0)
    return _below(data[call.axis(0, len(data))], call.shape(1))


def _index_tuples(call: Call) -> np.ndarray:
    data, indices = call.shape(0), call.shape(1)
    first = call.integer("batch_dims", 0)
    limits = np.array(data[first : first + indices[-1]])
    return np.asarray(np.floor(np.random.default_rng(_SEED).random(indices) * limits))


def _index_of_output(call: Call) -> np.ndarray:
    return _below(int(np.prod(call.made())), call.shape(1))


def _row_of(table: int, slot: int) -> Callable[[Call], np.ndarray]:
    """Indices, read in `slot`, of rows of another argument."""
    return lambda call: _below(call.shape(table)[0], call.shape(slot))


def _ones(call: Call) -> np.ndarray:
    return np.ones(())


def _half(call: Call) -> np.ndarray:
    return np.full((), 0.5)


def _all_steps(call: Call) -> np.ndarray:
    """The whole length for each sequence of a recurrent layer."""
    return np.array(call.shape(0)[1 if call.integer("layout", 0) else 0])


def _whole_time(call: Call) -> np.ndarray:
    return np.array(call.shape(0)[call.integer("time_axis", 0)])


def _trips(call: Call) -> np.ndarray:
    """As many iterations as the stacked outputs of a Loop have recorded; one where it stacks none."""
    carried = len(call.inputs) - call.captured - 2
    stacked = [output.type.shape[0] for output in call.outputs[carried:] if output is not None and output.type.shape]
    return np.array(stacked[0] if stacked else 1)


def _boxes(call: Call) -> np.ndarray:
    corners = np.random.default_rng(_SEED).random(call.shape(0))
    corners[..., 2:] = corners[..., :2] + 0.05 + corners[..., 2:] * 0.2
    return corners


def _regions(call: Call) -> np.ndarray:
    """Corners of regions in the units of the image: between a sixteenth and all of it."""
    corners = np.random.default_rng(_SEED).random((call.shape(1)[0], 4))
    corners[:, :2] *= 0.5
    corners[:, 2:] = 0.75 + corners[:, 2:] * 0.25
    height, width = call.shape(0)[2:4]
    scale = float(call.attributes.get("spatial_scale", {"f": 1.0})["f"]) or 1.0
    corners *= np.array([width, height, width, height]) / scale
    image = np.zeros((len(corners), call.shape(1)[1] - 4))  # MaxRoiPool says first which image it means
    return np.hstack([image, corners])


def _shift(call: Call) -> np.ndarray:
    return _below(8, call.shape(1))


def _above_one(call: Call) -> np.ndarray:
    return np.full((), 1.5)


def _key_lengths(call: Call) -> np.ndarray | None:
    """All of the keys; the runtime's own Attention has another argument here."""
    return np.array(call.shape(1)[-2]) if call.dtype(6) == "int64" else None


# As in costmodel.particular.
REQUIRED: Mapping[tuple[str, int], _Rule] = {
    ("Gather", 1): _index_along_axis,
    ("GatherElements", 1): _index_along_axis,
    ("ScatterElements", 1): _index_along_axis,
    ("Scatter", 1): _index_along_axis,
    ("GatherND", 1): _index_tuples,
    ("ScatterND", 1): _index_tuples,
    ("MaxUnpool", 1): _index_of_output,
    ("RoiAlign", 2): _row_of(0, 2),
    ("CumSum", 1): _zeros,
    ("CumProd", 1): _zeros,
    ("ReverseSequence", 1): _whole_time,
    ("LSTM", 4): _all_steps,
    ("GRU", 4): _all_steps,
    ("RNN", 4): _all_steps,
    ("TensorScatter", 2): _zeros,
    ("SequenceAt", 1): _zeros,
    ("SequenceErase", 1): _zeros,
    ("SequenceInsert", 2): _zeros,
    ("Dropout", 1): _half,
    ("Loop", 0): _trips,
    ("Loop", 1): _ones,
}
PREFERRED: Mapping[tuple[str, int], _Rule] = {
    ("RoiAlign", 1): _regions,
    ("MaxRoiPool", 1): _regions,
    ("BitShift", 1): _shift,
    ("Acosh", 0): _above_one,
    ("Attention", 6): _key_lengths,
    ("Resize", 1): _zeros,
    ("NonMaxSuppression", 0): _boxes,
    ("QuantizeLinear", 2): _zeros,
    ("DequantizeLinear", 2): _zeros,
}
