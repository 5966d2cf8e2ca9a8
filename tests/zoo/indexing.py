"""Operators that gather, scatter, search and count, with indices, sizes and shapes as model inputs where possible."""

from tests.zoo.specimen import Specimen

__all__ = ["SPECIMENS"]

SPECIMENS: dict[str, Specimen] = {
    "Gather": Specimen("(float[9,5] x, int64[3,2] i) => (float[3,2,5] y) { y = Gather(x, i) }"),
    "Gather/one_row": Specimen("(float[1,5] x, int64[40] i) => (float[40,5] y) { y = Gather(x, i) }"),
    "Gather/axis": Specimen("(float[2,5] x, int32[3] i) => (float[2,3] y) { y = Gather<axis: int = -1>(x, i) }"),
    "GatherElements": Specimen("(float[3,4] x, int64[2,4] i) => (float[2,4] y) { y = GatherElements(x, i) }"),
    "GatherND": Specimen(
        "(float[2,3,4] x, int64[2,5,1] i) => (float[2,5,4] y) { y = GatherND<batch_dims: int = 1>(x, i) }"
    ),
    "com.microsoft.GatherND": Specimen(
        "(float[2,3,4] x, int64[5,2] i) => (float[5,4] y) { y = com.microsoft.GatherND(x, i) }"
    ),
    "com.microsoft.GatherBlockQuantized": Specimen(
        """(int64[3] i) => (float[3,32] y)
        { y = com.microsoft.GatherBlockQuantized<block_size = 16, quantize_axis = 1>(w, i, s, z) }""",
        weights={"w": ("uint4", (9, 32)), "s": ("float32", (9, 2)), "z": ("uint4", (9, 2))},
    ),
    "Scatter": Specimen(
        "(float[3,3] x, int64[2,3] i, float[2,3] u) => (float[3,3] y) { y = Scatter(x, i, u) }", opset=9
    ),
    "ScatterND": Specimen("(float[4,5] x, int64[3,1] i, float[3,5] u) => (float[4,5] y) { y = ScatterND(x, i, u) }"),
    "ScatterElements": Specimen(
        "(float[3,3] x, int64[2,3] i, float[2,3] u) => (float[3,3] y) { y = ScatterElements(x, i, u) }"
    ),
    "TensorScatter": Specimen(
        "(float[2,3,8,4] p, float[2,3,2,4] u, int64[2] i) => (float[2,3,8,4] y) { y = TensorScatter(p, u, i) }",
        opset=24,
    ),
    "TopK": Specimen("(float[4,50] x, int64[1] k) => (float[4,n] v, int64[4,n] i) { v, i = TopK(x, k) }"),
    "OneHot": Specimen("(int64[6] i, int64 d, float[2] v) => (float[6,n] y) { y = OneHot(i, d, v) }"),
    "NonMaxSuppression": Specimen(
        """(float[1,60,4] b, float[1,2,60] s) => (int64[n,3] y)
        <int64 m = {5}, float t = {0.5}, float u = {0.1}> { y = NonMaxSuppression(b, s, m, t, u) }"""
    ),
    "NonMaxSuppression/fed": Specimen(
        """(float[1,60,4] b, float[1,2,60] s, int64 m, float t, float u) => (int64[n,3] y)
        { y = NonMaxSuppression(b, s, m, t, u) }"""
    ),
    "NonZero": Specimen("(float[3,4] x) => (int64[2,n] y) { y = NonZero(x) }"),
    "Compress": Specimen("(float[6,2] x, bool[6] c) => (float[n,2] y) { y = Compress<axis = 0>(x, c) }"),
    "Unique": Specimen("(float[20] x) => (float[n] y) { y = Unique(x) }"),
    "Unique/all_outputs": Specimen(
        "(int64[4,5] x) => (int64[n,5] y, int64[n] i, int64[4] r, int64[n] c) { y, i, r, c = Unique<axis = 0>(x) }"
    ),
    "com.microsoft.Unique": Specimen(
        "(float[20] x) => (float[n] y, int64[20] i, int64[n] c) { y, i, c = com.microsoft.Unique(x) }"
    ),
    "ArgMax": Specimen("(float[3,4] x) => (int64[3,1] y) { y = ArgMax<axis = 1>(x) }"),
    "ArgMin": Specimen("(float[3,4] x) => (int64[4] y) { y = ArgMin<keepdims = 0>(x) }"),
    "CumSum": Specimen("(float[3,4] x, int64 a) => (float[3,4] y) { y = CumSum(x, a) }"),
    "CumProd": Specimen("(float[3,4] x, int64 a) => (float[3,4] y) { y = CumProd(x, a) }", opset=26),
    "Range": Specimen("(int64 a, int64 b, int64 s) => (int64[n] y) { y = Range(a, b, s) }"),
    "Range/float": Specimen("(float a, float b, float s) => (float[n] y) { y = Range(a, b, s) }"),
    "com.microsoft.Range": Specimen("(int64 a, int64 b, int64 s) => (int64[n] y) { y = com.microsoft.Range(a, b, s) }"),
    "EyeLike": Specimen("(float[3,4] x) => (float[3,4] y) { y = EyeLike(x) }"),
    "Size": Specimen("(float[n,4] x) => (int64 y) { c = NonZero(x) y = Size(c) }"),
    "Shape": Specimen("(float[n,4] x) => (int64[2] y) { c = NonZero(x) y = Shape(c) }"),
    "Det": Specimen("(float[2,3,3] x) => (float[2] y) { y = Det(x) }"),
    "TfIdfVectorizer": Specimen(
        """(int32[2,12] x) => (float[2,7] y)
        { y = TfIdfVectorizer<mode = "TF", min_gram_length = 2, max_gram_length = 2, max_skip_count = 0,
            ngram_counts = [0, 4], ngram_indexes = [0, 1, 2, 3, 4, 5, 6],
            pool_int64s = [2, 3, 5, 4, 5, 6, 7, 8, 6, 7]>(x) }""",
    ),
    "RandomNormal": Specimen("() => (float[2,3] y) { y = RandomNormal<shape = [2, 3]>() }"),
    "RandomUniform": Specimen("() => (float[2,3] y) { y = RandomUniform<shape = [2, 3]>() }"),
    "RandomNormalLike": Specimen("(float[2,3] x) => (float[2,3] y) { y = RandomNormalLike(x) }"),
    "RandomUniformLike": Specimen("(float[2,3] x) => (float[2,3] y) { y = RandomUniformLike(x) }"),
    "Multinomial": Specimen("(float[2,9] x) => (int32[2,4] y) { y = Multinomial<sample_size = 4>(x) }"),
    "com.microsoft.NGramRepeatBlock": Specimen(
        """(int64[2,9] i, float[2,7] s) => (float[2,7] y)
        { y = com.microsoft.NGramRepeatBlock<ngram_size = 3>(i, s) }"""
    ),
    "com.microsoft.BifurcationDetector": Specimen(
        """(int64[5] s, int64[3] c, int64[1] p, int64[5] q) => (int64[n] t, int64 i)
        { t, i = com.microsoft.BifurcationDetector(s, c, p, q) }"""
    ),
    "com.microsoft.NGramHashMapping": Specimen(
        """(int64[2,9] i, int64[2] m, int64[2] v) => (int64[2,9,2] h)
        { h = com.microsoft.NGramHashMapping<pad_id = 0, max_ngram_size = 2, n_head_per_ngram = 2>(i, m, v) }"""
    ),
    "com.microsoft.VarlenNGramHashMapping": Specimen(
        """(int64[9] i, int64[2] m, int64[2] v, int32[3] c) => (int64[9,2] h)
        { h = com.microsoft.VarlenNGramHashMapping
            <pad_id = 0, max_ngram_size = 2, n_head_per_ngram = 2>(i, m, v, c) }"""
    ),
    "com.microsoft.DynamicTimeWarping": Specimen(
        "(float[5,7] x) => (int32[2,n] y) { y = com.microsoft.DynamicTimeWarping(x) }"
    ),
    "com.microsoft.WordConvEmbedding": Specimen(
        """(int32[2,3,5] x, float[4,1,2,6] w, float[4] b, float[9,6] c) => (float[2,3,4] y)
        { y = com.microsoft.WordConvEmbedding
            <embedding_size = 4, conv_window_size = 2, char_embedding_size = 6>(x, w, b, c) }"""
    ),
}
