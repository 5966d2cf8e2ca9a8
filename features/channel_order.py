"""Which axis has the channels: ONNX Runtime runs many quantised layers with the channels as the last axis."""

from costmodel.ir.attributes import integer
from costmodel.ir.graph import TensorType
from costmodel.ir.sequence import SequenceLayer

__all__ = ["channels_first", "channels_of"]

_CHANNELS_LAST = ("QLinearConv", "QLinearAveragePool", "QLinearGlobalAveragePool")


def channels_first(layer: SequenceLayer, tensor: TensorType) -> TensorType:
    """Returns the type of a layer's input or output with the axis of channels second, wherever the layer has it."""
    last = layer.op_type in _CHANNELS_LAST and integer(layer.attributes, "channels_last", 0) == 1
    if len(tensor.shape) < 3 or not (last or layer.op_type.startswith("Nhwc")):
        return tensor
    images, *positions, channels = tensor.shape
    return TensorType(tensor.dtype, (images, channels, *positions), tensor.blocked)


def channels_of(image: TensorType) -> int:
    """Returns the number of channels of an image; 1 for what has a single axis."""
    return max(1, image.shape[1]) if len(image.shape) > 1 else 1
