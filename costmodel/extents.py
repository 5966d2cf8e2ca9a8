"""Particular values that say how large: shapes, axes, sizes, windows, steps, so that what was recorded comes out."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from costmodel.call import Call, shape_of

__all__ = ["PREFERRED", "REQUIRED"]

_SEED = 2019  # as in costmodel.synthesis

_Rule = Callable[[Call], np.ndarray | None]

_REDUCTIONS = (
    "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd",
    "ReduceSum", "ReduceSumSquare",
)  # fmt: skip


def _zeros(call: Call) -> np.ndarray:
    return np.zeros(())


def _output_shape(call: Call) -> np.ndarray:
    return np.array(call.made())


def _repeats(call: Call) -> np.ndarray:
    return np.floor_divide(call.made(), np.maximum(1, call.shape(0)))


def _padded(call: Call) -> list[int]:
    """The axes that a Pad widens or narrows: those recorded, else as many as it says, first those that change."""
    known = call.known(3)
    if known is not None:
        return known
    changes = [made != given for made, given in zip(call.made(), call.shape(0), strict=True)]
    return sorted(range(len(changes)), key=lambda axis: not changes[axis])[: call.shape(1)[0] // 2]


def _padded_axes(call: Call) -> np.ndarray:
    return np.array(_padded(call))


def _grow(call: Call) -> np.ndarray:
    """Pads at the end that turn the input's shape into the output's."""
    grown = np.take(np.subtract(call.made(), call.shape(0)), _padded(call))
    return np.concatenate([np.zeros_like(grown), grown])


def _range_limit(call: Call) -> np.ndarray:
    start, step = (call.known(slot) or [default] for slot, default in ((0, 0), (2, 1)))
    return np.array(start[0] + call.made()[0] * step[0])


def _ones(call: Call) -> np.ndarray:
    return np.ones(())


def _slices(call: Call) -> list[tuple[int, int, int, int]]:
    """(axis, start, end, step) of each axis that a Slice cuts, with what is not recorded chosen to fit."""
    count = call.shape(1)[0]
    axes = call.known(3) or list(range(count))
    steps = call.known(4) or [1] * count
    starts, ends = call.known(1), call.known(2)
    result = []
    for position, (axis, step) in enumerate(zip(axes, steps, strict=True)):
        size, wanted = call.shape(0)[axis], call.made()[axis]
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


def _slice_starts(call: Call) -> np.ndarray:
    return np.array([start for _, start, _, _ in _slices(call)])


def _slice_ends(call: Call) -> np.ndarray:
    return np.array([end for _, _, end, _ in _slices(call)])


def _slice_axes(call: Call) -> np.ndarray:
    return np.array([axis for axis, _, _, _ in _slices(call)])


def _split_sizes(call: Call) -> np.ndarray:
    axis = call.axis(0, len(call.shape(0)))
    return np.array([shape_of(output)[axis] for output in call.outputs if output is not None])


def _k(call: Call) -> np.ndarray:
    return np.array([call.made()[call.axis(-1, len(call.shape(0)))]])


def _depth(call: Call) -> np.ndarray:
    return np.array(call.made()[call.axis(-1, len(call.made()))])


def _resized(call: Call) -> list[int]:
    """The axes that a Resize gives sizes or scales for."""
    rank = len(call.shape(0))
    return [axis % rank for axis in call.attributes.get("axes", {"ints": range(rank)})["ints"]]


def _scales(call: Call) -> np.ndarray:
    old, new = np.array(call.shape(0)), np.array(call.made())
    scales = (new / np.maximum(1, old)).astype(np.float32)
    # The runtime rounds size times scale down, in single precision.
    scales = np.where(np.floor(old.astype(np.float32) * scales) < new, np.nextafter(scales, np.float32(np.inf)), scales)
    return np.take(scales, _resized(call))


def _sizes(call: Call) -> np.ndarray:
    return np.take(call.made(), _resized(call))


def _dropped(longer: Sequence[int], shorter: Sequence[int]) -> np.ndarray:
    """Axes without which the first shape is the second."""
    kept = 0
    dropped = []
    for axis, size in enumerate(longer):
        if kept < len(shorter) and size == shorter[kept]:
            kept += 1
        else:
            dropped.append(axis)
    return np.array(dropped)


def _squeezed(call: Call) -> np.ndarray:
    return _dropped(call.shape(0), call.made())


def _unsqueezed(call: Call) -> np.ndarray:
    return _dropped(call.made(), call.shape(0))


def _expanded(call: Call) -> np.ndarray:
    return _unsqueezed(call).reshape(())


def _reduced(call: Call) -> np.ndarray:
    if not call.integer("keepdims", 1):
        return _squeezed(call)
    changes = [made != given for made, given in zip(call.made(), call.shape(0), strict=True)]
    return np.array(sorted(range(len(changes)), key=lambda axis: not changes[axis])[: call.shape(1)[0]])


def _image_of_columns(call: Call) -> np.ndarray:
    return np.array(call.made()[2:])


def _grid_size(call: Call) -> np.ndarray:
    batch, *image, _ = call.made()
    return np.array([batch, 1, *image])


def _window_length(call: Call) -> np.ndarray:
    return np.array(call.made()[0])


def _transformed_axis(call: Call) -> np.ndarray:
    return np.array(-2)


def _transform_length(call: Call) -> np.ndarray:
    axis = (call.known(2) or [call.integer("axis", -2)])[0]
    return np.array(call.shape(0)[axis] if call.integer("onesided", 0) else call.made()[axis])


def _frame_step(call: Call) -> np.ndarray:
    """The steps in which a window of the given length reaches the end of the signal in as many frames as recorded."""
    frames = call.made()[1]
    length = call.shape(2)[0] if call.has(2) else (call.known(3) or [1])[0]
    return np.array(max(1, (call.shape(0)[1] - length) // max(1, frames - 1)))


def _bands(call: Call) -> np.ndarray:
    return np.array(call.made()[1])


def _spectrum_length(call: Call) -> np.ndarray:
    return np.array(2 * (call.made()[0] - 1))


def _rate(call: Call) -> int:
    return int((call.known(2) or [16_000])[0])


def _sample_rate(call: Call) -> np.ndarray:
    return np.array(_rate(call))


def _highest_pitch(call: Call) -> np.ndarray:
    return np.array(_rate(call) / 2)


def _pieces(call: Call) -> np.ndarray:
    """Lengths of the pieces of an axis; equal ones, but for the last."""
    size = call.shape(0)[call.axis(0, len(call.shape(0)))]
    if not call.shape(1):
        return np.ones(())
    count = call.shape(1)[0]
    return np.array([size // count] * (count - 1) + [size - size // count * (count - 1)])


# As in costmodel.particular.
REQUIRED: Mapping[tuple[str, int], _Rule] = {
    ("Reshape", 1): _output_shape,
    ("Expand", 1): _output_shape,
    ("ConstantOfShape", 0): _output_shape,
    ("Tile", 1): _repeats,
    ("Pad", 1): _grow,
    ("Pad", 3): _padded_axes,
    ("Range", 0): _zeros,
    ("Range", 1): _range_limit,
    ("Range", 2): _ones,
    ("Slice", 1): _slice_starts,
    ("Slice", 2): _slice_ends,
    ("Slice", 3): _slice_axes,
    ("Slice", 4): _ones,
    ("Split", 1): _split_sizes,
    ("TopK", 1): _k,
    ("OneHot", 1): _depth,
    ("Resize", 2): _scales,
    ("Upsample", 1): _scales,
    ("Resize", 3): _sizes,
    ("Squeeze", 1): _squeezed,
    ("Unsqueeze", 1): _unsqueezed,
    ("ExpandDims", 1): _expanded,
    **{(name, 1): _reduced for name in _REDUCTIONS},
    ("MaxUnpool", 2): _output_shape,
    ("Col2Im", 1): _image_of_columns,
    ("AffineGrid", 1): _grid_size,
    ("DFT", 1): _transform_length,
    ("DFT", 2): _transformed_axis,
    ("STFT", 1): _frame_step,
    ("HannWindow", 0): _window_length,
    ("HammingWindow", 0): _window_length,
    ("BlackmanWindow", 0): _window_length,
    ("MelWeightMatrix", 0): _bands,
    ("MelWeightMatrix", 1): _spectrum_length,
    ("MelWeightMatrix", 2): _sample_rate,
    ("MelWeightMatrix", 3): _zeros,
    ("MelWeightMatrix", 4): _highest_pitch,
    ("SplitToSequence", 1): _pieces,
}
PREFERRED: Mapping[tuple[str, int], _Rule] = {}
