"""Random instances of the layers of models of large images, whose tensors are larger than the last cache.

What such a layer reads comes from memory, and what it writes goes there (docs/adr/0018).
"""

from costmodel.training.corpora.operator_instances.draw import Draw, TooExpensiveError
from costmodel.training.corpora.operator_instances.images import channel_operations
from costmodel.training.corpora.operator_instances.instance import Drawer, Sweep, on_one_input

__all__ = ["SWEEPS"]

_LEAST_BYTES, _MOST_BYTES = 16 << 20, 160 << 20  # of the largest tensor
_MOST_FLOPS = 16e9  # about 150 ms at 100 GFLOP/s
# Most bytes of one instance's inputs and outputs, and of its weights.
_MOST_MOVED, _MOST_WEIGHTS = 512 << 20, 12 << 20


def _checked(elements: float, flops: float = 0.0) -> None:
    """Checks that the largest tensor has a size that this sweep is about, and that the instance is quick enough.

    Raises:
        TooExpensiveError: The tensor is smaller or larger, or there are more floating-point operations.
    """
    if not _LEAST_BYTES <= 4 * elements <= _MOST_BYTES or flops > _MOST_FLOPS:
        raise TooExpensiveError


def _width(d: Draw) -> int:
    return d.pick(32, 48, 64, 96, 112, 128, 144, 192, 256, 384, 512, 768, d.rounded(16, 1024))


def _side(d: Draw, *channels: int) -> int:
    """Returns the height and width of images of which the one with most channels has a size of this sweep."""
    side = d.pick(64, 112, 128, 160, 224, 256, 320, 384, 512, 640, 8 * d.size(8, 128))
    _checked(max(channels) * side * side)
    return side


def _product(d: Draw) -> str:
    """Returns, as ONNX text, a random product of many rows and a matrix of weights, as Gemm or MatMul."""
    rows, inner, outputs = d.size(1024, 1 << 18), _width(d), _width(d) * d.pick(1, 1, 3, 4)
    _checked(rows * max(inner, outputs), 2.0 * rows * inner * outputs)
    after = d.pick("", "", "Gelu", "Relu")
    last = f"y = {after}(s)" if after else "y = Identity(s)"
    if d.pick(True, False):
        return f"""(float[{rows},{inner}] x | float[{outputs},{inner}] w, float[{outputs}] b) => (float y)
            {{ s = Gemm<transB = 1>(x, w, b) {last} }}"""
    return f"""(float[1,{rows},{inner}] x | float[{inner},{outputs}] w, float[{outputs}] b) => (float y)
        {{ p = MatMul(x, w) s = Add(p, b) {last} }}"""


def _attention(d: Draw) -> str:
    """Returns, as ONNX text, random scores of attention within windows, or their product with the values."""
    windows, heads, tokens, head = d.size(1, 2048), d.pick(1, 2, 3, 4, 8, 12), d.pick(49, 64, 196, 256, 1024), d.e
    _checked(windows * heads * tokens * max(tokens, head), 2.0 * windows * heads * tokens**2 * head)
    lead = f"{windows},{heads}"
    if d.pick(True, False):
        return f"(float[{lead},{tokens},{head}] q, float[{lead},{head},{tokens}] k) => (float y) {{ y = MatMul(q, k) }}"
    return f"""(float[{lead},{tokens},{tokens}] q, float[{lead},{tokens},{head}] v) => (float y)
        {{ s = Softmax(q) y = MatMul(s, v) }}"""


def _convolution(d: Draw) -> str:
    """Returns, as ONNX text, a random convolution of a large image."""
    inputs, outputs = d.pick(3, _width(d), _width(d)), _width(d)
    k, stride, after = d.pick(1, 1, 3, 3, 7), d.pick(1, 1, 2), d.pick("", "Relu", "Sigmoid")
    side = _side(d, inputs, outputs)
    _checked(max(inputs, outputs) * side**2, 2.0 * inputs * outputs * (k * side / stride) ** 2)
    window = f"strides = [{stride}, {stride}], pads = {[(k - 1) // 2] * 4}"
    last = f"y = {after}(c)" if after else "y = Identity(c)"
    return f"""(float[1,{inputs},{side},{side}] x | float[{outputs},{inputs},{k},{k}] w, float[{outputs}] b)
        => (float y) {{ c = Conv<{window}>(x, w, b) {last} }}"""


