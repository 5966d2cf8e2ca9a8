"""Random instances of pools, resizes and other operators on images."""

from costmodel.training.corpora.operator_instances.draw import Draw
from costmodel.training.corpora.operator_instances.instance import Drawer, Sweep

__all__ = ["SWEEPS", "channel_operations"]

_SLOW = 4 << 20


def channel_operations(d: Draw, channels: int, *activations: str) -> list[tuple[str, str]]:
    """Returns operations on the elements and channels of an image x, each as its node and its weights in ONNX text.

    Args:
        d: Draw of the instance.
        channels: Number of channels of the image.
        activations: Activations, of which one is drawn.
    """
    return [
        (f"y = {d.pick(*activations)}(x)", ""),
        ("y = BatchNormalization(x, s, b, m, v)", ", ".join(f"float[{channels}] {name}" for name in "sbmv")),
        ("y = Mul(x, w)", f"float[1,{channels},1,1] w"),
        (f"y = Transpose<perm = {d.pick([0, 2, 3, 1], [0, 3, 1, 2])}>(x)", ""),
    ]


def _window(d: Draw) -> str:
    k, stride = d.pick((2, 2), (3, 2), (3, 1), (3, 2), (5, 1), (7, 7))
    pad = 0 if k == stride or k > d.i else d.pick(0, k // 2)
    return f"kernel_shape = [{k}, {k}], strides = [{stride}, {stride}], pads = {[pad] * 4}"


def _image(d: Draw) -> str:
    return f"float[{d.n},{d.c},{d.i},{d.i}] x"


def _pool(name: str) -> Drawer:
    return lambda d: f"({_image(d)}) => (float y) {{ y = {name}<{_window(d)}>(x) }}"


def _pool_1d(name: str) -> Drawer:
    return lambda d: (
        f"""(float[{d.n},{d.c},{d.s + 8}] x) => (float y)
        {{ y = {name}<kernel_shape = [{d.pick(2, 3, 8)}], strides = [2]>(x) }}"""
    )


def _pool_3d(name: str) -> Drawer:
    return lambda d: (
        f"""(float[1,{d.c},{d.size(4, 16)},{d.i},{d.i}] x) => (float y)
        {{ y = {name}<kernel_shape = [2, 2, 2], strides = [2, 2, 2]>(x) }}"""
    )


def _in_blocks(call: str) -> Drawer:
    """Returns a function that draws instances of an operator, each after a cheap convolution.

    The convolution makes the runtime keep the operator's input in channel blocks (NCHWc).
    """

    def draw(d: Draw) -> str:
        d.flops(64 * d.g, d.i * d.i)
        made = call.replace("WINDOW", _window(d))
        return f"""(float[{d.n},3,{d.i},{d.i}] x | float[{d.g},3,1,1] w) => (float y)
            <float[4] s = {{1.0, 1.0, 2.0, 2.0}}> {{ c = Conv(x, w) {made} }}"""

    return draw


def _resize(attributes: str) -> Drawer:
    def draw(d: Draw) -> str:
        scale = d.pick("2.0", "2.0", "2.0", "4.0", "0.5", "1.5")
        return f"""({_image(d)}) => (float y) <float[4] s = {{1.0, 1.0, {scale}, {scale}}}>
            {{ y = Resize<{attributes}>(x, , s) }}"""

    return draw


def _to_size(attributes: str) -> Drawer:
    return lambda d: (
        f"""({_image(d)}) => (float y)
        <int64[4] s = {{{d.n}, {d.c}, {d.pick(d.i * 2, d.i * 4, d.size(7, 224))}, {d.size(7, 224)}}}>
        {{ y = Resize<{attributes}>(x, , , s) }}"""
    )


def _sampled(name: str) -> Drawer:
    return lambda d: (
        f"""({_image(d)}, float[{d.n},{d.i},{d.i},2] g) => (float y)
        {{ y = {name}<mode = "{d.pick("linear", "nearest") if name == "GridSample" else d.pick("bilinear", "nearest")}",
            padding_mode = "{d.pick("zeros", "border")}">(x, g) }}"""
    )


def _aligned(d: Draw) -> str:
    regions = d.size(1, 300)
    d.flops(5000, 49 * regions, d.c)
    return f"""(float[2,{d.c},{d.i},{d.i}] x, float[{regions},4] r, int64[{regions}] b) => (float y)
        {{ y = RoiAlign<output_height = 7, output_width = 7, sampling_ratio = 2>(x, r, b) }}"""


_NEAREST = 'mode = "nearest", coordinate_transformation_mode = "asymmetric", nearest_mode = "floor"'
_UP = f"y = Resize<{_NEAREST}>(c, , s)"

SWEEPS: dict[str, Sweep] = {
    "MaxPool": Sweep((*[_pool("MaxPool")] * 3, _pool_1d("MaxPool"), _pool_3d("MaxPool")), 20),
    "AveragePool": Sweep((*[_pool("AveragePool")] * 3, _pool_1d("AveragePool"), _pool_3d("AveragePool")), 20),
    # Another kernel, which most exported models have.
    "AveragePool/opset18": Sweep(
        (*[_pool("AveragePool")] * 3, _pool_1d("AveragePool"), _pool_3d("AveragePool")), 30, opset=18
    ),
    "LpPool": Sweep((_pool("LpPool"),), 4, most_bytes=1 << 20),
    "LpPool/opset17": Sweep((_pool("LpPool"),), 4, opset=17, most_bytes=1 << 20),
    "GlobalAveragePool": Sweep((lambda d: f"({_image(d)}) => (float y) {{ y = GlobalAveragePool(x) }}",), 16),
    "GlobalMaxPool": Sweep((lambda d: f"({_image(d)}) => (float y) {{ y = GlobalMaxPool(x) }}",), 8),
    "GlobalLpPool": Sweep((lambda d: f"({_image(d)}) => (float y) {{ y = GlobalLpPool(x) }}",), 4, most_bytes=_SLOW),
    "com.microsoft.nchwc.MaxPool": Sweep((_in_blocks("y = MaxPool<WINDOW>(c)"),), 16),
    "com.microsoft.nchwc.AveragePool": Sweep((_in_blocks("y = AveragePool<WINDOW>(c)"),), 14),
    "com.microsoft.nchwc.GlobalMaxPool": Sweep((_in_blocks("y = GlobalMaxPool(c)"),), 8),
    "com.microsoft.nchwc.GlobalAveragePool": Sweep((_in_blocks("y = GlobalAveragePool(c)"),), 12),
    "com.microsoft.nchwc.Upsample": Sweep((_in_blocks(_UP),), 10, most_bytes=16 << 20),
    "com.microsoft.nchwc.ReorderOutput": Sweep((_in_blocks("y = Tanh(c)"),), 6),
    "com.microsoft.nchwc.ReorderInput": Sweep(
        (lambda d: f"(float[{d.n},{d.g},{d.i},{d.i}] x | float[16,{d.g},1,1] w) => (float y) {{ y = Conv(x, w) }}",), 8
    ),
    "MaxUnpool": Sweep(
        (
            lambda d: (
                f"""(float[1,{d.c},{2 * d.i},{2 * d.i}] x) => (float y)
                {{ p, i = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(x)
                  y = MaxUnpool<kernel_shape = [2, 2], strides = [2, 2]>(p, i) }}"""
            ),
        ),
        4,
        most_bytes=16 << 20,
    ),
    "MaxRoiPool": Sweep(
        (
            lambda d: (
                f"""(float[1,{d.c},{d.i},{d.i}] x, float[{d.size(1, 300)},5] r) => (float y)
                {{ y = MaxRoiPool<pooled_shape = [7, 7], spatial_scale = 0.0625>(x, r) }}"""
            ),
        ),
        4,
        most_bytes=_SLOW,
    ),
    "RoiAlign": Sweep((_aligned,), 6, most_bytes=_SLOW),
    "com.microsoft.CropAndResize": Sweep(
        (
            lambda d: (
                f"""(float[2,{d.c},{d.i},{d.i}] x, float[{d.rows},4] r, int32[{d.rows}] b) => (float y)
                <int32[2] s = {{7, 7}}> {{ y = com.microsoft.CropAndResize(x, r, b, s) }}"""
            ),
        ),
        4,
        most_bytes=2 << 20,
    ),
    "com.microsoft.MaxpoolWithMask": Sweep(
        (
            lambda d: (
                f"""({_image(d)}, int32[{d.n},{d.c},{d.i},{d.i}] m) => (float y)
                {{ y = com.microsoft.MaxpoolWithMask<kernel_shape = [2, 2], strides = [2, 2]>(x, m) }}"""
            ),
        ),
        4,
        most_bytes=8 << 20,
    ),
    "GridSample": Sweep((_sampled("GridSample"),), 8, most_bytes=_SLOW),
    "com.microsoft.GridSample": Sweep((_sampled("com.microsoft.GridSample"),), 4, most_bytes=_SLOW),
    "AffineGrid": Sweep(
        (
            lambda d: (
                f"""(float[{d.n},2,3] t) => (float y) <int64[4] s = {{{d.n}, 3, {d.i}, {d.i}}}>
                {{ y = AffineGrid(t, s) }}"""
            ),
        ),
        4,
    ),
    "Resize": Sweep(
        (
            _resize('mode = "nearest", nearest_mode = "floor", coordinate_transformation_mode = "asymmetric"'),
            _resize('mode = "linear", coordinate_transformation_mode = "half_pixel"'),
            _to_size('mode = "linear", coordinate_transformation_mode = "align_corners"'),
            _to_size('mode = "nearest"'),
            _resize('mode = "cubic"'),
        ),
        25,
        most_bytes=6 << 20,
    ),
    "Upsample": Sweep(
        (
            lambda d: (
                f"""({_image(d)}) => (float y) <float[4] s = {{1.0, 1.0, 2.0, 2.0}}>
                {{ y = Upsample<mode = "{d.pick("nearest", "linear")}">(x, s) }}"""
            ),
        ),
        6,
        opset=9,
        most_bytes=16 << 20,
    ),
}
