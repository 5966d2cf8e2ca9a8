"""How well a blocked convolution fills the vector units, step by step through ONNX Runtime's kernels.

ONNX Runtime computes convolutions of images in blocks of 16 channels (8 without AVX-512). One call of a kernel computes
a row of the output for up to four blocks of output channels, in segments of six positions, then three, two and one;
positions whose window reaches into the padding are computed one by one. Where the window is as wide as the image, so
that a row has one position, and is neither padded, dilated nor moved by more than one element, the whole image is taken
for one row, along which the window moves by the width. A step multiplies one input channel at one
place of the window for all positions and output blocks of a segment. A large segment keeps the vector units busy; a
small one waits for the results of its own additions.

The rules are those of ONNX Runtime 1.31 (`core/mlas/lib/snchwc.cpp`, `core/mlas/lib/x86_64/SconvKernelAvx512F.S`); the
number of cycles that a step, a store or a call takes is approximate.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

from costmodel.ir.attributes import integer
from costmodel.ir.graph import TensorType
from costmodel.ir.sequence import SequenceLayer

__all__ = ["BlockedConvolution"]

_MOST_FILTERS = 4
_MOST_OUTSIDE = 1000
_SEGMENTS = {16: (6, 3, 2, 1)}
_FEW_REGISTERS = (3, 2, 1)  # segments without AVX-512, which has twice as many registers
_POINTWISE_CHANNELS = 128  # input channels in one call of the kernel for windows of one element
# Cycles from an addition to the next one in the same register, and the fewest cycles of a step where so few additions
# follow each other that the processor begins with the next segment meanwhile. It can, while the instructions of both
# are among those that it holds at a time, of which there are about so many.
_LATENCY, _OVERLAPPED = 4.0, 2.0
_INSTRUCTIONS_HELD = 450
_LOADS = 2.0  # loads in a cycle
_CALL, _SEGMENT = 40.0, 12.0  # cycles that a call, and the end of a segment, take


@dataclass(frozen=True, slots=True)
class _Axis:
    """The positions of a convolution's window along one axis of an image.

    Attributes:
        inside: Number of positions at which the whole window lies inside the image.
        outside: Number of the other positions.
        taps_outside: Number of elements of the window that lie inside the image, summed over the other positions.
        window: Number of elements of the window.
    """

    inside: int
    outside: int
    taps_outside: int
    window: int

    @classmethod
    def of(cls, size: int, positions: int, window: int, stride: int, dilation: int, pad: int) -> Self:
        """Counts positions.

        Args:
            size: Number of elements of the image along the axis.
            positions: Number of positions of the window.
            window: Number of elements of the window.
            stride: Distance between positions.
            dilation: Distance between elements of the window.
            pad: Number of elements before the image.
        """
        first = max(0, min(positions, -(-pad // stride)))
        last = min(positions, max(first, (size - 1 - (window - 1) * dilation + pad) // stride + 1))
        outside = first + positions - last
        if outside > _MOST_OUTSIDE:  # no real network has so many: they are not counted one by one
            return cls(last - first, outside, outside * window, window)
        starts = (position * stride - pad for position in (*range(first), *range(last, positions)))
        return cls(last - first, outside, sum(_inside(start, size, window, dilation) for start in starts), window)

    @property
    def taps(self) -> int:
        """Number of elements of the window that lie inside the image, summed over all positions."""
        return self.inside * self.window + self.taps_outside


@dataclass(frozen=True, slots=True)
class BlockedConvolution:
    """A convolution that is computed in blocks of channels.

    Attributes:
        images: Number of images times the number of groups, which are computed one after the other; if each channel is
            its own group, of images alone.
        channels: Number of input channels of a group.
        filters: Number of output channels of a group.
        blocked_input: Whether the input is blocked; if not, it has few channels.
        depthwise: Whether each channel is its own group.
        pointwise: Whether the window is a single element, and there is no padding.
        strided: Whether the window moves by more than one element.
        rows: Positions of the window along the height.
        columns: Positions of the window along the width.
    """

    images: int
    channels: int
    filters: int
    blocked_input: bool
    depthwise: bool
    pointwise: bool
    strided: bool
    rows: _Axis
    columns: _Axis

    @classmethod
    def of(cls, layer: SequenceLayer, data: TensorType, output: TensorType) -> Self | None:
        """Describes a layer; None if it is no convolution of images, or is not computed in blocks.

        Args:
            layer: Layer to describe.
            data: Type of its first input.
            output: Type of its first output.
        """
        kernel = layer.attributes.get("kernel_shape", {}).get("ints", [])
        is_image = len(kernel) == 2 and len(data.shape) == len(output.shape) == 4
        if layer.op_type not in ("Conv", "FusedConv") or not output.blocked or not is_image:
            return None

        def pair(name: str) -> tuple[int, int]:
            first, second, *_ = layer.attributes.get(name, {}).get("ints", [1, 1])
            return max(1, first), max(1, second)

        top, left, *ends = layer.attributes.get("pads", {}).get("ints", [0, 0, 0, 0])
        strides, dilations = pair("strides"), pair("dilations")
        group = integer(layer.attributes, "group", 1)
        depthwise = group > 1 and group == data.shape[1] == output.shape[1]
        rows, columns = (
            _Axis.of(data.shape[2 + i], output.shape[2 + i], kernel[i], strides[i], dilations[i], (top, left)[i])
            for i in range(2)
        )
        is_plain = strides == dilations == (1, 1) and not any((top, left, *ends))
        if is_plain and kernel[1] == data.shape[3]:
            height, width = data.shape[2:]
            rows = _Axis.of(1, 1, 1, 1, 1, 0)
            columns = _Axis.of(height * width, output.shape[2], kernel[0] * kernel[1], width, 1, 0)
        return cls(
            images=data.shape[0] * (1 if depthwise else group),
            channels=1 if depthwise else data.shape[1] // group,
            filters=output.shape[1] // (1 if depthwise else group),
            blocked_input=data.blocked,
            depthwise=depthwise,
            pointwise=data.blocked and not depthwise and tuple(kernel) == (1, 1) and not any((top, left, *ends)),
            strided=strides != (1, 1),
            rows=rows,
            columns=columns,
        )

    @property
    def flops(self) -> float:
        """Number of operations, of which a multiply-add counts as two, padding included."""
        positions = [axis.inside + axis.outside for axis in (self.rows, self.columns)]
        window = self.rows.window * self.columns.window
        return 2.0 * self.images * self.channels * self.filters * positions[0] * positions[1] * window

    def tasks(self, lanes: int) -> int:
        """Returns the number of tasks that are dealt out to threads: rows of an image for up to four blocks of filters.

        Args:
            lanes: Number of channels in a block.
        """
        blocks = -(-self.filters // lanes)
        sets = blocks if self.depthwise else -(-blocks // _MOST_FILTERS)
        return max(1, self.images * sets * (self.rows.inside + self.rows.outside))

    def slowdown(self, lanes: int, units: float) -> float:
        """Returns how many times as long it takes as if all vector units were always busy.

        Elements of the window that lie in the padding are not multiplied, so that it can be less than 1.

        Args:
            lanes: Number of elements of a vector, which is also the number of channels in a block.
            units: Number of vectors that a core multiplies and adds in a cycle.
        """
        if not self.flops:
            return 1.0
        blocks = -(-self.filters // lanes)
        if self.depthwise:
            sets = [(1, blocks)]
        else:
            sets = [(_MOST_FILTERS, blocks // _MOST_FILTERS), (blocks % _MOST_FILTERS, 1)]
        of_image = self._pointwise_cycles if self.pointwise else self._window_cycles
        cycles = sum(number * of_image(filters, lanes, units) for filters, number in sets if filters and number)
        return self.images * cycles / (self.flops / (2 * lanes * units))

    def _window_cycles(self, filters: int, lanes: int, units: float) -> float:
        """Returns the cycles that one image takes for `filters` blocks of output channels."""
        # A call multiplies one block of input channels, or one channel of an input that is not blocked.
        each = 1 if self.depthwise or not self.blocked_input else lanes
        calls = -(-self.channels // each)
        columns, steps, ends = self.columns, 0.0, 0.0
        chain = self.rows.window * columns.window * each
        for positions, number in _segments(columns.inside, lanes):
            steps += number * columns.window * self._step(filters, positions, units, chain)
            ends += number * (_SEGMENT + filters * positions)
        steps += columns.taps_outside * self._step(filters, 1, units, chain)
        ends += columns.outside * (_SEGMENT + filters)
        positions = self.rows.inside + self.rows.outside
        return calls * (self.rows.taps * each * steps + positions * (_CALL + ends))

    def _pointwise_cycles(self, filters: int, lanes: int, units: float) -> float:
        """Returns the cycles that one image takes for `filters` blocks of output channels, with windows of 1 x 1."""
        rows, width = self.rows.inside, self.columns.inside
        lines, length = (rows, width) if self.strided else (1, rows * width)
        calls = -(-self.channels // _POINTWISE_CHANNELS)
        cycles = 0.0
        for positions, number in _segments(length, lanes):
            one = self.channels * self._step(filters, positions, units) + calls * (_SEGMENT + filters * positions)
            cycles += number * one
        return lines * (cycles + calls * _CALL)

    def _step(self, filters: int, positions: int, units: float, chain: int | None = None) -> float:
        """Returns the cycles in which one input channel, at one place of the window, is multiplied for a segment.

        Args:
            filters: Number of blocks of output channels.
            positions: Number of positions in the segment.
            units: Number of vectors that a core multiplies and adds in a cycle.
            chain: Number of steps of the segment, which wait for each other; None if they are too many for the next
                segment to begin meanwhile.
        """
        least = _LATENCY
        if chain is not None:
            instructions = chain * (filters * positions + filters + positions)
            least = max(_OVERLAPPED, _LATENCY * min(1.0, instructions / _INSTRUCTIONS_HELD))
        return max(filters * positions / units, least, (positions + filters) / _LOADS)


def _inside(start: int, size: int, window: int, dilation: int) -> int:
    """Returns how many elements of a window that begins at `start` lie inside an image of a given size."""
    before = -(-max(0, -start) // dilation)
    until = (size - 1 - start) // dilation + 1
    return max(0, min(window, until) - before)


def _segments(positions: int, lanes: int) -> Iterator[tuple[int, int]]:
    """Yields the sizes of the segments in which positions of a row are computed, each with its number."""
    for size in _SEGMENTS.get(lanes, _FEW_REGISTERS):
        number, positions = divmod(positions, size)
        if number:
            yield size, number
