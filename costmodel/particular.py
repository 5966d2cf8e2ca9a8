"""Arguments that must have particular values: indices lie within what they index, shapes say what was recorded."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from costmodel.graph import Attributes
from costmodel.sequence import LayerSequence, SequenceLayer, Value

__all__ = ["Call", "must_be_fed", "particular_values"]

_SEED = 2019  # as in costmodel.synthesis


@dataclass(frozen=True, slots=True)
class Call:
    """One layer with what is known of its arguments.

    Attributes:
        op_type: Operator.
        attributes: Canonical attributes.
        inputs: Values read, None where absent.
        outputs: Values made, None where absent.
        captured: How many of the last inputs are captured by subgraphs.
    """

    op_type: str
    attributes: Attributes
    inputs: Sequence[Value | None]
    outputs: Sequence[Value | None]
    captured: int = 0

    @classmethod
    def of(cls, sequence: LayerSequence, layer: SequenceLayer) -> "Call":
        """The call that `layer` makes in `sequence`."""
        inputs, outputs = (
            [sequence.values[i] if i >= 0 else None for i in indices] for indices in (layer.inputs, layer.outputs)
        )
        return cls(layer.op_type, layer.attributes, inputs, outputs, layer.captured)

    def shape(self, slot: int) -> tuple[int, ...]:
        """Shape of an input, which is there."""
        return _shape(self.inputs[slot])

    def made(self, slot: int = 0) -> tuple[int, ...]:
        """Shape of an output, which is there."""
        return _shape(self.outputs[slot])

    def known(self, slot: int) -> list[Any] | None:
        """Values of an input, where they are recorded."""
        value = self.inputs[slot] if slot < len(self.inputs) else None
        return list(value.data) if value is not None and value.data is not None else None

    def integer(self, name: str, default: int) -> int:
        """An integer attribute."""
        return int(self.attributes.get(name, {"i": default})["i"])

    def axis(self, default: int, rank: int) -> int:
        """The attribute "axis" of a tensor of this rank, counted from the front."""
        return self.integer("axis", default) % rank if rank else 0


def particular_values(call: Call, slot: int) -> np.ndarray | None:
    """Values for one argument, of a shape that broadcasts to its own; None where any values do."""
    rule = _REQUIRED.get((call.op_type, slot)) or _PREFERRED.get((call.op_type, slot))
    return rule(call) if rule is not None else None


def must_be_fed(op_type: str, slot: int) -> bool:
    """Whether a layer fails on arbitrary values of an argument, so that what computes it cannot run in its stead."""
    return (op_type, slot) in _REQUIRED


def _shape(value: Value | None) -> tuple[int, ...]:
    assert value is not None
    return value.type.shape


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


def _half(call: Call) -> np.ndarray:
    return np.full((), 0.5)


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
    return np.array([_shape(output)[axis] for output in call.outputs if output is not None])


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


Rule = Callable[[Call], np.ndarray]

# Arguments, by operator and position, on arbitrary values of which the layer fails or does other work.
_REQUIRED: dict[tuple[str, int], Rule] = {
    ("Gather", 1): _index_along_axis,
    ("GatherElements", 1): _index_along_axis,
    ("ScatterElements", 1): _index_along_axis,
    ("Scatter", 1): _index_along_axis,
    ("GatherND", 1): _index_tuples,
    ("ScatterND", 1): _index_tuples,
    ("MaxUnpool", 1): _index_of_output,
    ("RoiAlign", 2): _row_of(0, 2),
    ("EmbedLayerNormalization", 0): _row_of(2, 0),
    ("EmbedLayerNormalization", 1): _row_of(4, 1),
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
    ("CumSum", 1): _zeros,
    ("CumProd", 1): _zeros,
    ("ReverseSequence", 1): _whole_time,
    ("LSTM", 4): _all_steps,
    ("GRU", 4): _all_steps,
    ("RNN", 4): _all_steps,
    ("Dropout", 1): _half,
    ("Loop", 0): _trips,
    ("Loop", 1): _ones,
}
# Arguments on which any values do, and these are nearer to real ones.
_PREFERRED: dict[tuple[str, int], Rule] = {
    ("Resize", 1): _zeros,
    ("NonMaxSuppression", 0): _boxes,
    ("QuantizeLinear", 2): _zeros,
    ("DequantizeLinear", 2): _zeros,
}
