"""Rules that choose values for index-like arguments: indices, regions, iteration counts, sequence lengths."""

from collections.abc import Mapping

import numpy as np

from costmodel.ir.layer_view import LayerView
from costmodel.synthetic.argument_rules import SEED, Rule, ones, random_below, row_of, zeros

__all__ = ["PREFERRED", "REQUIRED", "loop_end"]


def _index_along_axis(view: LayerView) -> np.ndarray:
    data = view.input_shape(0)
    return random_below(data[view.axis(0, len(data))], view.input_shape(1))


def _index_tuples(view: LayerView) -> np.ndarray:
    data, indices = view.input_shape(0), view.input_shape(1)
    first = view.integer("batch_dims", 0)
    limits = np.array(data[first : first + indices[-1]])
    return np.asarray(np.floor(np.random.default_rng(SEED).random(indices) * limits))


def _index_of_output(view: LayerView) -> np.ndarray:
    return random_below(int(np.prod(view.output_shape())), view.input_shape(1))


def _half(view: LayerView) -> np.ndarray:
    return np.full((), 0.5)


def _all_steps(view: LayerView) -> np.ndarray:
    """Returns the lengths of the input sequences of a recurrent layer: the full number of time steps for each."""
    return np.array(view.input_shape(0)[1 if view.integer("layout", 0) else 0])


def _time_steps(view: LayerView) -> np.ndarray:
    return np.array(view.input_shape(0)[view.integer("time_axis", 0)])


def _iteration_count(view: LayerView) -> np.ndarray:
    """Returns the iteration count of a Loop: the recorded length of its scan outputs, or 1 without such outputs."""
    return np.array(_collected(view) or 1)


def _collected(view: LayerView) -> int:
    """Returns how many elements a Loop collects, one in each run of its body; 0 if it collects none."""
    carried = len(view.inputs) - view.num_captured - 2
    lengths = [output.type.shape[0] for output in view.outputs[carried:] if output is not None and output.type.shape]
    return lengths[0] if lengths else 0


def loop_end(view: LayerView, slot: int) -> np.ndarray | None:
    """Returns the number of runs of a Loop for a single integer that it reads: TensorFlow's end at such a number.

    Returns None for any other input, for a constant, which has its value, and where the number of runs is not known.
    """
    value = view.inputs[slot]
    if value is None or value.role == "constant" or value.type.elements != 1:
        return None
    runs = _collected(view) if value.type.dtype in ("int32", "int64") else 0
    return np.array(runs) if runs else None


def _boxes(view: LayerView) -> np.ndarray:
    corners = np.random.default_rng(SEED).random(view.input_shape(0))
    corners[..., 2:] = corners[..., :2] + 0.05 + corners[..., 2:] * 0.2
    return corners


def _regions(view: LayerView) -> np.ndarray:
    """Returns corners of regions of an image, in pixels; each covers between a sixteenth and all of the image."""
    corners = np.random.default_rng(SEED).random((view.input_shape(1)[0], 4))
    corners[:, :2] *= 0.5
    corners[:, 2:] = 0.75 + corners[:, 2:] * 0.25
    height, width = view.input_shape(0)[2:4]
    scale = float(view.attributes.get("spatial_scale", {"f": 1.0})["f"]) or 1.0
    corners *= np.array([width, height, width, height]) / scale
    image = np.zeros(
        (len(corners), view.input_shape(1)[1] - 4)
    )  # the first column for MaxRoiPool is the index of the image
    return np.hstack([image, corners])


def _shift(view: LayerView) -> np.ndarray:
    return random_below(8, view.input_shape(1))


def _above_one(view: LayerView) -> np.ndarray:
    return np.full((), 1.5)


def _key_lengths(view: LayerView) -> np.ndarray | None:
    """Returns the number of keys that an Attention must not ignore as padding: all of them.

    Returns None for the Attention of ONNX Runtime, which has another argument in this place.
    """
    return np.array(view.input_shape(1)[-2]) if view.input_dtype(6) == "int64" else None


# See costmodel.synthetic.argument_constraints for the meaning of these tables.
REQUIRED: Mapping[tuple[str, int], Rule] = {
    ("Gather", 1): _index_along_axis,
    ("GatherElements", 1): _index_along_axis,
    ("ScatterElements", 1): _index_along_axis,
    ("Scatter", 1): _index_along_axis,
    ("GatherND", 1): _index_tuples,
    ("ScatterND", 1): _index_tuples,
    ("MaxUnpool", 1): _index_of_output,
    ("RoiAlign", 2): row_of(0, 2),
    ("CumSum", 1): zeros,
    ("CumProd", 1): zeros,
    ("ReverseSequence", 1): _time_steps,
    ("LSTM", 4): _all_steps,
    ("GRU", 4): _all_steps,
    ("RNN", 4): _all_steps,
    ("TensorScatter", 2): zeros,
    ("SequenceAt", 1): zeros,
    ("SequenceErase", 1): zeros,
    ("SequenceInsert", 2): zeros,
    ("Dropout", 1): _half,
    ("Loop", 0): _iteration_count,
    ("Loop", 1): ones,
}
PREFERRED: Mapping[tuple[str, int], Rule] = {
    ("RoiAlign", 1): _regions,
    ("MaxRoiPool", 1): _regions,
    ("BitShift", 1): _shift,
    ("Acosh", 0): _above_one,
    ("Attention", 6): _key_lengths,
    ("Resize", 1): zeros,
    ("NonMaxSuppression", 0): _boxes,
    ("QuantizeLinear", 2): zeros,
    ("DequantizeLinear", 2): zeros,
}
