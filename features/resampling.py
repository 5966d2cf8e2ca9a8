"""Operations of layers that compute the pixels of an image from those of another: Resize, Upsample and GridSample.

ONNX Runtime computes pixel by pixel and channel by channel, and resizes with vectors of channels where these are last
or in blocks. On a Zen 4, an element takes 0.6 ns from the nearest pixel, 1.5 ns from four, 3.3 ns from eight and 80 ns
with a cubic kernel; with vectors of channels it takes a quarter of the first two. OpenVINO, with channels last, goes
from position to position.
"""

from costmodel.ir.graph import TensorType
from costmodel.ir.operators import attribute_of
from costmodel.ir.sequence import SequenceLayer

__all__ = ["RESAMPLING", "resampling_flops"]

RESAMPLING = ("Resize", "Upsample", "GridSample", "RoiAlign")
# In simple operations, of which a core makes about 20 per nanosecond: each element, from the nearest pixel or with a
# cubic kernel, and each pixel that an element is interpolated from.
_NEAREST_FLOPS, _CUBIC_FLOPS, _PIXEL_FLOPS = 12.0, 1500.0, 7.5
_BY_VECTORS = 0.25  # of the time of an element
# An element at a place of its own, and a pixel of an image that is divided among vectors of channels.
_SAMPLE_FLOPS, _POSITION_FLOPS = 120.0, 280.0
_IMAGE_RANK = 4


def resampling_flops(layer: SequenceLayer, data: TensorType, output: TensorType) -> float:
    """Returns the operations of a layer that resamples an image, as simple ones.

    Args:
        layer: The layer.
        data: Type of the image.
        output: Type of the resampled image.
    """
    elements = output.elements
    if layer.op_type in ("GridSample", "RoiAlign"):
        return _SAMPLE_FLOPS * elements
    if data.shape == output.shape:
        return float(elements)  # a copy
    mode = (attribute_of(layer.op_type, layer.domain, layer.since, layer.attributes, "mode") or {}).get("s", "")
    if "cubic" in mode:
        return _CUBIC_FLOPS * elements
    scaled = [axis for axis, sizes in enumerate(zip(data.shape, output.shape, strict=False)) if sizes[0] != sizes[1]]
    each = _PIXEL_FLOPS * 2 ** min(3, len(scaled)) if "linear" in mode else _NEAREST_FLOPS
    channels_last = len(data.shape) == _IMAGE_RANK and 1 in scaled and _IMAGE_RANK - 1 not in scaled
    if not (data.blocked or channels_last):
        return each * elements
    channels = max(1, output.shape[1] if len(output.shape) > 1 else 1)
    by_positions = data.blocked and layer.op_type == "Resize"
    return _BY_VECTORS * each * elements + (_POSITION_FLOPS * elements / channels if by_positions else 0.0)
