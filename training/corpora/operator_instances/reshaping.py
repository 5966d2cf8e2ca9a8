"""Random instances of operators that move, repeat, slice and pad data without computing."""

from itertools import permutations

from costmodel.training.corpora.operator_instances.draw import Draw
from costmodel.training.corpora.operator_instances.instance import Drawer, Sweep

__all__ = ["MORE", "SWEEPS"]


def _listed(*values: int) -> str:
    return ", ".join(map(str, values))


def _transpose(d: Draw) -> str:
    shape, order = d.pick(
        (d.image, (0, 2, 3, 1)),
        (f"{d.n},{d.i},{d.i},{d.c}", (0, 3, 1, 2)),
        (f"{d.n},{d.s},{d.a},{d.e}", (0, 2, 1, 3)),
        (f"{d.n},{d.s},{d.a},{d.e}", (0, 2, 3, 1)),
        (f"{d.n},{d.a},{d.s},{d.e}", (0, 1, 3, 2)),
        (f"{d.n},{d.a},{d.s},{d.e}", (2, 0, 1, 3)),
        (d.tokens, (0, 2, 1)),
        (d.tokens, (1, 0, 2)),
        (d.table, (1, 0)),
        (f"{d.n},{d.s},3,{d.a},{d.e}", (2, 0, 3, 1, 4)),
        (f"{d.n},4,{d.size(3, 64)},{d.i},{d.i}", (0, 2, 1, 3, 4)),  # channel shuffle
        (f"{d.n},8,7,8,7,{d.c}", (0, 1, 3, 2, 4, 5)),  # window partition
        (f"1,{d.a},2,2,{d.i},{d.i}", (0, 1, 4, 2, 5, 3)),  # pixel shuffle
    )
    return f"(float[{shape}] x) => (float y) {{ y = Transpose<perm = {list(order)}>(x) }}"


def _reshape(d: Draw) -> str:
    shape, wanted = d.pick(
        (d.image, (0, 0, -1)), (d.tokens, (0, 0, d.a, -1) if d.h % d.a == 0 else (-1, d.h)), (d.image, (0, -1)),
        (f"{d.n},{d.s},{d.a},{d.e}", (0, 0, -1)),
    )  # fmt: skip
    return f"""(float[{shape}] x) => (float y) <int64[{len(wanted)}] s = {{{_listed(*wanted)}}}>
        {{ y = Reshape(x, s) }}"""


def _expand(d: Draw) -> str:
    shape, wanted = d.pick(
        (f"{d.n},1,1,{d.s}", (d.n, 1, d.s, d.s)), (f"1,1,{d.h}", (d.n + 1, 1, d.h)),
        (f"{d.s},1", (d.s, d.size(2, 512))),
        (f"{d.n},{d.a},1,{d.s},{d.e}", (d.n, d.a, 4, d.s, d.e)),
    )  # fmt: skip
    return f"""(float[{shape}] x) => (float y) <int64[{len(wanted)}] s = {{{_listed(*wanted)}}}>
        {{ y = Expand(x, s) }}"""


def _axis(name: str) -> Drawer:
    def draw(d: Draw) -> str:
        shape, axis = d.pick((d.tokens, 1), (d.table, 0), (d.table, 1), (d.image, 1))
        shape = shape if name == "Unsqueeze" else shape.partition(",")[0] + ",1," + shape.partition(",")[2]
        axis = axis if name == "Unsqueeze" else 1
        return f"(float[{shape}] x) => (float y) <int64[1] a = {{{axis}}}> {{ y = {name}(x, a) }}"

    return draw


def _concat(d: Draw) -> str:
    """Returns, as ONNX text, a random Concat: of branches, of a cache and new entries, of tokens, or of columns."""
    form = d.pick("channels", "channels", "cache", "tokens", "columns")
    if form == "channels":
        widths = [d.c, *(d.rounded(3, 512) for _ in range(d.pick(1, 1, 2, 3)))]
        shapes, axis = [f"{d.n},{width},{d.i},{d.i}" for width in widths], 1
    elif form == "cache":
        shapes, axis = [f"{d.n},{d.a},{length},{d.e}" for length in (d.s, d.pick(1, 8))], 2
    elif form == "tokens":
        shapes, axis = [f"{d.n},{length},{d.h}" for length in (1, d.s)], 1
    else:
        shapes, axis = [f"{d.rows},{width}" for width in (d.cols, d.pick(1, 4, d.cols))], -1
    fed = ", ".join(f"float[{shape}] x{index}" for index, shape in enumerate(shapes))
    read = ", ".join(f"x{index}" for index in range(len(shapes)))
    return f"({fed}) => (float y) {{ y = Concat<axis = {axis}>({read}) }}"


