"""Operators that move, repeat, slice and pad data without computing."""

from tests.zoo.specimen import Specimen

__all__ = ["SPECIMENS"]

SPECIMENS: dict[str, Specimen] = {
    "Reshape": Specimen("(float[4,6] x, float[3,8] t) => (float[3,8] y) { s = Shape(t) y = Reshape(x, s) }"),
    "Expand": Specimen("(float[2,1,3] x, float[2,5,3] t) => (float[2,5,3] y) { s = Shape(t) y = Expand(x, s) }"),
    "ConstantOfShape": Specimen("(int64[2] s) => (float[n,m] y) { y = ConstantOfShape(s) }"),
    "Flatten": Specimen("(float[2,3,4] x) => (float[2,12] y) { y = Flatten(x) }"),
    "Squeeze": Specimen("(float[2,1,4] x) => (float[2,4] y) <int64[1] a = {1}> { y = Squeeze(x, a) }"),
    "Squeeze/fed": Specimen("(float[2,1,4] x, int64[1] a) => (float y) { y = Squeeze(x, a) }"),
    "Unsqueeze": Specimen("(float[2,4] x) => (float[2,1,4] y) <int64[1] a = {1}> { y = Unsqueeze(x, a) }"),
    "Unsqueeze/fed": Specimen("(float[2,3] x, float[1,3] t) => (float y) { a = Shape(t) y = Unsqueeze(x, a) }"),
    "com.microsoft.ExpandDims": Specimen("(float[2,4] x, int32 a) => (float y) { y = com.microsoft.ExpandDims(x, a) }"),
    "Transpose": Specimen("(float[2,3,4] x) => (float[4,2,3] y) { y = Transpose<perm = [2, 0, 1]>(x) }"),
    "Concat": Specimen("(float[2,3] a, float[2,4] b) => (float[2,7] y) { y = Concat<axis = 1>(a, b) }"),
    "Slice": Specimen("(float[8,9] x, int64[2] a, int64[2] b) => (float[n,m] y) { y = Slice(x, a, b) }"),
    "Slice/back": Specimen(
        """(float[8,9] x, int64[1] b) => (float[8,n] y)
        <int64[1] a = {-1}, int64[1] d = {1}, int64[1] s = {-2}> { y = Slice(x, a, b, d, s) }""",
    ),
    "DynamicSlice": Specimen(
        "(float[8,9] x, int64[2] a, int64[2] b) => (float[n,m] y) { y = DynamicSlice(x, a, b) }", opset=9
    ),
    "Split": Specimen("(float[9,4] x) => (float[n,4] a, float[m,4] b) <int64[2] s = {2, 7}> { a, b = Split(x, s) }"),
    "Split/even": Specimen("(float[9,4] x) => (float[n,4] a, float[m,4] b) { a, b = Split<num_outputs: int = 2>(x) }"),
    "Tile": Specimen("(float[2,3] x, int64[2] r) => (float[n,m] y) { y = Tile(x, r) }"),
    "Pad": Specimen('(float[2,3] x, int64[4] p) => (float[n,m] y) { y = Pad<mode = "reflect">(x, p) }'),
    "Pad/axes": Specimen(
        "(float[2,3,4] x) => (float[2,n,4] y) <int64[2] p = {1, 2}, int64[1] a = {1}> { y = Pad(x, p, , a) }",
    ),
    "Pad/unknown_axes": Specimen(
        "(float[2,3,4] x, int64[1] a) => (float y) <int64[2] p = {1, 2}> { y = Pad(x, p, , a) }",
    ),
    "com.microsoft.Pad": Specimen("(float[2,3] x, int64[4] p) => (float[n,m] y) { y = com.microsoft.Pad(x, p) }"),
    "Crop": Specimen("(float[1,2,5,5] x) => (float[1,2,3,3] y) { y = Crop<border = [1, 1, 1, 1]>(x) }", opset=7),
    "Trilu": Specimen("(float[4,4] x, int64 k) => (float[4,4] y) { y = Trilu(x, k) }"),
    "com.microsoft.Trilu": Specimen("(float[4,4] x, int64 k) => (float[4,4] y) { y = com.microsoft.Trilu(x, k) }"),
    "com.microsoft.UnfoldTensor": Specimen(
        "(float[2,9] x) => (float[2,4,3] y) { y = com.microsoft.UnfoldTensor<size = 3, step = 2>(x) }"
    ),
    "ReverseSequence": Specimen("(float[5,3] x, int64[3] l) => (float[5,3] y) { y = ReverseSequence(x, l) }"),
    "DepthToSpace": Specimen("(float[1,8,2,3] x) => (float[1,2,4,6] y) { y = DepthToSpace<blocksize = 2>(x) }"),
    "SpaceToDepth": Specimen("(float[1,2,4,6] x) => (float[1,8,2,3] y) { y = SpaceToDepth<blocksize = 2>(x) }"),
    "Col2Im": Specimen(
        """(float[1,5,5] x, float[5,5] t) => (float y) <int64[2] b = {1, 5}>
        { i = Shape(t) y = Col2Im(x, i, b) }""",
    ),
    "Col2Im/constants": Specimen(
        "(float[1,5,5] x) => (float[1,1,5,5] y) <int64[2] i = {5, 5}, int64[2] b = {1, 5}> { y = Col2Im(x, i, b) }",
    ),
}
