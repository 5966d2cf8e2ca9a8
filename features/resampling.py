"""Operations of layers that compute the pixels of an image from those of another: Resize, Upsample and GridSample.

ONNX Runtime computes pixel by pixel and channel by channel, and resizes with vectors of channels where these are last
or in blocks. On a Zen 4, an element takes 0.6 ns from the nearest pixel, 1.5 ns from four, 3.3 ns from eight and 80 ns
with a cubic kernel; with vectors of channels it takes a quarter of the first two. OpenVINO computes with vectors, and
with channels last it goes from position to position; on a Zen 5, an element takes 0.06 ns from the nearest pixel, 0.2
ns from four, and 1.2 ns with a cubic kernel.
"""

from costmodel.ir.graph import TensorType
from costmodel.ir.operators import attribute_of
from costmodel.ir.sequence import SequenceLayer

__all__ = ["RESAMPLING", "resampling_flops", "resampling_flops_by_elements"]

RESAMPLING = ("Resize", "Upsample", "GridSample", "RoiAlign")
_AT_PLACES = ("GridSample", "RoiAlign")
# In simple operations, of which a core makes about 20 per nanosecond: an element from the nearest pixel, with a cubic
# kernel, and at a place of its own, and each pixel that an element is interpolated from.
_NEAREST, _CUBIC, _PLACE, _PIXEL = 12.0, 1500.0, 120.0, 7.5
_BY_VECTORS = 0.25  # of the time of an element
# The same with vectors, and a position of an image whose channels are last.
_VECTOR_NEAREST, _VECTOR_CUBIC, _VECTOR_PLACE, _VECTOR_PIXEL = 2.0, 30.0, 16.0, 1.0
_POSITION_FLOPS = 280.0
_IMAGE_RANK, _MOST_SCALED = 4, 3


def resampling_flops(layer: SequenceLayer, data: TensorType, output: TensorType) -> float:
    """Returns the operations of a layer that resamples an image with vectors, as simple ones.

    Args:
        layer: The layer.
        data: Type of the image.
        output: Type of the resampled image.
    """
    elements = float(output.elements)
    if layer.op_type in _AT_PLACES:
        return _VECTOR_PLACE * elements
    if data.shape == output.shape:
        return elements  # a copy
    each = _of_mode(layer, data, output, _VECTOR_NEAREST, _VECTOR_PIXEL, _VECTOR_CUBIC)
    channels = max(1, output.shape[1] if len(output.shape) > 1 else 1)
    by_positions = data.blocked and layer.op_type == "Resize"
    return each * elements + (_POSITION_FLOPS * elements / channels if by_positions else 0.0)


def resampling_flops_by_elements(layer: SequenceLayer, data: TensorType, output: TensorType) -> float:
    """Returns the operations of a layer that resamples an image as ONNX Runtime does, as simple ones.

    Args:
        layer: The layer.
        data: Type of the image.
        output: Type of the resampled image.
    """
    elements = float(output.elements)
    if layer.op_type in _AT_PLACES:
        return _PLACE * elements
    if data.shape == output.shape:
        return elements  # a copy
    scaled = _scaled_axes(data, output)
    last = len(data.shape) == _IMAGE_RANK and 1 in scaled and _IMAGE_RANK - 1 not in scaled
    vectors = _BY_VECTORS if (data.blocked or last) and not _is_cubic(layer) else 1.0
    return vectors * _of_mode(layer, data, output, _NEAREST, _PIXEL, _CUBIC) * elements


def _of_mode(
    layer: SequenceLayer, data: TensorType, output: TensorType, nearest: float, pixel: float, cubic: float
) -> float:
    """Returns the operations for an element by the layer's mode of interpolation."""
    if _is_cubic(layer):
        return cubic
    if "linear" not in _mode(layer):
        return nearest
    return pixel * 2.0 ** min(_MOST_SCALED, len(_scaled_axes(data, output)))


def _scaled_axes(data: TensorType, output: TensorType) -> list[int]:
    return [axis for axis, (one, other) in enumerate(zip(data.shape, output.shape, strict=False)) if one != other]


def _is_cubic(layer: SequenceLayer) -> bool:
    return "cubic" in _mode(layer)


def _mode(layer: SequenceLayer) -> str:
    mode = attribute_of(layer.op_type, layer.domain, layer.since, layer.attributes, "mode")
    return str((mode or {}).get("s", ""))
