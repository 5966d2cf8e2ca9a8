"""Random instances of operators that gather, scatter, search and count."""

from costmodel.training.corpora.operator_instances.draw import Draw
from costmodel.training.corpora.operator_instances.instance import Drawer, Sweep

__all__ = ["LOOKUPS", "MORE", "SWEEPS"]

_SLOW = 4 << 20


def _embedding(d: Draw) -> str:
    rows = d.size(100, 30000)
    return f"""(int64[{d.n},{d.s}] i | float[{rows},{d.h}] x) => (float y) {{ y = Gather(x, i) }}"""


def _picked(d: Draw) -> str:
    """Returns, as ONNX text, a random Gather of one entry along an axis, such as the first token of each sequence."""
    shape, axis = d.pick((d.tokens, 1), (d.table, 0), (d.table, 1), (d.image, 1), (f"3,{d.n},{d.a},{d.s},{d.e}", 0))
    return f"(float[{shape}] x) => (float y) <int64 i = {{0}}> {{ y = Gather<axis = {axis}>(x, i) }}"


def _picked_fed(d: Draw) -> str:
    return f"(float[{d.tokens}] x, int64[{d.size(1, 256)}] i) => (float y) {{ y = Gather<axis = 1>(x, i) }}"


def _picked_size(d: Draw) -> str:
    return f"(int64[{d.size(2, 6)}] x) => (int64 y) <int64 i = {{1}}> {{ y = Gather<axis = 0>(x, i) }}"


def _elements(d: Draw) -> str:
    return f"""(float[{d.table}] x, int64[{d.rows},{d.size(1, 100)}] i) => (float y)
        {{ y = GatherElements<axis = 1>(x, i) }}"""


def _points(name: str) -> Sweep:
    def draw(d: Draw) -> str:
        return f"""(float[{d.rows + 1},{d.size(2, 64)},{d.h}] x, int64[{d.size(1, 512)},2] i) => (float y)
            {{ y = {name}(x, i) }}"""

    return Sweep((draw,), 6, most_bytes=16 << 20)


def _quantised_table(d: Draw) -> str:
    """Returns, as ONNX text, a random Gather from a table of 4-bit values, of which a byte holds two."""
    rows, width = d.size(100, 8000), d.pick(256, 512, 768)
    return f"""(int64[{d.s}] i | uint8[{rows},{width // 2}] w, float[{rows},{width // 32}] s,
        uint8[{rows},{width // 64}] z) => (float y)
        {{ y = com.microsoft.GatherBlockQuantized<bits = 4, block_size = 32, quantize_axis = 1>(w, i, s, z) }}"""


