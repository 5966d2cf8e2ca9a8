"""Random instances of the layers of small networks, which find their weights and inputs in a cache.

Layers of such networks cost less than the same layers of a larger model (docs/adr/0018).
"""

from costmodel.training.corpora.operator_instances.draw import Draw, TooExpensiveError
from costmodel.training.corpora.operator_instances.images import channel_operations
from costmodel.training.corpora.operator_instances.instance import Sweep, on_one_input

__all__ = ["SWEEPS"]

_ACTIVATIONS = ("", "", "Relu", "Relu", "Sigmoid")
_MOST_ELEMENTS = 1 << 15  # of one tensor


def _channels(d: Draw) -> int:
    return d.pick(8, 16, 16, 24, 32, 32, 48, 64, 64, 96, 128, d.rounded(3, 192))


def _side(d: Draw, channels: int) -> int:
    """Returns the height and width of an image with so many channels."""
    side = d.pick(4, 7, 8, 8, 14, 16, 28, 32, d.size(4, 64))
    if channels * side * side > _MOST_ELEMENTS:
        raise TooExpensiveError
    return side


def _convolution(d: Draw) -> str:
    """Returns, as ONNX text, a random convolution; a third are added to another one, as at the end of a block."""
    inputs, outputs = _channels(d), _channels(d)
    side = _side(d, max(inputs, outputs))
    k, stride, activation = d.pick(1, 1, 3, 3, 3, 5), d.pick(1, 1, 1, 2), d.pick(*_ACTIVATIONS)
    beside = d.pick(True, False, False)
    window = f"strides = [{stride}, {stride}], pads = {[(k - 1) // 2] * 4}"
    weights = f"float[{outputs},{inputs},{k},{k}] w, float[{outputs}] b"
    steps = [f"c = Conv<{window}>(x, w, b)"]
    if beside:
        weights += f", float[{outputs},{inputs},1,1] v"
        steps += [f"z = Conv<strides = [{stride}, {stride}]>(x, v)", "s = Add(c, z)"]
    last = "s" if beside else "c"
    steps.append(f"y = {activation}({last})" if activation else f"y = Identity({last})")
    return f"(float[1,{inputs},{side},{side}] x | {weights}) => (float y) {{ {' '.join(steps)} }}"


def _depthwise(d: Draw) -> str:
    """Returns, as ONNX text, a random depthwise convolution, some of them dilated, and a pointwise one."""
    channels, outputs = 8 * d.size(1, 24), _channels(d)
    side = _side(d, max(channels, outputs))
    k, dilation, stride, between = d.pick(3, 3, 5), d.pick(1, 1, 2), d.pick(1, 1, 1, 2), d.pick("", "Relu", "Clip")
    pads = [dilation * (k - 1) // 2] * 4
    window = f"group = {channels}, strides = [{stride}, {stride}], dilations = [{dilation}, {dilation}], pads = {pads}"
    activation = {"": "", "Relu": "r = Relu(c)", "Clip": "r = Clip(c, low, high)"}[between]
    limits = "<float low = {0}, float high = {6}>" if between == "Clip" else ""
    return f"""(float[1,{channels},{side},{side}] x
        | float[{channels},1,{k},{k}] w, float[{channels}] b, float[{outputs},{channels},1,1] v)
        => (float y) {limits} {{ c = Conv<{window}>(x, w, b) {activation} y = Conv({"r" if between else "c"}, v) }}"""


def _pooled(d: Draw) -> str:
    """Returns, as ONNX text, a random pooling of what a convolution has made."""
    inputs, outputs = _channels(d), _channels(d)
    side, k, stride = _side(d, max(inputs, outputs)), d.pick(2, 3, 3), d.pick(1, 2)
    window = f"kernel_shape = [{k}, {k}], strides = [{stride}, {stride}], pads = {[(k - 1) // 2] * 4}"
    pooling = d.pick(f"AveragePool<{window}>(c)", f"MaxPool<{window}>(c)", "GlobalAveragePool(c)")
    return f"""(float[1,{inputs},{side},{side}] x | float[{outputs},{inputs},1,1] w) => (float y)
        {{ c = Conv(x, w) y = {pooling} }}"""


def _image(d: Draw) -> str:
    """Returns, as ONNX text, a random operation on the elements, channels or windows of an image."""
    channels = _channels(d)
    side = _side(d, channels)
    steps, weights, made = d.pick(
        *((*operation, "") for operation in channel_operations(d, channels, "Relu", "Sigmoid", "Tanh", "HardSwish")),
        (
            "y = Slice(x, starts, ends, axes)",
            "",
            "<int64[2] starts = {1, 1}, int64[2] ends = {99, 99}, int64[2] axes = {2, 3}>",
        ),
    )
    return on_one_input(f"float[1,{channels},{side},{side}]", steps, weights, made)


def _two_images(d: Draw) -> str:
    """Returns, as ONNX text, a random operation on two images."""
    channels = _channels(d)
    shape = f"float[1,{channels},{_side(d, channels)},{d.pick(4, 8, 16)}]"
    return f"({shape} x, {shape} z) => (float y) {{ y = {d.pick('Add', 'Mul', 'Concat<axis = 1>')}(x, z) }}"


def _tokens(d: Draw) -> str:
    """Returns, as ONNX text, a random operation on vectors, such as the tokens of a text or the rows of a batch."""
    rows, width, outputs = d.pick(1, 1, 8, 32, d.size(2, 128)), d.rounded(8, 256), d.rounded(8, 256)
    shape = f"float[1,{rows},{width}]"
    step, weights = d.pick(
        ("y = MatMul(x, w)", f"float[{width},{outputs}] w"),
        ("p = MatMul(x, w) y = Add(p, b)", f"float[{width},{outputs}] w, float[{outputs}] b"),
        ("y = LayerNormalization(x, w, b)", f"float[{width}] w, float[{width}] b"),
        ("y = Softmax(x)", ""),
        ("y = ReduceMean<keepdims = 1>(x, axes)", ""),
        ("y = Gelu(x)", ""),
    )
    return on_one_input(shape, step, weights, "<int64[1] axes = {2}>" if "axes" in step else "")


def _table(d: Draw) -> str:
    """Returns, as ONNX text, a random product of a batch of rows, as in a classifier."""
    rows, width, outputs = d.pick(1, 1, 4, d.size(2, 64)), d.rounded(8, 512), d.pick(2, 10, 100, d.rounded(8, 256))
    return f"""(float[{rows},{width}] x | float[{outputs},{width}] w, float[{outputs}] b) => (float y)
        {{ y = Gemm<transB = 1>(x, w, b) }}"""


# Kinds of instances by name, each with the number of instances in one model.
SWEEPS: dict[str, Sweep] = {
    "convolution": Sweep((_convolution,), 14),
    "depthwise": Sweep((_depthwise,), 4),
    "pooled": Sweep((_pooled,), 2),
    "image": Sweep((_image,), 2),
    "two images": Sweep((_two_images,), 1),
    "tokens": Sweep((_tokens,), 3),
    "table": Sweep((_table,), 1),
}
