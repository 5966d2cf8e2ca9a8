"""Operators of many kinds, each in a tiny real model: it reads, lowers, decomposes, and every brick of it runs."""

from collections.abc import Callable

import pytest
from onnx import ModelProto

from costmodel.graph import LayerGraph

# What the operator is: (opset, model). Indices, shapes and sizes arrive as inputs wherever they may, because that
# is what a layer cut out of its model sees.
ZOO: dict[str, tuple[int, str]] = {
    "Gather": (17, "(float[9,5] x, int64[3,2] i) => (float[3,2,5] y) { y = Gather(x, i) }"),
    "Gather_of_one_row": (17, "(float[1,5] x, int64[40] i) => (float[40,5] y) { y = Gather(x, i) }"),
    "Gather_axis": (17, "(float[2,5] x, int32[3] i) => (float[2,3] y) { y = Gather<axis: int = -1>(x, i) }"),
    "GatherElements": (17, "(float[3,4] x, int64[2,4] i) => (float[2,4] y) { y = GatherElements(x, i) }"),
    "GatherND": (17, "(float[2,3,4] x, int64[2,5,1] i) => (float[2,5,4] y) {y = GatherND<batch_dims: int = 1>(x, i)}"),
    "ScatterND": (17, "(float[4,5] x, int64[3,1] i, float[3,5] u) => (float[4,5] y) { y = ScatterND(x, i, u) }"),
    "ScatterElements": (
        17,
        "(float[3,3] x, int64[2,3] i, float[2,3] u) => (float[3,3] y) {y = ScatterElements(x,i,u)}",
    ),
    "Where": (17, "(bool[4,5] c, float[4,5] a, float[5] b) => (float[4,5] y) { y = Where(c, a, b) }"),
    "TopK": (17, "(float[4,50] x, int64[1] k) => (float[4,n] v, int64[4,n] i) { v, i = TopK(x, k) }"),
    "OneHot": (17, "(int64[6] i, int64 d, float[2] v) => (float[6,n] y) { y = OneHot(i, d, v) }"),
    "NonMaxSuppression": (
        17,
        """(float[1,60,4] b, float[1,2,60] s) => (int64[n,3] y)
        <int64 m = {5}, float t = {0.5}, float u = {0.1}> { y = NonMaxSuppression(b, s, m, t, u) }""",
    ),
    "Resize_scales": (
        17,
        "(float[1,3,7,9] x) => (float[1,3,n,m] y) <float[4] s = {1., 1., 2.4, 1.7}> {y = Resize(x,,s)}",
    ),
    "Resize_sizes": (17, "(float[1,3,8,8] x) => (float[1,3,n,m] y) <int64[4] s = {1, 3, 5, 20}> { y = Resize(x,,,s) }"),
    "Resize_axes": (
        18,
        """(float[1,3,8,8] x) => (float[1,3,n,m] y)
        <float[2] s = {2., 3.}> { y = Resize<mode = "linear", axes = [2, 3]>(x,,s) }""",
    ),
    "Upsample": (9, "(float[1,2,4,4] x) => (float[1,2,n,m] y) <float[4] s = {1., 1., 2., 2.}> { y = Upsample(x, s) }"),
    "Pad": (17, '(float[2,3] x, int64[4] p) => (float[n,m] y) { y = Pad<mode = "reflect">(x, p) }'),
    "Pad_axes": (
        18,
        "(float[2,3,4] x) => (float[2,n,4] y) <int64[2] p = {1, 2}, int64[1] a = {1}> { y = Pad(x,p,,a) }",
    ),
    "Pad_unknown_axes": (
        19,
        "(float[2,3,4] x, int64[1] a) => (float y) <int64[2] p = {1, 2}> { y = Pad(x, p, , a) }",
    ),
    "Dropout_ratio": (17, "(float[9] x, float r) => (float[9] y) { y = Dropout(x, r) }"),
    "STFT": (
        17,
        "(float[1,64,1] x, int64 s, float[16] w) => (float y) <int64 n = {16}> { y = STFT(x, s, w, n) }",
    ),
    "Attention_of_the_runtime": (
        17,
        """(int32[2,8] ids, int32[2,8] segments, int32[2,8] mask, float[9,16] t, float[8,16] p, float[1,16] s,
        float[16] g, float[16] b, float[16,48] w, float[48] v) => (float[2,8,16] y)
        { e, m = com.microsoft.EmbedLayerNormalization(ids, segments, t, p, s, g, b, mask)
          y = com.microsoft.Attention<num_heads = 4>(e, w, v, m) }""",
    ),
    "Slice": (17, "(float[8,9] x, int64[2] a, int64[2] b) => (float[n,m] y) { y = Slice(x, a, b) }"),
    "Slice_back": (
        17,
        """(float[8,9] x, int64[1] b) => (float[8,n] y)
        <int64[1] a = {-1}, int64[1] d = {1}, int64[1] s = {-2}> { y = Slice(x, a, b, d, s) }""",
    ),
    "Split": (17, "(float[9,4] x) => (float[n,4] a, float[m,4] b) <int64[2] s = {2, 7}> { a, b = Split(x, s) }"),
    "Split_even": (18, "(float[9,4] x) => (float[n,4] a, float[m,4] b) { a, b = Split<num_outputs: int = 2>(x) }"),
    "Tile": (17, "(float[2,3] x, int64[2] r) => (float[n,m] y) { y = Tile(x, r) }"),
    "Expand": (17, "(float[2,1,3] x, float[2,5,3] t) => (float[2,5,3] y) { s = Shape(t) y = Expand(x, s) }"),
    "Range": (17, "(int64 a, int64 b, int64 s) => (int64[n] y) { y = Range(a, b, s) }"),
    "ConstantOfShape": (17, "(int64[2] s) => (float[n,m] y) { y = ConstantOfShape(s) }"),
    "Reshape": (17, "(float[4,6] x, float[3,8] t) => (float[3,8] y) { s = Shape(t) y = Reshape(x, s) }"),
    "LSTM": (
        17,
        """(float[5,2,8] x, float[1,24,8] w, float[1,24,6] r, float[1,48] b, int32[2] l) => (float[5,1,2,6] y)
        { y = LSTM<hidden_size = 6>(x, w, r, b, l) }""",
    ),
    "GRU": (
        17,
        """(float[5,2,8] x, float[2,18,8] w, float[2,18,6] r) => (float[5,2,2,6] y)
        { y = GRU<hidden_size = 6, direction = "bidirectional">(x, w, r) }""",
    ),
    "ConvTranspose": (
        17,
        """(float[1,4,6,6] x, float[4,3,3,3] w) => (float[1,3,n,m] y)
        { y = ConvTranspose<strides = [2, 2], auto_pad = "SAME_UPPER">(x, w) }""",
    ),
    "Conv1d": (17, "(float[1,4,20] x, float[8,4,3] w) => (float[1,8,18] y) { y = Conv(x, w) }"),
    "Conv3d": (17, "(float[1,2,5,6,7] x, float[4,2,3,3,3] w) => (float[1,4,3,4,5] y) { y = Conv(x, w) }"),
    "Einsum": (
        17,
        '(float[2,3,4] a, float[2,4,5] b) => (float[2,3,5] y) { y = Einsum<equation = "bij,bjk->bik">(a,b) }',
    ),
    "GridSample": (20, "(float[1,2,5,5] x, float[1,4,4,2] g) => (float[1,2,4,4] y) { y = GridSample(x, g) }"),
    "RoiAlign": (
        17,
        """(float[2,3,9,9] x, float[4,4] r, int64[4] b) => (float[4,3,2,2] y)
        { y = RoiAlign<output_height = 2, output_width = 2>(x, r, b) }""",
    ),
    "ReverseSequence": (17, "(float[5,3] x, int64[3] l) => (float[5,3] y) { y = ReverseSequence(x, l) }"),
    "MaxUnpool": (
        17,
        """(float[1,1,4,4] x) => (float[1,1,4,4] y)
        { p, i = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(x)
          y = MaxUnpool<kernel_shape = [2, 2], strides = [2, 2]>(p, i) }""",
    ),
    "BatchNormalization": (
        17,
        """(float[2,3,4] x, float[3] a, float[3] b, float[3] m, float[3] v) => (float[2,3,4] y)
        { y = BatchNormalization(x, a, b, m, v) }""",
    ),
    "LayerNormalization": (
        17,
        "(float[2,8] x, float[8] s, float[8] b) => (float[2,8] y) {y = LayerNormalization(x,s,b)}",
    ),
    "LRN": (17, "(float[1,6,4,4] x) => (float[1,6,4,4] y) { y = LRN<size = 3>(x) }"),
    "CumSum": (17, "(float[3,4] x, int64 a) => (float[3,4] y) { y = CumSum(x, a) }"),
    "NonZero": (17, "(float[3,4] x) => (int64[2,n] y) { y = NonZero(x) }"),
    "Compress": (17, "(float[6,2] x, bool[6] c) => (float[n,2] y) { y = Compress<axis = 0>(x, c) }"),
    "Unique": (17, "(float[20] x) => (float[n] y) { y = Unique(x) }"),
    "Div_of_integers": (17, "(int64[40] a, int64[40] b) => (int64[40] y) { y = Div(a, b) }"),
    "Mod_of_integers": (17, "(int32[40] a, int32[40] b) => (int32[40] y) { y = Mod(a, b) }"),
    "Pow_Log_Sqrt": (
        17,
        "(float[9] x, float[9] p) => (float[9] y) { a = Pow(x, p) b = Log(a) c = Sqrt(x) y = Add(b, c) }",
    ),
    "ArgMax": (17, "(float[3,4] x) => (int64[3,1] y) { y = ArgMax<axis = 1>(x) }"),
    "ReduceMean_axes": (18, "(float[3,4,5] x) => (float[3,1,1] y) <int64[2] a = {1, 2}> { y = ReduceMean(x, a) }"),
    "DepthToSpace": (17, "(float[1,8,2,3] x) => (float[1,2,4,6] y) { y = DepthToSpace<blocksize = 2>(x) }"),
    "InstanceNormalization": (
        17,
        "(float[1,3,9] x, float[3] s, float[3] b) => (float[1,3,9] y) {y = InstanceNormalization(x,s,b)}",
    ),
    "QLinearConv": (
        17,
        """(uint8[1,3,8,8] x, int8[4,3,3,3] w) => (uint8[1,4,6,6] y)
        <float a = {0.1}, uint8 z = {3}, float b = {0.2}, int8 v = {0}, float c = {0.3}>
        { y = QLinearConv(x, a, z, w, b, v, c, z) }""",
    ),
    "QLinearMatMul": (
        17,
        """(uint8[4,6] x, uint8[6,5] w, float a, uint8 z) => (uint8[4,5] y)
        { y = QLinearMatMul(x, a, z, w, a, z, a, z) }""",
    ),
    "DynamicQuantizeLinear": (
        17,
        """(float[4,6] x, uint8[6,5] w) => (int32[4,5] y)
        { q, s, z = DynamicQuantizeLinear(x) y = MatMulInteger(q, w, z) }""",
    ),
    "QuantizeDequantize": (
        17,
        """(float[4,6] x, float s, int8 z) => (float[4,6] y)
        { q = QuantizeLinear(x, s, z) y = DequantizeLinear(q, s, z) }""",
    ),
    "Cast_float16": (17, "(float[4,6] x) => (float16[4,6] y) { a = Cast<to = 10>(x) y = Add(a, a) }"),
    "Dropout_Identity": (17, "(float[4] x) => (float[4] y) { a = Dropout(x) b = Identity(a) y = Relu(b) }"),
    "If": (
        17,
        """(bool c, float[4,6] x, float[6,6] w) => (float[4,6] y)
        { y = If (c) <then_branch = g1 () => (float[4,6] a) { a = MatMul(x, w) },
                      else_branch = g2 () => (float[4,6] b) { b = Relu(x) }> }""",
    ),
    "Loop": (
        17,
        """(int64 n, float[3] x, float[3] k) => (float[3] y, float[m,3] z)
        <bool c = {1}>
        { r = Relu(k)
          y, z = Loop (n, c, x) <body = g (int64 i, bool d, float[3] s) => (bool e, float[3] t, float[3] u)
                                 { e = Identity(d) t = Add(s, r) u = Neg(t) }> }""",
    ),
    "Scan": (
        17,
        """(float[3] x, float[5,3] k) => (float[3] y, float[5,3] z)
        { y, z = Scan <num_scan_inputs = 1, body = g (float[3] s, float[3] i) => (float[3] t, float[3] u)
                       { t = Add(s, i) u = Mul(t, x) }> (x, k) }""",
    ),
}


@pytest.mark.parametrize("kind", ZOO)
def test_every_brick_of_an_operator_runs(
    kind: str, parse: Callable[..., ModelProto], lower: Callable[..., LayerGraph], run_bricks: Callable[..., None]
) -> None:
    """Whatever the operator, its layer runs cut out of its model, on made-up weights, indices and sizes."""
    opset, text = ZOO[kind]
    for level in ("none", "all"):
        graph = lower(parse(text, opset=opset, domains=("com.microsoft",)), level)
        assert graph.layers
        run_bricks(graph, 1, 2)