def _placed(name: str) -> Sweep:
    def draw(d: Draw) -> str:
        few = max(1, d.rows // d.pick(1, 2, 4))
        return f"""(float[{d.rows + 1},{d.cols}] x, int64[{few},{d.cols}] i, float[{few},{d.cols}] u) => (float y)
            {{ y = {name}<axis = 0>(x, i, u) }}"""

    return Sweep((draw,), 6, opset=9 if name == "Scatter" else 21, most_bytes=8 << 20)


def _placed_rows(d: Draw) -> str:
    few = d.size(1, 256)
    return f"""(float[{d.rows + 1},{d.h}] x, int64[{few},1] i, float[{few},{d.h}] u) => (float y)
        {{ y = ScatterND(x, i, u) }}"""


def _cached(d: Draw) -> str:
    new = d.pick(1, 1, 8)
    return f"""(float[{d.n},{d.a},{d.s + 8},{d.e}] p, float[{d.n},{d.a},{new},{d.e}] u, int64[{d.n}] i) => (float y)
        {{ y = TensorScatter(p, u, i) }}"""


def _top(d: Draw) -> str:
    rows, width = d.pick((d.n, d.size(10, 50000)), (d.rows, d.cols))
    return f"""(float[{rows},{width}] x) => (float v, int64 i) <int64[1] k = {{{d.size(1, min(width, 300))}}}>
        {{ v, i = TopK<axis = 1, largest = {d.pick(1, 1, 0)}>(x, k) }}"""


def _boxes(d: Draw) -> str:
    boxes = d.size(10, 2000)
    return f"""(float[1,{boxes},4] b, float[1,{d.pick(1, 2, 20)},{boxes}] s) => (int64 y)
        <int64 m = {{{d.pick(10, 100)}}}, float t = {{0.5}}, float u = {{0.1}}>
        {{ y = NonMaxSuppression(b, s, m, t, u) }}"""


def _unique(name: str) -> Sweep:
    def draw(d: Draw) -> str:
        return f"(float[{d.length}] x) => (float y, int64 i, int64 r, int64 c) {{ y, i, r, c = Unique(x) }}"

    def contributed(d: Draw) -> str:
        return f"(float[{d.length}] x) => (float y, int64 i, int64 c) {{ y, i, c = com.microsoft.Unique(x) }}"

    return Sweep((draw if name == "Unique" else contributed,), 4, most_bytes=1 << 20)


def _counted(d: Draw) -> str:
    return f"""(int32[{d.n},{d.size(4, 1000)}] x) => (float y)
        {{ y = TfIdfVectorizer<mode = "TF", min_gram_length = 2, max_gram_length = 2, max_skip_count = 0,
            ngram_counts = [0, 4], ngram_indexes = [0, 1, 2, 3, 4, 5, 6],
            pool_int64s = [2, 3, 5, 4, 5, 6, 7, 8, 6, 7]>(x) }}"""


def _random(name: str, dtype: str = "float") -> Sweep:
    like = name.endswith("Like")

    def draw(d: Draw) -> str:
        if like:
            return f"(float[{d.table}] x) => (float y) {{ y = {name}(x) }}"
        return f"() => (float y) {{ y = {name}<shape = [{d.table}]>() }}"

    return Sweep((draw,), 4, most_bytes=_SLOW)


def _ngrams(d: Draw) -> str:
    return f"""(int64[{d.n},{d.size(4, 256)}] i, float[{d.n},{d.size(100, 30000)}] s) => (float y)
        {{ y = com.microsoft.NGramRepeatBlock<ngram_size = 3>(i, s) }}"""


def _bifurcation(d: Draw) -> str:
    before, now = d.size(4, 64), d.size(3, 64)
    return f"""(int64[{before}] s, int64[{now}] c, int64[1] p, int64[{before}] q) => (int64 t, int64 i)
        {{ t, i = com.microsoft.BifurcationDetector(s, c, p, q) }}"""


def _hashed(d: Draw) -> str:
    return f"""(int64[{d.n},{d.s}] i) => (int64 h) <int64[2] m = {{3, 5}}, int64[2] v = {{7, 11}}>
        {{ h = com.microsoft.NGramHashMapping<pad_id = 0, max_ngram_size = 2, n_head_per_ngram = 2>(i, m, v) }}"""


def _hashed_of_many(d: Draw) -> str:
    return f"""(int64[{d.s}] i) => (int64 h)
        <int64[2] m = {{3, 5}}, int64[2] v = {{7, 11}}, int32[2] c = {{0, {d.s}}}>
        {{ h = com.microsoft.VarlenNGramHashMapping
            <pad_id = 0, max_ngram_size = 2, n_head_per_ngram = 2>(i, m, v, c) }}"""


def _words(d: Draw) -> str:
    return f"""(int32[{d.n},{d.size(3, 64)},{d.size(5, 16)}] x | float[{d.c},1,3,16] w, float[{d.c}] b, float[100,16] c)
        => (float y) {{ y = com.microsoft.WordConvEmbedding
            <embedding_size = {d.c}, conv_window_size = 3, char_embedding_size = 16>(x, w, b, c) }}"""


def _large_table(d: Draw) -> str:
    """Returns, as ONNX text, a random lookup in a table that may exceed the caches; it is fed to keep files small."""
    width, ids = d.pick(1, 8, 16, 32, 64, d.h), d.size(1, 4096)
    rows = d.size(1000, 24_000_000 // width)
    return f"(float[{rows},{width}] x, int64[{ids}] i) => (float y) {{ y = Gather(x, i) }}"


def _ids_of_batch(d: Draw) -> str:
    """Returns, as ONNX text, a random lookup of the ids of a batch in an embedding table, as recommenders make it."""
    width, ids = d.pick(1, 4, 8, 16, 32, 64, 128), d.size(64, 16384)
    return f"(int64[{ids}] i | float[{d.size(500, 400_000)},{width}] x) => (float y) {{ y = Gather(x, i) }}"


def _dense(d: Draw) -> str:
    """Returns, as ONNX text, a random layer of the perceptron behind the tables of a recommender."""
    inputs, outputs = d.size(400, 2048), d.size(400, 2048)
    return f"(float[{d.size(64, 512)},{inputs}] x | float[{inputs},{outputs}] w) => (float y) {{ y = MatMul(x, w) }}"


# Lookups as in a recommender: few tables beside a perceptron, so that the rows come from a cache. Without the
# perceptron most of these models would be so small that they are timed warm.
LOOKUPS = Sweep((*[_ids_of_batch] * 5, _dense), 6, most_bytes=64 << 20, most_weight_bytes=48 << 20)

# Further ways to draw instances of operators on which models spend much time.
MORE: dict[str, tuple[Drawer, ...]] = {"Gather": (*[_large_table] * 4, _embedding, _picked_fed, _picked_fed)}

SWEEPS: dict[str, Sweep] = {
    "Gather": Sweep((_embedding, _picked, _picked, _picked_fed, _picked_size), 22),
    "GatherElements": Sweep((_elements,), 8, most_bytes=8 << 20),
    "GatherND": _points("GatherND"),
    "com.microsoft.GatherND": _points("com.microsoft.GatherND"),
    "com.microsoft.GatherBlockQuantized": Sweep((_quantised_table,), 4),
    "Scatter": _placed("Scatter"),
    "ScatterElements": _placed("ScatterElements"),
    "ScatterND": Sweep((_placed_rows,), 8),
    "TensorScatter": Sweep((_cached,), 4, opset=24),
    "TopK": Sweep((_top,), 12, most_bytes=_SLOW),
    "OneHot": Sweep(
        (
            lambda d: (
                f"""(int64[{d.n},{d.s}] i, float[2] v) => (float y) <int64 d = {{{d.c}}}> {{ y = OneHot(i, d, v) }}"""
            ),
        ),
        5,
    ),
    "NonMaxSuppression": Sweep((_boxes,), 8),
    "NonZero": Sweep((lambda d: f"(float[{d.table}] x) => (int64 y) {{ y = NonZero(x) }}",), 5, most_bytes=_SLOW),
    "Compress": Sweep(
        (lambda d: f"(float[{d.table}] x, bool[{d.rows}] c) => (float y) {{ y = Compress<axis = 0>(x, c) }}",), 4
    ),
    "Unique": _unique("Unique"),
    "com.microsoft.Unique": _unique("com.microsoft.Unique"),
    "Range": Sweep(
        (
            lambda d: "(int64 a, int64 b, int64 s) => (int64 y) { y = Range(a, b, s) }",
            lambda d: "(float a, float b, float s) => (float y) { y = Range(a, b, s) }",
            lambda d: "(int32 a, int32 b, int32 s) => (int32 y) { y = Range(a, b, s) }",
        ),
        3,
    ),
    "com.microsoft.Range": Sweep(
        (lambda d: "(int64 a, int64 b, int64 s) => (int64 y) { y = com.microsoft.Range(a, b, s) }",), 1
    ),
    "EyeLike": Sweep((lambda d: f"(float[{d.s},{d.s}] x) => (float y) {{ y = EyeLike(x) }}",), 4),
    "Size": Sweep(
        (lambda d: f"(float[{d.table}] x) => (int64 y) {{ c = NonZero(x) y = Size(c) }}",), 3, most_bytes=1 << 20
    ),
    "Shape": Sweep(
        (lambda d: f"(float[{d.table}] x) => (int64 y) {{ c = NonZero(x) y = Shape(c) }}",), 3, most_bytes=1 << 20
    ),
    "TfIdfVectorizer": Sweep((_counted,), 4),
    **{name: _random(name) for name in ("RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike")},
    "Multinomial": Sweep(
        (lambda d: f"(float[{d.table}] x) => (int32 y) {{ y = Multinomial<sample_size = {d.pick(1, 8)}>(x) }}",),
        4,
        most_bytes=1 << 20,
    ),
    "com.microsoft.NGramRepeatBlock": Sweep((_ngrams,), 4),
    "com.microsoft.BifurcationDetector": Sweep((_bifurcation,), 3),
    "com.microsoft.NGramHashMapping": Sweep((_hashed,), 4),
    "com.microsoft.VarlenNGramHashMapping": Sweep((_hashed_of_many,), 4),
    "com.microsoft.WordConvEmbedding": Sweep((_words,), 4),
}
