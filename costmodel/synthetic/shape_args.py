"""Rules that choose values for shape-like arguments of operators: shapes, axes, sizes, windows, steps.

The values are such that a layer produces outputs of the shapes that the layer sequence records.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from costmodel.ir.layer_view import LayerView, shape_of
from costmodel.synthetic.argument_rules import Rule, ones, zeros

__all__ = ["REQUIRED"]

_REDUCTIONS = (
    "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd",
    "ReduceSum", "ReduceSumSquare",
)  # fmt: skip


def _output_shape(view: LayerView) -> np.ndarray:
    return np.array(view.output_shape())


def _repeats(view: LayerView) -> np.ndarray:
    return np.floor_divide(view.output_shape(), np.maximum(1, view.input_shape(0)))


def _padded_axes(view: LayerView) -> list[int]:
    """Returns the axes that a Pad pads or crops.

    These are the axes that the layer sequence records. If it records none, the number of axes follows from the length
    of the pads argument, and axes whose size changes are chosen first.
    """
    known = view.input_data(3)
    if known is not None:
        return known
    changes = [made != given for made, given in zip(view.output_shape(), view.input_shape(0), strict=True)]
    return sorted(range(len(changes)), key=lambda axis: not changes[axis])[: view.input_shape(1)[0] // 2]


def _pad_axes(view: LayerView) -> np.ndarray:
    return np.array(_padded_axes(view))


def _end_pads(view: LayerView) -> np.ndarray:
    """Returns the pads of a Pad, all at the ends of axes, that turn the shape of its input into that of its output."""
    grown = np.take(np.subtract(view.output_shape(), view.input_shape(0)), _padded_axes(view))
    return np.concatenate([np.zeros_like(grown), grown])


def _range_limit(view: LayerView) -> np.ndarray:
    start, step = (view.input_data(slot) or [default] for slot, default in ((0, 0), (2, 1)))
    return np.array(start[0] + view.output_shape()[0] * step[0])


def _slices(view: LayerView) -> list[tuple[int, int, int, int]]:
    """Returns (axis, start, end, step) for each axis of a Slice; numbers not recorded are chosen to fit the shapes."""
    count = view.input_shape(1)[0]
    axes = view.input_data(3) or list(range(count))
    steps = view.input_data(4) or [1] * count
    starts, ends = view.input_data(1), view.input_data(2)
    result = []
    for position, (axis, step) in enumerate(zip(axes, steps, strict=True)):
        size, wanted = view.input_shape(0)[axis], view.output_shape()[axis]
        if starts is not None:
            start = starts[position] + size if starts[position] < 0 else starts[position]
        elif ends is not None:
            end = min(ends[position] + size if ends[position] < 0 else ends[position], size)
            start = max(0, end - wanted * step)
        else:
            start = 0 if step > 0 else size - 1
        end = start + wanted * step
        result.append((axis, start, end if end >= 0 else -size - 1, step))
    return result


def _slice_starts(view: LayerView) -> np.ndarray:
    return np.array([start for _, start, _, _ in _slices(view)])


def _slice_ends(view: LayerView) -> np.ndarray:
    return np.array([end for _, _, end, _ in _slices(view)])


def _slice_axes(view: LayerView) -> np.ndarray:
    return np.array([axis for axis, _, _, _ in _slices(view)])


def _split_sizes(view: LayerView) -> np.ndarray:
    axis = view.axis(0, len(view.input_shape(0)))
    return np.array([shape_of(output)[axis] for output in view.outputs if output is not None])


def _top_k(view: LayerView) -> np.ndarray:
    return np.array([view.output_shape()[view.axis(-1, len(view.input_shape(0)))]])


def _depth(view: LayerView) -> np.ndarray:
    return np.array(view.output_shape()[view.axis(-1, len(view.output_shape()))])


def _resized_axes(view: LayerView) -> list[int]:
    """Returns the axes for which a Resize takes sizes or scales: its attribute "axes", or all axes."""
    rank = len(view.input_shape(0))
    return [axis % rank for axis in view.attributes.get("axes", {"ints": range(rank)})["ints"]]


def _scales(view: LayerView) -> np.ndarray:
    old, new = np.array(view.input_shape(0)), np.array(view.output_shape())
    scales = (new / np.maximum(1, old)).astype(np.float32)
    # The runtime computes floor(size * scale) in single precision, so a scale may have to be rounded up.
    scales = np.where(np.floor(old.astype(np.float32) * scales) < new, np.nextafter(scales, np.float32(np.inf)), scales)
    return np.take(scales, _resized_axes(view))


def _sizes(view: LayerView) -> np.ndarray:
    return np.take(view.output_shape(), _resized_axes(view))


def _removed_axes(longer: Sequence[int], shorter: Sequence[int]) -> np.ndarray:
    """Returns the axes whose removal turns the shape `longer` into the shape `shorter`."""
    kept = 0
    removed = []
    for axis, size in enumerate(longer):
        if kept < len(shorter) and size == shorter[kept]:
            kept += 1
        else:
            removed.append(axis)
    return np.array(removed)


def _squeezed_axes(view: LayerView) -> np.ndarray:
    return _removed_axes(view.input_shape(0), view.output_shape())


def _unsqueezed_axes(view: LayerView) -> np.ndarray:
    return _removed_axes(view.output_shape(), view.input_shape(0))


def _expanded_axis(view: LayerView) -> np.ndarray:
    return _unsqueezed_axes(view).reshape(())


def _reduced_axes(view: LayerView) -> np.ndarray:
    if not view.integer("keepdims", 1):
        return _squeezed_axes(view)
    changes = [made != given for made, given in zip(view.output_shape(), view.input_shape(0), strict=True)]
    return np.array(sorted(range(len(changes)), key=lambda axis: not changes[axis])[: view.input_shape(1)[0]])


def _image_size(view: LayerView) -> np.ndarray:
    return np.array(view.output_shape()[2:])


def _grid_size(view: LayerView) -> np.ndarray:
    batch, *image, _ = view.output_shape()
    return np.array([batch, 1, *image])


def _window_length(view: LayerView) -> np.ndarray:
    return np.array(view.output_shape()[0])


def _transform_axis(view: LayerView) -> np.ndarray:
    return np.array(-2)


def _transform_length(view: LayerView) -> np.ndarray:
    axis = (view.input_data(2) or [view.integer("axis", -2)])[0]
    return np.array(view.input_shape(0)[axis] if view.integer("onesided", 0) else view.output_shape()[axis])


def _frame_step(view: LayerView) -> np.ndarray:
    """Returns the step between frames with which an STFT covers the signal in the recorded number of frames."""
    frames = view.output_shape()[1]
    length = view.input_shape(2)[0] if view.has_input(2) else (view.input_data(3) or [1])[0]
    return np.array(max(1, (view.input_shape(0)[1] - length) // max(1, frames - 1)))


def _num_mel_bands(view: LayerView) -> np.ndarray:
    return np.array(view.output_shape()[1])


def _spectrum_length(view: LayerView) -> np.ndarray:
    return np.array(2 * (view.output_shape()[0] - 1))


def _rate(view: LayerView) -> int:
    return int((view.input_data(2) or [16_000])[0])


def _sample_rate(view: LayerView) -> np.ndarray:
    return np.array(_rate(view))


def _highest_frequency(view: LayerView) -> np.ndarray:
    return np.array(_rate(view) / 2)


def _split_lengths(view: LayerView) -> np.ndarray:
    """Returns the lengths into which a SplitToSequence splits an axis, equal but for the last.

    If the argument is a scalar, which is the length of all parts, the length is 1.
    """
    size = view.input_shape(0)[view.axis(0, len(view.input_shape(0)))]
    if not view.input_shape(1):
        return np.ones(())
    count = view.input_shape(1)[0]
    return np.array([size // count] * (count - 1) + [size - size // count * (count - 1)])


# See costmodel.synthetic.argument_constraints for the meaning of these tables.
REQUIRED: Mapping[tuple[str, int], Rule] = {
    ("Reshape", 1): _output_shape,
    ("Expand", 1): _output_shape,
    ("ConstantOfShape", 0): _output_shape,
    ("Tile", 1): _repeats,
    ("Pad", 1): _end_pads,
    ("Pad", 3): _pad_axes,
    ("Range", 0): zeros,
    ("Range", 1): _range_limit,
    ("Range", 2): ones,
    ("Slice", 1): _slice_starts,
    ("Slice", 2): _slice_ends,
    ("Slice", 3): _slice_axes,
    ("Slice", 4): ones,
    ("Split", 1): _split_sizes,
    ("TopK", 1): _top_k,
    ("OneHot", 1): _depth,
    ("Resize", 2): _scales,
    ("Upsample", 1): _scales,
    ("Resize", 3): _sizes,
    ("Squeeze", 1): _squeezed_axes,
    ("Unsqueeze", 1): _unsqueezed_axes,
    ("ExpandDims", 1): _expanded_axis,
    **{(name, 1): _reduced_axes for name in _REDUCTIONS},
    ("MaxUnpool", 2): _output_shape,
    ("Col2Im", 1): _image_size,
    ("AffineGrid", 1): _grid_size,
    ("DFT", 1): _transform_length,
    ("DFT", 2): _transform_axis,
    ("STFT", 1): _frame_step,
    ("HannWindow", 0): _window_length,
    ("HammingWindow", 0): _window_length,
    ("BlackmanWindow", 0): _window_length,
    ("MelWeightMatrix", 0): _num_mel_bands,
    ("MelWeightMatrix", 1): _spectrum_length,
    ("MelWeightMatrix", 2): _sample_rate,
    ("MelWeightMatrix", 3): zeros,
    ("MelWeightMatrix", 4): _highest_frequency,
    ("SplitToSequence", 1): _split_lengths,
}
