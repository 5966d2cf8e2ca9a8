"""Operations of layers that compute the pixels of an image from those of another: Resize, Upsample and GridSample.

ONNX Runtime computes pixel by pixel and channel by channel, and resizes with vectors of channels where these are last
or in blocks. On a Zen 4, an element takes 0.6 ns from the nearest pixel, 1.5 ns from four, 3.3 ns from eight and 80 ns
with a cubic kernel; with vectors of channels it takes a quarter of the first two. OpenVINO computes with vectors, and
with channels last it goes from position to position; on a Zen 5, an element takes 0.06 ns from the nearest pixel, 0.2
ns from four, and 1.2 ns with a cubic kernel. Its bound is not that near: with these times in it, regressors were no
better (docs/adr/0019).
"""

from costmodel.features.channel_order import channels_of
from costmodel.ir.graph import TensorType
from costmodel.ir.operators import attribute_of
from costmodel.ir.sequence import SequenceLayer

__all__ = ["POSITION_FLOPS", "RESAMPLING", "resampling_flops"]

RESAMPLING = ("Resize", "Upsample", "GridSample", "RoiAlign")
_AT_PLACES = ("GridSample", "RoiAlign")
# In simple operations, of which a core makes about 20 per nanosecond: an element from the nearest pixel, with a cubic
# kernel, and at a place of its own, and each pixel that an element is interpolated from.
_NEAREST, _CUBIC, _PLACE, _PIXEL = 12.0, 1500.0, 120.0, 7.5
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
    if "cubic" in _mode(layer):
        return _CUBIC * elements
    scaled = [axis for axis, (one, other) in enumerate(zip(data.shape, output.shape, strict=False)) if one != other]
    each = _PIXEL * 2.0 ** min(_MOST_SCALED, len(scaled)) if "linear" in _mode(layer) else _NEAREST
    channels_last = len(data.shape) == _IMAGE_RANK and 1 in scaled and _IMAGE_RANK - 1 not in scaled
    return (_BY_VECTORS if data.blocked or channels_last else 1.0) * each * elements


def _mode(layer: SequenceLayer) -> str:
    mode = attribute_of(layer.op_type, layer.domain, layer.since, layer.attributes, "mode")
    return str((mode or {}).get("s", ""))