def _depthwise(d: Draw) -> str:
    """Returns, as ONNX text, a random depthwise convolution of a large image and a pointwise one."""
    channels, k, stride = 16 * d.size(1, 32), d.pick(3, 3, 5, 7), d.pick(1, 1, 2)
    side = _side(d, channels)
    window = f"group = {channels}, strides = [{stride}, {stride}], pads = {[(k - 1) // 2] * 4}"
    return f"""(float[1,{channels},{side},{side}] x
        | float[{channels},1,{k},{k}] w, float[{channels}] b, float[32,{channels},1,1] v)
        => (float y) {{ c = Conv<{window}>(x, w, b) y = Conv(c, v) }}"""


def _upsampled(d: Draw) -> str:
    """Returns, as ONNX text, a random enlargement of an image: by a transposed convolution, or between its pixels."""
    channels = _width(d)
    side = _side(d, channels)
    if d.pick(True, False):
        outputs = max(8, channels // 2)
        _checked(channels * side**2, 2.0 * channels * outputs * 4 * side**2)
        return f"""(float[1,{channels},{side},{side}] x | float[{channels},{outputs},2,2] w) => (float y)
            {{ y = ConvTranspose<strides = [2, 2]>(x, w) }}"""
    mode = d.pick("nearest", "linear")
    positions = 'coordinate_transformation_mode = "asymmetric", nearest_mode = "floor"'
    return f"""(float[1,{channels},{side // 2},{side // 2}] x) => (float y) <float[4] scales = {{1, 1, 2, 2}}>
        {{ y = Resize<mode = "{mode}", {positions}>(x, , scales) }}"""


def _image(d: Draw) -> str:
    """Returns, as ONNX text, a random operation on the elements, channels or windows of a large image."""
    channels = _width(d)
    side = _side(d, channels)
    steps, weights = d.pick(
        *channel_operations(d, channels, "Relu", "Sigmoid", "HardSwish", "Gelu"),
        ("y = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(x)", ""),
        ("y = GlobalAveragePool(x)", ""),
        ("y = InstanceNormalization(x, s, b)", f"float[{channels}] s, float[{channels}] b"),
    )
    return on_one_input(f"float[1,{channels},{side},{side}]", steps, weights)


def _two(d: Draw) -> str:
    """Returns, as ONNX text, a random operation on two large tensors."""
    channels = _width(d)
    side = _side(d, channels)
    shape = d.pick(f"float[1,{channels},{side},{side}]", f"float[1,{side * side},{channels}]")
    step = d.pick("Add", "Add", "Mul", f"Concat<axis = {d.pick(1, -1)}>")
    return f"({shape} x, {shape} z) => (float y) {{ y = {step}(x, z) }}"


def _tokens(d: Draw) -> str:
    """Returns, as ONNX text, a random operation on the many tokens of a large image."""
    width, side = _width(d), 8 * d.size(4, 96)
    rows = side * side
    _checked(rows * width)
    shape = f"float[1,{rows},{width}]"
    window = d.pick(4, 8)
    parts = f"{side // window},{window},{side // window},{window}"
    third = width // 3
    step, weights, made = d.pick(
        ("y = LayerNormalization(x, w, b)", f"float[{width}] w, float[{width}] b", ""),
        ("y = Softmax(x)", "", ""),
        ("y = Gelu(x)", "", ""),
        ("y = Add(x, w)", f"float[{width}] w", ""),
        ("y = ReduceMean<keepdims = 1>(x, axes)", "", f"<int64[1] axes = {{{d.pick(1, 2)}}}>"),
        ("y, u, v = Split<axis = 2>(x, sizes)", "", f"<int64[3] sizes = {{{third}, {third}, {width - 2 * third}}}>"),
        ("y = Slice(x, a, e, axes)", "", f"<int64[1] a = {{0}}, int64[1] e = {{{rows // 2}}}, int64[1] axes = {{1}}>"),
        (
            "r = Reshape(x, shape) y = Transpose<perm = [0, 1, 3, 2, 4, 5]>(r)",
            "",
            f"<int64[6] shape = {{1, {parts}, {width}}}>",
        ),
    )
    outputs = "float y, float u, float v" if "Split" in step else "float y"
    return on_one_input(shape, step, weights, made, outputs)


def _sweep(drawer: Drawer) -> Sweep:
    return Sweep((drawer,), 1, most_bytes=_MOST_MOVED, most_weight_bytes=_MOST_WEIGHTS)


# Kinds of instances by name; a model has one of each.
SWEEPS: dict[str, Sweep] = {
    "product": _sweep(_product),
    "attention": _sweep(_attention),
    "convolution": _sweep(_convolution),
    "depthwise": _sweep(_depthwise),
    "upsampled": _sweep(_upsampled),
    "image": _sweep(_image),
    "two": _sweep(_two),
    "tokens": _sweep(_tokens),
}
