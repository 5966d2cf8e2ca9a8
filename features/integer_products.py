"""How runtimes multiply integers of 8 bits: quantised convolutions and matrix products.

In ONNX Runtime, a convolution whose weights are signed, and whose channels fit, reads its windows through pointers. Any
other one copies them (im2col), group by group, before it multiplies, and rescales its result afterwards. Products of
unsigned with signed integers have an instruction of their own on newer processors. Of OpenVINO only that is described.

The rules are those of ONNX Runtime 1.31 for x86 processors (`core/providers/cpu/quantization/qlinearconv.cc`,
`core/mlas/lib/convsym.cpp`, `core/util/math_cpu.cc`). The times were fitted to 786 convolutions and 391 products on a
Zen 4, of which a core makes about 20 simple operations per nanosecond; they need to be right within a factor of two.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import IntEnum

from costmodel.features.contraction import Contraction
from costmodel.features.products import Types
from costmodel.ir.attributes import integer
from costmodel.ir.graph import TensorType
from costmodel.ir.sequence import SequenceLayer

__all__ = ["NO_PRODUCTS", "IntegerPath", "IntegerProducts", "integer_products_of"]

# Operators of floats, which under OpenVINO multiply integers where quantisations surround them.
_OPERATORS_OF_FLOATS = ("Conv", "ConvTranspose", "Gemm", "MatMul")
# Position of the second operand among the inputs.
_SECOND = {
    "QLinearConv": 3, "QGemm": 3, "QLinearMatMul": 3, "ConvInteger": 1, "MatMulInteger": 1, "MatMulIntegerToFloat": 1,
    "DynamicQuantizeMatMul": 1, "DynamicQuantizeLSTM": 1, "QAttention": 1,
    **dict.fromkeys(_OPERATORS_OF_FLOATS, 1),
}  # fmt: skip
_BYTES = ("int8", "uint8")
_COLUMNS = 16  # columns that a kernel computes at once, filled up
_CHANNELS_OF_STEP = 4  # input channels that are multiplied at once
_DEPTHWISE_CHANNELS = 16
_RUN_FLOPS, _BYTE_FLOPS, _ROW_FLOPS = 88.0, 1.5, 60.0  # for each run of bytes that is copied, each byte, and each row
_TRANSPOSED_FLOPS = 2.0  # for each byte, where channels are not last
_INT32_BYTES, _POINTER_BYTES = 4, 8


class IntegerPath(IntEnum):
    """Ways in which products of integers are computed."""

    NONE = 0
    SAME_SIGN = 1
    """Products of two unsigned or of two signed integers."""
    SIGNED = 2
    """Products of unsigned with signed integers."""
    BY_POINTERS = 3
    """A convolution of unsigned data with signed weights that reads its windows through pointers."""
    DEPTHWISE = 4
    """A depthwise convolution of unsigned data with signed weights, by 16 channels at once."""
    DEPTHWISE_REST = 5
    """A depthwise convolution with another number of channels, or with unsigned weights."""
    FUSED = 6
    """Products of OpenVINO, which has them rescaled by oneDNN."""
    SIGNED_FIRST = 7
    """Products of signed with unsigned integers, as of a ConvInteger with signed filters, one after another."""

    def speed(self, isa: Collection[str]) -> float:
        """Returns the number of integers that are multiplied in the time of a float32.

        Args:
            isa: Instruction set extensions of the processor.
        """
        if self in (IntegerPath.SIGNED, IntegerPath.BY_POINTERS, IntegerPath.FUSED):
            return 4.0 if {"avx512_vnni", "avx_vnni"} & set(isa) else 2.0
        return _SPEEDS.get(self, 1.0)


_DEPTHWISE = (IntegerPath.DEPTHWISE, IntegerPath.DEPTHWISE_REST)
_SPEEDS = {
    IntegerPath.SAME_SIGN: 1.9, IntegerPath.DEPTHWISE: 1.0, IntegerPath.DEPTHWISE_REST: 0.4,
    IntegerPath.SIGNED_FIRST: 0.3,
}  # fmt: skip
_POINTER_FLOPS = {IntegerPath.BY_POINTERS: 11.0, IntegerPath.DEPTHWISE: 8.0, IntegerPath.DEPTHWISE_REST: 23.0}
# A ConvInteger, whose times were fitted to 97 layers on a Zen 5: for each byte that is packed, with filters of either
# sign; for each run of bytes that is copied before, and for each byte where they are no neighbours.
_PACKED_FLOPS = {IntegerPath.SAME_SIGN: 4.0, IntegerPath.SIGNED_FIRST: 18.0}
_COPIED_RUN_FLOPS, _COPIED_BYTE_FLOPS = 150.0, 12.0
# To rescale an element of the result: at once while it is computed, or later from a tensor of 32-bit integers.
_RESCALED_FLOPS = {IntegerPath.BY_POINTERS: 2.3, IntegerPath.DEPTHWISE: 2.3, IntegerPath.DEPTHWISE_REST: 5.0}
_RESCALED_LATER_FLOPS = 6.0


@dataclass(frozen=True, slots=True)
class IntegerProducts:
    """What a layer does to multiply integers.

    Attributes:
        path: Way in which it multiplies.
        columns: Number of columns of each product, which is filled up to a multiple of 16; 0 if it is not.
        copy_flops: Time of the copies before the products, in simple operations.
        rescaled_flops: Time to rescale one element of the result, in simple operations.
        workspace_bytes: Bytes of the windows or pointers to them, and of the result before it is rescaled.
    """

    path: IntegerPath = IntegerPath.NONE
    columns: int = 0
    copy_flops: float = 0.0
    rescaled_flops: float = 1.0
    workspace_bytes: int = 0

    def slowdown(self, isa: Collection[str]) -> float:
        """Returns how many times as long a multiplication takes as one of float32 in full vectors.

        Args:
            isa: Instruction set extensions of the processor.
        """
        filled = -(-self.columns // _COLUMNS) * _COLUMNS / self.columns if self.columns else 1.0
        return filled / self.path.speed(isa)


NO_PRODUCTS = IntegerProducts()


def integer_products_of(
    layer: SequenceLayer, inputs: Types, output: TensorType | None, contraction: Contraction | None
) -> IntegerProducts:
    """Returns how a layer multiplies integers; with path `NONE` if it multiplies none.

    Args:
        layer: The layer.
        inputs: Types of its inputs; None for an absent one.
        output: Type of its first output; None if it has none.
        contraction: The contraction that characterises it; None if it has none.
    """
    place = _SECOND.get(layer.op_type, len(inputs))
    data, second = (inputs[slot] if slot < len(inputs) else None for slot in (0, place))
    if contraction is None or data is None or second is None or output is None:
        return NO_PRODUCTS
    if layer.op_type in _OPERATORS_OF_FLOATS:
        integers = data.dtype in _BYTES and second.dtype in _BYTES
        return IntegerProducts(IntegerPath.FUSED, contraction.columns) if integers else NO_PRODUCTS
    # Operators that quantise their input make it unsigned.
    path = IntegerPath.SAME_SIGN if data.dtype == second.dtype or second.dtype == "uint8" else IntegerPath.SIGNED
    if layer.op_type == "ConvInteger" and (data.dtype, second.dtype) == ("uint8", "int8"):
        path = IntegerPath.SIGNED_FIRST  # it multiplies the filters by the data
    if layer.op_type == "ConvInteger":
        return _unscaled_convolution(layer, second, output, contraction, path)
    if layer.op_type != "QLinearConv":
        return IntegerProducts(path, contraction.columns, rescaled_flops=_RESCALED_LATER_FLOPS)
    return _convolution(layer, data, second, contraction, path)


def _unscaled_convolution(
    layer: SequenceLayer, filters: TensorType, output: TensorType, product: Contraction, path: IntegerPath
) -> IntegerProducts:
    """Returns how a ConvInteger multiplies its filters by the windows, which are packed anew in each run.

    Channels come first, so that the neighbours along the last axis of the output are copied at once.
    """
    nbytes = product.batch * product.rows * product.depth
    copied = _PACKED_FLOPS.get(path, _PACKED_FLOPS[IntegerPath.SAME_SIGN]) * nbytes
    in_place = _reads_in_place(layer, filters.shape[2:])
    if not in_place:
        strides = layer.attributes.get("strides", {}).get("ints", [1])
        run = max(1, output.shape[-1])
        copied += nbytes * (_COPIED_RUN_FLOPS / run if strides[-1:] == [1] else _COPIED_BYTE_FLOPS)
    workspace = 0 if in_place else product.rows * product.depth  # of one image and group after the other
    return IntegerProducts(path, product.rows, copied, workspace_bytes=workspace)


def _convolution(
    layer: SequenceLayer, data: TensorType, weights: TensorType, product: Contraction, path: IntegerPath
) -> IntegerProducts:
    group = max(1, integer(layer.attributes, "group", 1))
    filters, channels, *window = weights.shape
    path = _convolution_path(path, group, filters, channels)
    in_place = _reads_in_place(layer, window)
    positions = product.rows * max(1, data.shape[0])  # of all images
    elements = positions * math.prod(window)  # of all windows, each with all its channels
    results = positions * filters
    if path in _POINTER_FLOPS:
        pointers = 0 if in_place and path == IntegerPath.BY_POINTERS else elements
        copied, workspace = _POINTER_FLOPS[path] * pointers, _POINTER_BYTES * pointers
    else:
        copied, workspace = _ROW_FLOPS * positions * group, _INT32_BYTES * results
        if not in_place:
            # Neighbours in a row of the window are copied at once if they have all channels of the input.
            at_once = window[-1] if group == 1 and len(window) == 2 and _dilation(layer) == 1 else 1
            nbytes = elements * group * channels
            copied += _RUN_FLOPS * elements * group / at_once + _BYTE_FLOPS * nbytes
            workspace += nbytes
    if not integer(layer.attributes, "channels_last", 0):
        copied += _TRANSPOSED_FLOPS * (data.elements + results)
    return IntegerProducts(
        path=path,
        columns=0 if path in _DEPTHWISE else product.columns,
        copy_flops=copied,
        rescaled_flops=_RESCALED_FLOPS.get(path, _RESCALED_LATER_FLOPS),
        workspace_bytes=workspace,
    )


def _convolution_path(path: IntegerPath, group: int, filters: int, channels: int) -> IntegerPath:
    """Returns the way of a convolution.

    Args:
        path: Way of a product of the same types.
        group: Number of groups.
        filters: Number of output channels.
        channels: Number of input channels of each group.
    """
    if channels == 1 and filters == group > 1:
        by_16 = path == IntegerPath.SIGNED and group % _DEPTHWISE_CHANNELS == 0
        return IntegerPath.DEPTHWISE if by_16 else IntegerPath.DEPTHWISE_REST
    fits = filters >= _COLUMNS and channels % _CHANNELS_OF_STEP == 0 and filters % _CHANNELS_OF_STEP == 0
    return IntegerPath.BY_POINTERS if path == IntegerPath.SIGNED and group == 1 and fits else path


def _dilation(layer: SequenceLayer) -> int:
    dilations: list[int] = layer.attributes.get("dilations", {}).get("ints", [1])
    return dilations[-1]


def _reads_in_place(layer: SequenceLayer, window: Sequence[int]) -> bool:
    """Returns whether the windows of a convolution are the elements of its input, one by one."""
    strides = layer.attributes.get("strides", {}).get("ints", [])
    pads = layer.attributes.get("pads", {}).get("ints", [])
    return math.prod(window) == 1 and math.prod(strides) == 1 and not any(pads)
