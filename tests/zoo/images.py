"""Convolutions, pools and resizes, including those that the runtime executes blocked (NCHWc)."""

from tests.zoo.specimen import Specimen

__all__ = ["SPECIMENS"]

_FLOAT = "float32"

SPECIMENS: dict[str, Specimen] = {
    "Conv": Specimen("(float[1,4,8,8] x, float[8,2,3,3] w) => (float[1,8,6,6] y) { y = Conv<group = 2>(x, w) }"),
    "Conv/1d": Specimen("(float[1,4,20] x, float[8,4,3] w) => (float[1,8,18] y) { y = Conv(x, w) }"),
    "Conv/3d": Specimen("(float[1,2,5,6,7] x, float[4,2,3,3,3] w) => (float[1,4,3,4,5] y) { y = Conv(x, w) }"),
    "com.microsoft.FusedConv": Specimen(
        """(float[1,3,8,8] x, float[4,3,3,3] w, float[4] b, float[1,4,6,6] z) => (float[1,4,6,6] y)
        { y = com.microsoft.FusedConv<activation = "Relu">(x, w, b, z) }"""
    ),
    "ConvTranspose": Specimen(
        """(float[1,4,6,6] x, float[4,3,3,3] w) => (float[1,3,n,m] y)
        { y = ConvTranspose<strides = [2, 2], auto_pad = "SAME_UPPER">(x, w) }""",
    ),
    "com.microsoft.ConvTransposeWithDynamicPads": Specimen(
        """(float[1,4,6,6] x, float[4,3,3,3] w, int64[4] p) => (float y)
        { y = com.microsoft.ConvTransposeWithDynamicPads(x, w, p) }"""
    ),
    "DeformConv": Specimen(
        """(float[1,3,5,5] x, float[4,3,2,2] w, float[1,8,4,4] o, float[4] b, float[1,4,4,4] m) => (float[1,4,4,4] y)
        { y = DeformConv<kernel_shape = [2, 2]>(x, w, o, b, m) }"""
    ),
    "com.microsoft.CausalConvWithState": Specimen(
        """(float[1,4,9] x, float[4,1,3] w, float[4] b, float[1,4,2] p) => (float[1,4,9] y, float[1,4,2] q)
        { y, q = com.microsoft.CausalConvWithState<activation = "silu">(x, w, b, p) }"""
    ),
    "MaxPool": Specimen("(float[1,2,6,6] x) => (float[1,2,3,3] y) {y = MaxPool<kernel_shape=[2,2], strides=[2,2]>(x)}"),
    "AveragePool": Specimen("(float[1,2,6,6] x) => (float[1,2,5,5] y) { y = AveragePool<kernel_shape=[2,2]>(x) }"),
    "LpPool": Specimen("(float[1,2,6,6] x) => (float[1,2,5,5] y) { y = LpPool<kernel_shape = [2, 2]>(x) }"),
    **{
        name: Specimen(f"(float[1,2,6,6] x) => (float[1,2,1,1] y) {{ y = {name}(x) }}")
        for name in ("GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool")
    },
    "MaxUnpool": Specimen(
        """(float[1,1,4,4] x) => (float[1,1,4,4] y)
        { p, i = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(x)
          y = MaxUnpool<kernel_shape = [2, 2], strides = [2, 2]>(p, i) }""",
    ),
    "MaxUnpool/output_shape": Specimen(
        """(float[1,1,2,2] x, int64[1,1,2,2] i, float[1,1,5,5] t) => (float y)
        { s = Shape(t) y = MaxUnpool<kernel_shape = [2, 2], strides = [2, 2]>(x, i, s) }""",
    ),
    "MaxRoiPool": Specimen(
        "(float[2,3,9,9] x, float[4,5] r) => (float[4,3,2,2] y) { y = MaxRoiPool<pooled_shape = [2, 2]>(x, r) }"
    ),
    "RoiAlign": Specimen(
        """(float[2,3,9,9] x, float[4,4] r, int64[4] b) => (float[4,3,2,2] y)
        { y = RoiAlign<output_height = 2, output_width = 2>(x, r, b) }""",
    ),
    "com.microsoft.CropAndResize": Specimen(
        """(float[2,3,9,9] x, float[4,4] r, int32[4] b) => (float y)
        <int32[2] s = {2, 3}> { y = com.microsoft.CropAndResize(x, r, b, s) }""",
    ),
    "com.microsoft.MaxpoolWithMask": Specimen(
        """(float[1,2,6,6] x, int32[1,2,6,6] m) => (float y)
        { y = com.microsoft.MaxpoolWithMask<kernel_shape = [2, 2]>(x, m) }"""
    ),
    "GridSample": Specimen("(float[1,2,5,5] x, float[1,4,4,2] g) => (float[1,2,4,4] y) { y = GridSample(x, g) }"),
    "com.microsoft.GridSample": Specimen(
        "(float[1,2,5,5] x, float[1,4,4,2] g) => (float[1,2,4,4] y) { y = com.microsoft.GridSample(x, g) }"
    ),
    "AffineGrid": Specimen("(float[1,2,3] t) => (float[1,4,4,2] y) <int64[4] s = {1, 1, 4, 4}> {y = AffineGrid(t, s)}"),
    "AffineGrid/fed": Specimen("(float[1,2,3] t, float[1,1,4,4] u) => (float y) { s = Shape(u) y = AffineGrid(t, s) }"),
    "Resize": Specimen("(float[1,3,8,8] x, float[1,3,16,12] t) => (float y) { s = Shape(t) y = Resize(x, , , s) }"),
    "Resize/scales": Specimen(
        "(float[1,3,7,9] x) => (float[1,3,n,m] y) <float[4] s = {1., 1., 2.4, 1.7}> { y = Resize(x, , s) }",
    ),
    "Resize/sizes": Specimen(
        "(float[1,3,8,8] x) => (float[1,3,n,m] y) <int64[4] s = {1, 3, 5, 20}> { y = Resize(x, , , s) }"
    ),
    "Resize/axes": Specimen(
        """(float[1,3,8,8] x) => (float[1,3,n,m] y)
        <float[2] s = {2., 3.}> { y = Resize<mode = "linear", axes = [2, 3]>(x, , s) }""",
    ),
    "Resize/crop": Specimen(
        """(float[1,1,8,8] x, float[8] r) => (float y) <int64[4] s = {1, 1, 4, 4}>
        { y = Resize<mode = "linear", coordinate_transformation_mode = "tf_crop_and_resize">(x, r, , s) }""",
    ),
    "Upsample": Specimen(
        "(float[1,2,4,4] x) => (float[1,2,n,m] y) <float[4] s = {1., 1., 2., 2.}> { y = Upsample(x, s) }", opset=9
    ),
    "com.microsoft.nchwc.Conv": Specimen(
        "(float[1,3,8,8] x) => (float[1,32,6,6] y) { c = Conv(x, w) y = Relu(c) }",
        weights={"w": (_FLOAT, (32, 3, 3, 3))},
    ),
    **{
        f"com.microsoft.nchwc.{name}": Specimen(
            f"(float[1,32,8,8] x) => (float y) {{ c = Conv(x, w) y = {name}{attributes}(c) }}",
            weights={"w": (_FLOAT, (32, 32, 1, 1))},
        )
        for name, attributes in {
            "MaxPool": "<kernel_shape = [2, 2]>",
            "AveragePool": "<kernel_shape = [2, 2]>",
            "GlobalMaxPool": "",
            "GlobalAveragePool": "",
        }.items()
    },
    **{
        f"com.microsoft.nchwc.{name}": Specimen(
            """(float[1,32,8,8] x) => (float y) <float[4] s = {1., 1., 2., 2.}>
            { c = Conv(x, w) u = Resize<mode = "nearest", coordinate_transformation_mode = "asymmetric",
                                        nearest_mode = "floor">(c, , s) y = Conv(u, w) }""",
            weights={"w": (_FLOAT, (32, 32, 1, 1))},
        )
        for name in ("Upsample", "ReorderInput", "ReorderOutput")
    },
}