def _concat_sizes(d: Draw) -> str:
    return f"(int64[{d.size(1, 4)}] a, int64[{d.size(1, 8)}] b) => (int64 y) {{ y = Concat<axis = 0>(a, b) }}"


def _slice(d: Draw) -> str:
    shape, axis, extent = d.pick(
        (d.image, 1, d.c), (d.image, 2, d.i), (d.image, 3, d.i), (d.tokens, 1, d.s), (d.tokens, 2, d.h),
        (d.scores, 3, d.s), (d.table, 0, d.rows),
    )  # fmt: skip
    if extent < 2:
        shape, axis, extent = d.tokens, 2, d.h
    start, step = d.pick((0, 1), (extent // 2, 1), (0, 2), (1, 2))
    return f"""(float[{shape}] x) => (float y)
        <int64[1] a = {{{start}}}, int64[1] b = {{{extent if start or step > 1 else extent // 2}}},
         int64[1] c = {{{axis}}}, int64[1] s = {{{step}}}> {{ y = Slice(x, a, b, c, s) }}"""


def _slice_fed(d: Draw) -> str:
    return f"(float[{d.table}] x, int64[2] a, int64[2] b) => (float y) {{ y = Slice(x, a, b) }}"


def _split(d: Draw) -> str:
    parts = d.pick(2, 2, 3, 4)
    shape, axis = d.pick((f"{d.n},{parts * d.c},{d.i},{d.i}", 1), (f"{d.n},{d.s},{parts * d.h}", 2))
    made = [f"y{index}" for index in range(parts)]
    return f"""(float[{shape}] x) => ({", ".join(f"float {name}" for name in made)})
        {{ {", ".join(made)} = Split<axis = {axis}, num_outputs = {parts}>(x) }}"""


def _split_uneven(d: Draw) -> str:
    parts = (d.c, d.k)
    return f"""(float[{d.n},{sum(parts)},{d.i},{d.i}] x) => (float a, float b)
        <int64[2] s = {{{_listed(*parts)}}}> {{ a, b = Split<axis = 1>(x, s) }}"""


def _tile(d: Draw) -> str:
    shape, repeats = d.pick(
        (d.table, (2, 1)), (d.table, (1, 3)), (f"1,1,{d.h}", (d.n, d.s, 1)), (d.image, (1, 1, 2, 2))
    )
    return f"""(float[{shape}] x) => (float y) <int64[{len(repeats)}] r = {{{_listed(*repeats)}}}>
        {{ y = Tile(x, r) }}"""


def _pad(name: str = "Pad") -> Drawer:
    def draw(d: Draw) -> str:
        p, q = d.pick((1, 1), (0, 1), (3, 3), (2, 1))
        mode = d.pick("constant", "constant", "reflect", "edge") if name == "Pad" else "constant"
        return f"""(float[{d.image}] x) => (float y) <int64[8] p = {{0, 0, {p}, {p}, 0, 0, {q}, {q}}}>
            {{ y = {name}<mode = "{mode}">(x, p) }}"""

    return draw


def _pad_tokens(d: Draw) -> str:
    return f"""(float[{d.tokens}] x) => (float y) <int64[6] p = {{0, 0, 0, 0, {d.size(1, 64)}, 0}}>
        {{ y = Pad(x, p) }}"""


def _triangle(name: str) -> Sweep:
    def draw(d: Draw) -> str:
        return f"""(float[{d.pick(d.scores, f"{d.s},{d.s}")}] x) => (float y) <int64 k = {{{d.pick(0, 1)}}}>
            {{ y = {name}<upper = {d.pick(0, 1)}>(x, k) }}"""

    return Sweep((draw,), 5)


def _to_space(d: Draw) -> str:
    b = d.pick(2, 2, 4)
    return f"""(float[{d.n},{b * b * d.size(1, 256)},{d.i},{d.i}] x) => (float y)
        {{ y = DepthToSpace<blocksize = {b}, mode = "{d.pick("DCR", "CRD")}">(x) }}"""


def _to_depth(d: Draw) -> str:
    return f"(float[{d.n},{d.c},{2 * d.i},{2 * d.i}] x) => (float y) {{ y = SpaceToDepth<blocksize = 2>(x) }}"


def _col2im(d: Draw) -> str:
    side = d.size(6, 64)
    return f"""(float[1,{9 * d.size(1, 128)},{side * side}] x) => (float y)
        <int64[2] i = {{{side}, {side}}}, int64[2] b = {{3, 3}}>
        {{ y = Col2Im<pads = [1, 1, 1, 1]>(x, i, b) }}"""


def _transpose_any(d: Draw) -> str:
    rank = d.pick(2, 3, 3, 4, 4, 4, 5, 6)
    shape = [d.size(2, max(2, int(4_000_000 ** (1 / rank)))) for _ in range(rank)]
    order = d.pick(*permutations(range(rank)))
    return f"(float[{_listed(*shape)}] x) => (float y) {{ y = Transpose<perm = {list(order)}>(x) }}"


# Further ways to draw instances of operators on which models spend much time.
MORE: dict[str, tuple[Drawer, ...]] = {"Transpose": (_transpose_any,)}

SWEEPS: dict[str, Sweep] = {
    "Transpose": Sweep((_transpose,), 32),
    "Reshape": Sweep((_reshape,), 14),
    "Expand": Sweep((_expand,), 10),
    "ConstantOfShape": Sweep(
        (lambda d: f"(int64[{d.pick(1, 2, 3, 4)}] s) => (float y) {{ y = ConstantOfShape(s) }}",), 3
    ),
    "Flatten": Sweep((lambda d: f"(float[{d.image}] x) => (float y) {{ y = Flatten<axis = 1>(x) }}",), 8),
    "Squeeze": Sweep((_axis("Squeeze"),), 8),
    "Unsqueeze": Sweep((_axis("Unsqueeze"),), 8),
    "com.microsoft.ExpandDims": Sweep(
        (lambda d: f"(float[{d.table}] x) => (float y) <int32 a = {{1}}> {{ y = com.microsoft.ExpandDims(x, a) }}",), 3
    ),
    "Concat": Sweep((_concat, _concat, _concat, _concat_sizes), 28),
    "Slice": Sweep((_slice, _slice, _slice, _slice_fed), 24),
    "DynamicSlice": Sweep(
        (lambda d: f"(float[{d.table}] x, int64[2] a, int64[2] b) => (float y) {{ y = DynamicSlice(x, a, b) }}",),
        3,
        opset=9,
    ),
    "Split": Sweep((_split, _split, _split_uneven), 18),
    "Tile": Sweep((_tile,), 8, most_bytes=16 << 20),
    "Pad": Sweep((_pad(), _pad(), _pad_tokens), 20),
    "com.microsoft.Pad": Sweep((_pad("com.microsoft.Pad"),), 3),
    "Crop": Sweep(
        (lambda d: f"(float[{d.n},{d.c},{d.i},{d.i}] x) => (float y) {{ y = Crop<border = [1, 1, 1, 1]>(x) }}",),
        3,
        opset=7,
    ),
    "Trilu": _triangle("Trilu"),
    "com.microsoft.Trilu": _triangle("com.microsoft.Trilu"),
    "com.microsoft.UnfoldTensor": Sweep(
        (
            lambda d: (
                f"""(float[{d.n},{d.size(16, 4096)}] x) => (float y)
                {{ y = com.microsoft.UnfoldTensor<size = {d.pick(4, 8, 16)}, step = {d.pick(2, 4)}>(x) }}"""
            ),
        ),
        4,
    ),
    "ReverseSequence": Sweep(
        (
            lambda d: (
                f"""(float[{d.s},{d.n},{d.h}] x, int64[{d.n}] l) => (float y)
                {{ y = ReverseSequence<time_axis = 0, batch_axis = 1>(x, l) }}"""
            ),
        ),
        4,
        most_bytes=8 << 20,
    ),
    "DepthToSpace": Sweep((_to_space,), 8),
    "SpaceToDepth": Sweep((_to_depth,), 6),
    "Col2Im": Sweep((_col2im,), 4, most_bytes=8 << 20),
}
