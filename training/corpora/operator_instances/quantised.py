"""Random instances of operators on quantised tensors."""

from costmodel.training.corpora.operator_instances.draw import Draw
from costmodel.training.corpora.operator_instances.instance import Drawer, Sweep

__all__ = ["SWEEPS"]

_SCALES = "<float a = {0.1}, uint8 z = {3}, float b = {0.2}, int8 v = {0}, float c = {0.3}>"


def _quantise(made: str) -> Drawer:
    return lambda d: (
        f"""(float[{d.shape}] x) => ({made} y) <float s = {{0.02}}, {made} z = {{3}}>
        {{ y = QuantizeLinear(x, s, z) }}"""
    )


def _quantise_contributed(d: Draw) -> str:
    return f"""(float[{d.shape}] x) => (uint16 y) <float s = {{0.02}}, uint16 z = {{3}}>
        {{ y = com.microsoft.QuantizeLinear(x, s, z) }}"""


def _dequantise(read: str) -> Drawer:
    return lambda d: (
        f"""({read}[{d.shape}] x) => (float y) <float s = {{0.02}}, {read} z = {{{0 if read == "int32" else 3}}}>
        {{ y = DequantizeLinear(x, s, z) }}"""
    )


def _dequantise_channels(d: Draw) -> str:
    return f"(int8[{d.image}] x | float[{d.c}] s) => (float y) {{ y = DequantizeLinear<axis = 1>(x, s) }}"


def _dequantise_contributed(d: Draw) -> str:
    return f"""(uint16[{d.shape}] x) => (float y) <float s = {{0.02}}, uint16 z = {{3}}>
        {{ y = com.microsoft.DequantizeLinear(x, s, z) }}"""


def _four_bits(d: Draw) -> str:
    return f"""(float[{d.table}] x) => (float y) <float s = {{0.1}}, int4 z = {{1}}>
        {{ q = QuantizeLinear(x, s, z) y = DequantizeLinear(q, s, z) }}"""


def _product(d: Draw) -> tuple[int, int]:
    rows, width = d.pick(1, d.s, d.s), d.pick(d.h, 4 * d.h, d.rounded(16, 4096))
    d.flops(2, rows, d.h, width)
    return rows, width


def _integer_product(d: Draw) -> str:
    rows, width = _product(d)
    return f"""(uint8[{rows},{d.h}] q, uint8 z | {d.pick("int8", "uint8")}[{d.h},{width}] w) => (int32 y)
        {{ y = MatMulInteger(q, w, z) }}"""


def _integer_product_16(d: Draw) -> str:
    d.flops(50, d.rows, d.cols, d.e)
    return f"""(int16[{d.table}] a, int16[{d.cols},{d.e}] b) => (int32 y)
        {{ y = com.microsoft.MatMulInteger16(a, b) }}"""


def _product_to_float(d: Draw) -> str:
    rows, width = _product(d)
    return f"""(uint8[{rows},{d.h}] a, float s, uint8 z | int8[{d.h},{width}] b, float[{width}] c) => (float y)
        <float t = {{0.01}}> {{ y = com.microsoft.MatMulIntegerToFloat(a, b, s, t, z, , c) }}"""


def _dynamic_product(d: Draw) -> str:
    rows, width = _product(d)
    return f"""(float[{rows},{d.h}] x | int8[{d.h},{width}] w) => (float y) <float s = {{0.01}}, int8 z = {{0}}>
        {{ y = com.microsoft.DynamicQuantizeMatMul(x, w, s, z) }}"""


def _quantised_product(d: Draw) -> str:
    rows, width = _product(d)
    return f"""(uint8[{rows},{d.h}] x | int8[{d.h},{width}] w) => (uint8 y) {_SCALES}
        {{ y = QLinearMatMul(x, a, z, w, b, v, c, z) }}"""


def _quantised_heads(d: Draw) -> str:
    d.flops(2 * d.n * d.a, d.s, d.s, d.e)
    return f"""(uint8[{d.n},{d.a},{d.s},{d.e}] x, uint8[{d.n},{d.a},{d.e},{d.s}] w) => (uint8 y) {_SCALES}
        {{ y = QLinearMatMul(x, a, z, w, b, z, c, z) }}"""


def _quantised_gemm(d: Draw) -> str:
    rows, width = _product(d)
    return f"""(uint8[{rows},{d.h}] x | int8[{d.h},{width}] w, int32[{width}] k) => (uint8 y) {_SCALES}
        {{ y = com.microsoft.QGemm(x, a, z, w, b, v, k, c, z) }}"""


