"""Reductions, matrix products and normalisations."""

from tests.zoo.specimen import Specimen

__all__ = ["SPECIMENS"]

_REDUCTIONS = [
    "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd",
    "ReduceSum", "ReduceSumSquare",
]  # fmt: skip

SPECIMENS: dict[str, Specimen] = {
    **{
        name: Specimen(f"(float[3,4,5] x) => (float[3,1,1] y) <int64[2] a = {{1, 2}}> {{ y = {name}(x, a) }}")
        for name in _REDUCTIONS
    },
    "ReduceSum/fed_axes": Specimen("(float[3,4,5] x, int64[1] a) => (float y) { y = ReduceSum(x, a) }"),
    "ReduceMax/attribute": Specimen("(float[3,4] x) => (float[3,1] y) { y = ReduceMax<axes = [1]>(x) }", opset=13),
    **{
        name: Specimen(f"(float[3,4] x) => (float[3,4] y) {{ y = {name}(x) }}")
        for name in ("Softmax", "LogSoftmax", "Hardmax", "LpNormalization")
    },
    "MeanVarianceNormalization": Specimen("(float[2,3,4,4] x) => (float y) { y = MeanVarianceNormalization(x) }"),
    "MeanVarianceNormalization/old": Specimen(
        "(float[2,3,4,4] x) => (float y) { y = MeanVarianceNormalization(x) }", opset=8
    ),
    "LRN": Specimen("(float[1,6,4,4] x) => (float[1,6,4,4] y) { y = LRN<size = 3>(x) }"),
    "BatchNormalization": Specimen(
        """(float[2,3,4] x, float[3] a, float[3] b, float[3] m, float[3] v) => (float[2,3,4] y)
        { y = BatchNormalization(x, a, b, m, v) }""",
    ),
    "LayerNormalization": Specimen(
        "(float[2,8] x, float[8] s, float[8] b) => (float[2,8] y) { y = LayerNormalization(x, s, b) }"
    ),
    "LayerNormalization/all_outputs": Specimen(
        """(float[2,8] x, float[8] s) => (float[2,8] y, float[2,1] m, float[2,1] d)
        { y, m, d = LayerNormalization(x, s) }"""
    ),
    "RMSNormalization": Specimen(
        "(float[2,8] x, float[8] s) => (float[2,8] y) { y = RMSNormalization(x, s) }", opset=23
    ),
    "SimplifiedLayerNormalization": Specimen(
        "(float[2,8] x, float[8] s) => (float[2,8] y) { y = SimplifiedLayerNormalization(x, s) }"
    ),
    "InstanceNormalization": Specimen(
        "(float[1,3,9] x, float[3] s, float[3] b) => (float[1,3,9] y) { y = InstanceNormalization(x, s, b) }",
    ),
    "com.microsoft.GatedRMSNorm": Specimen(
        "(float[2,8] x, float[8] s, float[2,8] g) => (float[2,8] y) { y = com.microsoft.GatedRMSNorm(x, s, g) }"
    ),
    "com.microsoft.BranchwiseRMSNorm": Specimen(
        "(float[2,3,8] x, float[8] s) => (float[2,3,8] y) { y = com.microsoft.BranchwiseRMSNorm(x, s) }"
    ),
    "com.microsoft.HyperConnectionPreMix": Specimen(
        "(float[2,3,8] x, float[2,3] p) => (float[2,8] y) { y = com.microsoft.HyperConnectionPreMix(x, p) }"
    ),
    "com.microsoft.HyperConnectionPostMix": Specimen(
        """(float[2,3,8] x, float[2,8] b, float[2,3] p) => (float[2,3,8] y)
        { y = com.microsoft.HyperConnectionPostMix(x, b, p) }"""
    ),
    "com.microsoft.SkipLayerNormalization": Specimen(
        """(float[2,3,8] x, float[2,3,8] k, float[8] g, float[8] b, float[8] c) => (float[2,3,8] y, float[2,3,8] s)
        { y, , , s = com.microsoft.SkipLayerNormalization(x, k, g, b, c) }"""
    ),
    "com.microsoft.SkipSimplifiedLayerNormalization": Specimen(
        """(float[2,3,8] x, float[2,3,8] k, float[8] g) => (float[2,3,8] y)
        { y = com.microsoft.SkipSimplifiedLayerNormalization(x, k, g) }"""
    ),
    "com.microsoft.EngramGate": Specimen(
        """(float[2,3,2,8] k, float[2,3,2,8] q, float[2,3,8] v, float[2,8] s, float[2,8] t) => (float[2,3,2,8] y)
        { y = com.microsoft.EngramGate(k, q, v, s, t) }"""
    ),
    "MatMul": Specimen("(float[2,3,4] a, float[4,5] b) => (float[2,3,5] y) { y = MatMul(a, b) }"),
    "Gemm": Specimen("(float[3,4] a, float[5,4] b, float[5] c) => (float[3,5] y) { y = Gemm<transB = 1>(a, b, c) }"),
    "Einsum": Specimen(
        '(float[2,3,4] a, float[2,4,5] b) => (float[2,3,5] y) { y = Einsum<equation = "bij,bjk->bik">(a, b) }',
    ),
    "com.microsoft.FusedMatMul": Specimen(
        """(float[2,4,3] a, float[2,4,5] b) => (float[2,3,5] y)
        { y = com.microsoft.FusedMatMul<transA = 1, alpha = 0.5>(a, b) }"""
    ),
    "com.microsoft.TransposeMatMul": Specimen(
        "(float[4,3] a, float[4,5] b) => (float[3,5] y) { y = com.microsoft.TransposeMatMul<transA = 1>(a, b) }"
    ),
    "com.microsoft.FusedGemm": Specimen(
        """(float[3,4] a, float[4,5] b, float[5] c) => (float[3,5] y)
        { y = com.microsoft.FusedGemm<activation = "Relu">(a, b, c) }"""
    ),
    "com.microsoft.FusedGemm/by_the_runtime": Specimen(
        "(float[3,4] a, float[4,5] b, float[5] c) => (float[3,5] y) { g = Gemm(a, b, c) y = LeakyRelu(g) }"
    ),
    "com.microsoft.CDist": Specimen(
        """(float[3,4] a, float[5,4] b) => (float[3,5] y)
        { y = com.microsoft.CDist<metric = "euclidean">(a, b) }"""
    ),
    "com.microsoft.Inverse": Specimen("(float[2,3,3] x) => (float[2,3,3] y) { y = com.microsoft.Inverse(x) }"),
    "com.microsoft.MoE": Specimen(
        """(float[6,8] x, float[6,4] r, float[4,16,8] a, float[4,8,16] b) => (float[6,8] y)
        { y = com.microsoft.MoE<k = 2, activation_type = "gelu">(x, r, a, , b) }"""
    ),
    "DFT": Specimen("(float[1,16,1] x) => (float[1,16,2] y) { y = DFT(x) }"),
    "DFT/length_axis": Specimen("(float[1,16,1] x, int64 n, int64 a) => (float y) { y = DFT(x, n, a) }"),
    "STFT": Specimen(
        "(float[1,64,1] x, int64 s, float[16] w) => (float y) <int64 n = {16}> { y = STFT(x, s, w, n) }",
    ),
    "HannWindow": Specimen("(int64 n) => (float[m] y) { y = HannWindow(n) }"),
    "HammingWindow": Specimen("(int64 n) => (float[m] y) { y = HammingWindow(n) }"),
    "BlackmanWindow": Specimen("(int64 n) => (float[m] y) { y = BlackmanWindow(n) }"),
    "MelWeightMatrix": Specimen(
        """(float l) => (float[9,8] y) <int64 b = {8}, int64 d = {16}, int64 r = {8192}, float u = {4096.0}>
        { y = MelWeightMatrix(b, d, r, l, u) }"""
    ),
    "MelWeightMatrix/fed": Specimen(
        "(int64 b, int64 d, int64 r, float l, float u) => (float y) { y = MelWeightMatrix(b, d, r, l, u) }"
    ),
}
