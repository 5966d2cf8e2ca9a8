"""Operators on quantised tensors."""

from tests.zoo.specimen import Specimen

__all__ = ["SPECIMENS"]

_SCALES = "<float a = {0.1}, uint8 z = {3}, float b = {0.2}, int8 v = {0}, float c = {0.3}>"
_NBITS = "com.microsoft.MatMulNBits<K = 32, N = 8, bits = 4, block_size = 16>"

SPECIMENS: dict[str, Specimen] = {
    "QuantizeLinear": Specimen("(float[4,6] x, float s, int8 z) => (int8[4,6] y) { y = QuantizeLinear(x, s, z) }"),
    "QuantizeLinear/axis": Specimen(
        "(float[4,6] x, float[6] s, uint8[6] z) => (uint8[4,6] y) { y = QuantizeLinear<axis = 1>(x, s, z) }"
    ),
    "DequantizeLinear": Specimen("(int8[4,6] x, float s) => (float[4,6] y) { y = DequantizeLinear(x, s) }"),
    "DequantizeLinear/blocks": Specimen(
        "(int8[4,6] x, float[4,3] s) => (float[4,6] y) { y = DequantizeLinear<block_size = 2>(x, s) }"
    ),
    "DequantizeLinear/int4": Specimen(
        """(float[4,6] x, float s) => (float[4,6] y) <int4 z = {1}>
        { q = QuantizeLinear(x, s, z) y = DequantizeLinear(q, s, z) }"""
    ),
    "DequantizeLinear/float8": Specimen(
        """(float[4,6] x, float s) => (float[4,6] y)
        { q = QuantizeLinear<output_dtype = 17>(x, s) y = DequantizeLinear(q, s) }"""
    ),
    "com.microsoft.QuantizeLinear": Specimen(
        "(float[4,6] x, float s, uint16 z) => (uint16[4,6] y) { y = com.microsoft.QuantizeLinear(x, s, z) }"
    ),
    "com.microsoft.DequantizeLinear": Specimen(
        "(uint16[4,6] x, float s, uint16 z) => (float[4,6] y) { y = com.microsoft.DequantizeLinear(x, s, z) }"
    ),
    "DynamicQuantizeLinear": Specimen(
        """(float[4,6] x) => (uint8[4,6] q, float s, uint8 z) { q, s, z = DynamicQuantizeLinear(x) }"""
    ),
    "MatMulInteger": Specimen(
        """(float[4,6] x, uint8[6,5] w) => (int32[4,5] y)
        { q, s, z = DynamicQuantizeLinear(x) y = MatMulInteger(q, w, z) }""",
    ),
    "com.microsoft.MatMulInteger16": Specimen(
        "(int16[4,6] a, int16[6,5] b) => (int32[4,5] y) { y = com.microsoft.MatMulInteger16(a, b) }"
    ),
    "com.microsoft.MatMulIntegerToFloat": Specimen(
        """(uint8[4,6] a, uint8[6,5] b, float s, float t, uint8 z, float[5] c) => (float[4,5] y)
        { y = com.microsoft.MatMulIntegerToFloat(a, b, s, t, z, , c) }"""
    ),
    "com.microsoft.DynamicQuantizeMatMul": Specimen(
        """(float[4,6] x, int8[6,5] w, float s, int8 z) => (float[4,5] y)
        { y = com.microsoft.DynamicQuantizeMatMul(x, w, s, z) }"""
    ),
    "ConvInteger": Specimen(
        "(uint8[1,3,8,8] x, uint8[4,3,3,3] w, uint8 z) => (int32[1,4,6,6] y) { y = ConvInteger(x, w, z) }"
    ),
    "QLinearConv": Specimen(
        f"(uint8[1,3,8,8] x, int8[4,3,3,3] w) => (uint8[1,4,6,6] y) {_SCALES} {{ y = QLinearConv(x,a,z,w,b,v,c,z) }}"
    ),
    "com.microsoft.QLinearConv": Specimen(
        f"""(uint8[1,8,8,3] x) => (uint8[1,6,6,4] y) {_SCALES}
        {{ y = com.microsoft.QLinearConv<channels_last = 1>(x, a, z, w, b, v, c, z) }}""",
        weights={"w": ("int8", (4, 3, 3, 3))},
    ),
    "com.microsoft.QLinearConv/by_the_runtime": Specimen(
        f"(uint8[1,3,8,8] x) => (uint8[1,4,6,6] y) {_SCALES} {{ y = QLinearConv(x, a, z, w, b, v, c, z) }}",
        weights={"w": ("int8", (4, 3, 3, 3))},
    ),
    "QLinearMatMul": Specimen(
        "(uint8[4,6] x, uint8[6,5] w, float a, uint8 z) => (uint8[4,5] y) { y = QLinearMatMul(x, a, z, w, a, z, a, z) }"
    ),
    "com.microsoft.QGemm": Specimen(
        """(uint8[4,6] x, uint8[6,5] w, float a, uint8 z, int32[5] c) => (uint8[4,5] y)
        { y = com.microsoft.QGemm(x, a, z, w, a, z, c, a, z) }"""
    ),
    "com.microsoft.QAttention": Specimen(
        """(uint8[2,8,16] x, uint8[16,48] w, float[48] v, float s, int32[2,8] m, uint8 z) => (float[2,8,16] y)
        { y = com.microsoft.QAttention<num_heads = 4>(x, w, v, s, s, m, z, z) }"""
    ),
    **{
        f"com.microsoft.{name}": Specimen(
            f"""(uint8[4,6] x, float a, uint8 z, float b, uint8 v) => (uint8[4,6] y)
            {{ y = com.microsoft.{name}{attributes}(x, a, z, b, v) }}"""
        )
        for name, attributes in {
            "QLinearSigmoid": "",
            "QLinearLeakyRelu": "<alpha = 0.1>",
            "QLinearSoftmax": "<opset = 13>",
        }.items()
    },
    **{
        f"com.microsoft.{name}": Specimen(
            f"""(uint8[4,6] x, uint8[4,6] y, float a, uint8 z) => (uint8[4,6] r)
            {{ r = com.microsoft.{name}(x, a, z, y, a, z, a, z) }}"""
        )
        for name in ("QLinearAdd", "QLinearMul")
    },
    "com.microsoft.QLinearConcat": Specimen(
        """(uint8[4,6] x, uint8[4,2] y, float a, uint8 z) => (uint8[4,8] r)
        { r = com.microsoft.QLinearConcat<axis = 1>(a, z, x, a, z, y, a, z) }"""
    ),
    "com.microsoft.QLinearWhere": Specimen(
        """(bool[4,6] c, uint8[4,6] x, uint8[4,6] y, float a, uint8 z) => (uint8[4,6] r)
        { r = com.microsoft.QLinearWhere(c, x, a, z, y, a, z, a, z) }"""
    ),
    "com.microsoft.QLinearAveragePool": Specimen(
        """(uint8[1,2,6,6] x, float a, uint8 z) => (uint8[1,2,5,5] y)
        { y = com.microsoft.QLinearAveragePool<kernel_shape = [2, 2]>(x, a, z, a, z) }"""
    ),
    "com.microsoft.QLinearGlobalAveragePool": Specimen(
        """(uint8[1,2,6,6] x, float a, uint8 z) => (uint8[1,2,1,1] y)
        { y = com.microsoft.QLinearGlobalAveragePool(x, a, z, a, z) }"""
    ),
    "com.microsoft.NhwcMaxPool": Specimen(
        "(uint8[1,6,6,2] x) => (uint8 y) { y = com.microsoft.NhwcMaxPool<kernel_shape = [2, 2]>(x) }"
    ),
    "com.microsoft.MatMulNBits": Specimen(
        f"(float[3,32] x) => (float[3,8] y) {{ y = {_NBITS}(x, w, s) }}",
        weights={"w": ("uint8", (8, 2, 8)), "s": ("float32", (8, 2))},
    ),
    "com.microsoft.MatMulNBits/zero_points": Specimen(
        f"(float[3,32] x) => (float[3,8] y) {{ y = {_NBITS}(x, w, s, z) }}",
        weights={"w": ("uint8", (8, 2, 8)), "s": ("float32", (8, 2)), "z": ("uint8", (8, 1))},
    ),
    "com.microsoft.MatMulNBits/g_idx": Specimen(
        f"(float[3,32] x) => (float[3,8] y) {{ y = {_NBITS}(x, w, s, , g) }}",
        weights={"w": ("uint8", (8, 2, 8)), "s": ("float32", (8, 2)), "g": ("int32", (32,))},
    ),
    "com.microsoft.MatMulBnb4": Specimen(
        """(float[3,32] x) => (float[3,8] y)
        { y = com.microsoft.MatMulBnb4<K = 32, N = 8, block_size = 16, quant_type = 1>(x, w, s) }""",
        weights={"w": ("uint8", (128,)), "s": ("float32", (16,))},
    ),
    "com.microsoft.MatMulFpQ4": Specimen(
        """(float[3,32] x) => (float[3,8] y) <int64[2] n = {32, 8}>
        { y = com.microsoft.MatMulFpQ4<blk_quant_type = 0>(x, w, n) }""",
        weights={"w": ("uint8", (160,))},
    ),
    "com.microsoft.QMoE": Specimen(
        """(float[6,32] x, float[6,4] r) => (float[6,32] y)
        { y = com.microsoft.QMoE<k = 2, activation_type = "silu", expert_weight_bits = 4>(x, r, a, s, , b, t) }""",
        weights={
            "a": ("uint8", (4, 32, 16)),
            "s": ("float32", (4, 32)),
            "b": ("uint8", (4, 32, 16)),
            "t": ("float32", (4, 32)),
        },
    ),
}