def _convolution(
    call: str, weight: str = "int8", made: str = "uint8", *, last: bool = False, fed: bool = False
) -> Drawer:
    """Returns a function that draws quantised convolutions, some of them depthwise or strided."""

    def draw(d: Draw) -> str:
        k, stride, depthwise = d.pick(1, 1, 3, 3, 5), d.pick(1, 1, 2), d.pick(True, False, False)
        inputs, outputs = (d.g, d.g) if depthwise else (d.pick(d.g, d.c), d.pick(16 * d.size(1, 64), d.k))
        group = inputs if depthwise else 1
        d.flops(2 * d.n * inputs * outputs / group, (d.i / stride) ** 2, k * k)
        attributes = f"group = {group}, strides = [{stride}, {stride}], pads = {[k // 2] * 4}"
        shape = f"{d.n},{d.i},{d.i},{inputs}" if last else f"{d.n},{inputs},{d.i},{d.i}"
        return f"""(uint8[{shape}] x{"," if fed else " |"} {weight}[{outputs},{inputs // group},{k},{k}] w)
            => ({made} y) {_SCALES} {{ y = {call.replace("ATTRIBUTES", attributes)} }}"""

    return draw


def _attention(d: Draw) -> str:
    width = d.a * d.e
    d.flops(6 * d.n, d.s, width, width)
    d.flops(4 * d.n * d.a, d.s, d.s, d.e)
    return f"""(uint8[{d.n},{d.s},{width}] x, float s, int32[{d.n},{d.s}] m, uint8 z
        | int8[{width},{3 * width}] w, float[{3 * width}] v) => (float y) <float t = {{0.01}}, int8 u = {{0}}>
        {{ y = com.microsoft.QAttention<num_heads = {d.a}>(x, w, v, s, t, m, z, u) }}"""


def _activation(call: str) -> Drawer:
    def draw(d: Draw) -> str:
        shape = d.pick(d.scores, d.table) if "Softmax" in call else d.shape
        return f"(uint8[{shape}] x) => (uint8 y) {_SCALES} {{ y = com.microsoft.{call}(x, a, z, c, z) }}"

    return draw


def _two(name: str) -> Drawer:
    def draw(d: Draw) -> str:
        left, right = d.pick((d.shape, d.shape), (d.shape, d.shape), (d.image, f"{d.n},{d.c},1,1"), (d.tokens, "1"))
        return f"""(uint8[{left}] x, uint8[{right}] w) => (uint8 y) {_SCALES}
            {{ y = com.microsoft.{name}(x, a, z, w, b, z, c, z) }}"""

    return draw


def _concat(d: Draw) -> str:
    return f"""(uint8[{d.image}] x, uint8[{d.n},{d.k},{d.i},{d.i}] w) => (uint8 y) {_SCALES}
        {{ y = com.microsoft.QLinearConcat<axis = 1>(c, z, x, a, z, w, b, z) }}"""


def _where(d: Draw) -> str:
    return f"""(bool[{d.shape}] k, uint8[{d.shape}] x, uint8[{d.shape}] w) => (uint8 y) {_SCALES}
        {{ y = com.microsoft.QLinearWhere(k, x, a, z, w, b, z, c, z) }}"""


def _pool(d: Draw) -> str:
    k, stride = d.pick((2, 2), (3, 2), (3, 1), (7, 7))
    return f"""(uint8[{d.image}] x) => (uint8 y) {_SCALES} {{ y = com.microsoft.QLinearAveragePool
        <kernel_shape = [{k}, {k}], strides = [{stride}, {stride}]>(x, a, z, c, z) }}"""


def _global_pool(d: Draw) -> str:
    return f"""(uint8[{d.image}] x) => (uint8 y) {_SCALES}
        {{ y = com.microsoft.QLinearGlobalAveragePool(x, a, z, c, z) }}"""


def _pool_last(d: Draw) -> str:
    k, stride = d.pick((2, 2), (3, 2), (3, 1))
    return f"""(uint8[{d.n},{d.i},{d.i},{d.c}] x) => (uint8 y)
        {{ y = com.microsoft.NhwcMaxPool<kernel_shape = [{k}, {k}], strides = [{stride}, {stride}]>(x) }}"""


def _bits(d: Draw) -> str:
    block, bits = d.pick(32, 32, 64, 128), d.pick(4, 4, 8)
    rows, depth, width = d.pick(1, 1, d.size(2, 128)), 128 * d.size(1, 32), 16 * d.size(4, 256)
    d.flops(2, rows, depth, width)
    blocks = depth // block
    level = d.pick(0, 4, 4)
    return f"""(float[1,{rows},{depth}] x | uint8[{width},{blocks},{block * bits // 8}] w, float[{width * blocks}] s)
        => (float y) {{ y = com.microsoft.MatMulNBits
            <K = {depth}, N = {width}, bits = {bits}, block_size = {block}, accuracy_level = {level}>(x, w, s) }}"""


