"""Operations of layers that compute the pixels of an image from those of another: Resize, Upsample and GridSample.

ONNX Runtime computes pixel by pixel and channel by channel, and resizes with vectors of channels where these are last
or in blocks. On a Zen 4, an element takes 0.6 ns from the nearest pixel, 1.5 ns from four and 3.3 ns from eight; with
vectors of channels it takes a quarter of the first two. With a cubic kernel, ONNX Runtime keeps what it has
interpolated along the rows of a channel in hash maps, one for all columns that lie equally far from a pixel: on a Zen
5, an element takes 42 ns to look up its four entries, and each entry 33 ns to make. Each column of the output has one
for each row of the input, but at most four for each row of the output. Many small maps lie scattered in memory, which
costs an element 30 ns more where they leave the level 2 cache. With antialiasing, one axis is resized after the other;
an element of either takes 0.5 ns, and each of its pixels 0.25.

OpenVINO computes with vectors, and with channels last it goes from position to position; on a Zen 5, an element takes
0.06 ns from the nearest pixel, 0.2 ns from four, and 1.2 ns with a cubic kernel. Its bound is not that near: with these
times in it, regressors were no better (docs/adr/0019).
"""

import math

from costmodel.features.channel_order import channels_of
from costmodel.ir.attributes import integer
from costmodel.ir.graph import TensorType
from costmodel.ir.operators import attribute_of
from costmodel.ir.sequence import SequenceLayer

__all__ = ["POSITION_FLOPS", "RESAMPLING", "cubic_table_bytes", "resampling_flops"]

RESAMPLING = ("Resize", "Upsample", "GridSample", "RoiAlign")
_AT_PLACES = ("GridSample", "RoiAlign")
# In simple operations, of which a core makes about 20 per nanosecond: an element from the nearest pixel and at a place
# of its own, and each pixel that an element is interpolated from.
_NEAREST, _PLACE, _PIXEL = 12.0, 120.0, 7.5
# The same for an element that one axis is resized for, and for each of its pixels, with antialiasing.
_PASS, _ANTIALIASED_PIXEL = 10.0, 5.0
# The same for an element with a cubic kernel, for each entry of its hash maps, for an element where these are many and
# leave the level 2 cache of a megabyte, and what is assumed of other runtimes.
_LOOKED_UP, _ENTERED, _SCATTERED, _CUBIC = 840.0, 660.0, 600.0, 1500.0
_ENTRY_BYTES, _ROWS_OUTSIDE, _ROWS_OF_ELEMENT, _MANY_MAPS, _SCATTERED_BYTES = 40, 3, 4, 8, 1 << 20
# Pixels on either side of an element that count, by the mode.
_SUPPORT = {"cubic": 2.0, "linear": 1.0}
_BY_VECTORS = 0.25  # of the time of an element
# What is assumed of another runtime for an element, and for a position of an image whose channels are last.
_ELEMENT, POSITION_FLOPS = 8.0, 280.0
_IMAGE_RANK, _MOST_SCALED = 4, 3


def resampling_flops(layer: SequenceLayer, data: TensorType, output: TensorType, *, by_elements: bool) -> float:
    """Returns the operations of a layer that resamples an image, as simple ones.

    Args:
        layer: The layer.
        data: Type of the image.
        output: Type of the resampled image.
        by_elements: Whether it is computed as by ONNX Runtime; if not, what is assumed of other runtimes.
    """
    elements = float(output.elements)
    if layer.op_type in _AT_PLACES:
        return (_PLACE if by_elements else _ELEMENT) * elements
    if data.shape == output.shape:
        return elements  # a copy
    if not by_elements:
        positions = elements / channels_of(output) if data.blocked and layer.op_type == "Resize" else 0.0
        return (_CUBIC if "cubic" in _mode(layer) else _ELEMENT) * elements + POSITION_FLOPS * positions
    mode = next((one for one in _SUPPORT if one in _mode(layer)), "nearest")
    if mode in _SUPPORT and _is_antialiased(layer) and len(data.shape) == len(output.shape) > 1:
        return elements * _antialiased_flops(_SUPPORT[mode], data, output)
    if mode == "cubic":
        missed = min(1.0, cubic_table_bytes(layer, data, output) / _SCATTERED_BYTES)
        entered = _rows_of_tables(data, output) / max(1, _height(output))
        return elements * (_LOOKED_UP + _ENTERED * entered + _SCATTERED * missed)
    scaled = [axis for axis, (one, other) in enumerate(zip(data.shape, output.shape, strict=False)) if one != other]
    each = _PIXEL * 2.0 ** min(_MOST_SCALED, len(scaled)) if mode == "linear" else _NEAREST
    return (_BY_VECTORS if data.blocked or _has_channels_last(data, output) else 1.0) * each * elements


def cubic_table_bytes(layer: SequenceLayer, data: TensorType, output: TensorType) -> int:
    """Returns the bytes of the hash maps from which ONNX Runtime interpolates with a cubic kernel, if these are many.

    A few maps are read from one end to the other. Other layers have none.

    Args:
        layer: The layer.
        data: Type of the image.
        output: Type of the resampled image.
    """
    if layer.op_type != "Resize" or "cubic" not in _mode(layer) or _is_antialiased(layer) or data.shape == output.shape:
        return 0
    maps = _width(output) // max(1, math.gcd(_width(data), _width(output)))
    return _ENTRY_BYTES * _width(output) * _rows_of_tables(data, output) if maps > _MANY_MAPS else 0


def _antialiased_flops(support: float, data: TensorType, output: TensorType) -> float:
    """Returns the operations for an element with antialiasing: all rows are resized first, and then the columns.

    Args:
        support: Pixels of the smaller image on either side of an element that count.
        data: Type of the image.
        output: Type of the resampled image.
    """
    down, across = (1, 2) if _has_channels_last(data, output) else (-2, -1)
    height, width = (data.shape[axis] / max(1, output.shape[axis]) for axis in (down, across))
    rows, columns = (_PASS + _ANTIALIASED_PIXEL * 2 * support * max(1.0, ratio) for ratio in (width, height))
    return height * rows + columns


def _has_channels_last(data: TensorType, output: TensorType) -> bool:
    """Returns whether an image is scaled along the axes before the last one alone."""
    scaled = [one != other for one, other in zip(data.shape, output.shape, strict=False)]
    return len(data.shape) == _IMAGE_RANK and scaled[1] and not scaled[-1]


def _rows_of_tables(data: TensorType, output: TensorType) -> int:
    """Returns how many rows of the image are interpolated: at most the four around each row of the output."""
    return min(_height(data) + _ROWS_OUTSIDE, _ROWS_OF_ELEMENT * _height(output))


def _height(image: TensorType) -> int:
    return image.shape[-2] if len(image.shape) > 1 else 1


def _width(image: TensorType) -> int:
    return image.shape[-1] if image.shape else 1


def _is_antialiased(layer: SequenceLayer) -> bool:
    return integer(layer.attributes, "antialias", 0) != 0


def _mode(layer: SequenceLayer) -> str:
    mode = attribute_of(layer.op_type, layer.domain, layer.since, layer.attributes, "mode")
    return str((mode or {}).get("s", ""))