def _four_bit_floats(d: Draw) -> str:
    rows, depth, width = d.size(1, 32), 64 * d.size(1, 16), 16 * d.size(4, 64)
    d.flops(20, rows, depth, width)
    return f"""(float[{rows},{depth}] x | uint8[{depth * width // 2}] w, float[{depth * width // 64}] s) => (float y)
        {{ y = com.microsoft.MatMulBnb4<K = {depth}, N = {width}, block_size = 64, quant_type = 1>(x, w, s) }}"""


def _blocks_of_four_bits(d: Draw) -> str:
    rows = d.size(1, 64)
    return f"""(float[{rows},32] x | uint8[160] w) => (float y) <int64[2] n = {{32, 8}}>
        {{ y = com.microsoft.MatMulFpQ4<blk_quant_type = 0>(x, w, n) }}"""


def _experts(d: Draw) -> str:
    experts, width, inner = d.pick(4, 8), d.pick(64, 128), 64
    tokens = d.size(1, 64)
    return f"""(float[{tokens},{width}] x, float[{tokens},{experts}] r | uint8[{experts},{inner},{width // 2}] a,
        float[{experts},{inner}] s, uint8[{experts},{width},{inner // 2}] b, float[{experts},{width}] t) => (float y)
        {{ y = com.microsoft.QMoE<k = 2, activation_type = "silu", expert_weight_bits = 4>(x, r, a, s, , b, t) }}"""


SWEEPS: dict[str, Sweep] = {
    "QuantizeLinear": Sweep((_quantise("uint8"), _quantise("int8")), 12),
    "DequantizeLinear": Sweep(
        (_dequantise("uint8"), _dequantise("int8"), _dequantise("int32"), _dequantise_channels), 14
    ),
    "DequantizeLinear/int4": Sweep((_four_bits,), 3),
    "com.microsoft.QuantizeLinear": Sweep((_quantise_contributed,), 5),
    "com.microsoft.DequantizeLinear": Sweep((_dequantise_contributed,), 5),
    "DynamicQuantizeLinear": Sweep(
        (
            lambda d: (
                f"""(float[{d.pick(d.tokens, d.table)}] x) => (uint8 q, float s, uint8 z)
                {{ q, s, z = DynamicQuantizeLinear(x) }}"""
            ),
        ),
        12,
    ),
    "MatMulInteger": Sweep((_integer_product,), 16),
    "com.microsoft.MatMulInteger16": Sweep((_integer_product_16,), 4),
    "com.microsoft.MatMulIntegerToFloat": Sweep((_product_to_float,), 14),
    "com.microsoft.DynamicQuantizeMatMul": Sweep((_dynamic_product,), 14),
    "ConvInteger": Sweep((_convolution("ConvInteger<ATTRIBUTES>(x, w, z)", "uint8", "int32"),), 10),
    "QLinearConv": Sweep((_convolution("QLinearConv<ATTRIBUTES>(x, a, z, w, b, v, c, z)", fed=True),), 8),
    "com.microsoft.QLinearConv": Sweep(
        (_convolution("com.microsoft.QLinearConv<ATTRIBUTES, channels_last = 1>(x, a, z, w, b, v, c, z)", last=True),),
        28,
    ),
    "QLinearMatMul": Sweep((_quantised_product, _quantised_product, _quantised_heads), 18),
    "com.microsoft.QGemm": Sweep((_quantised_gemm,), 16),
    "com.microsoft.QAttention": Sweep((_attention,), 6),
    "com.microsoft.QLinearSigmoid": Sweep((_activation("QLinearSigmoid"),), 6),
    "com.microsoft.QLinearLeakyRelu": Sweep((_activation("QLinearLeakyRelu<alpha = 0.1>"),), 6),
    "com.microsoft.QLinearSoftmax": Sweep((_activation("QLinearSoftmax<opset = 13>"),), 6),
    "com.microsoft.QLinearAdd": Sweep((_two("QLinearAdd"),), 14),
    "com.microsoft.QLinearMul": Sweep((_two("QLinearMul"),), 12),
    "com.microsoft.QLinearConcat": Sweep((_concat,), 8),
    "com.microsoft.QLinearWhere": Sweep((_where,), 4),
    "com.microsoft.QLinearAveragePool": Sweep((_pool,), 8),
    "com.microsoft.QLinearGlobalAveragePool": Sweep((_global_pool,), 8),
    "com.microsoft.NhwcMaxPool": Sweep((_pool_last,), 8),
    "com.microsoft.MatMulNBits": Sweep((_bits,), 18),
    "com.microsoft.MatMulBnb4": Sweep((_four_bit_floats,), 4),
    "com.microsoft.MatMulFpQ4": Sweep((_blocks_of_four_bits,), 3),
    "com.microsoft.QMoE": Sweep((_experts,), 4),
}
