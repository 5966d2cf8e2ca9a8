"""Random instances of the layers of tiny convolutional networks, whose weights stay in a core's own cache.

Layers of such networks are timed warm (docs/adr/0005), so that they cost less than the same layers of a larger model.
"""

from costmodel.training.corpora.operator_instances.draw import Draw
from costmodel.training.corpora.operator_instances.instance import Sweep

__all__ = ["SWEEPS"]

_ACTIVATIONS = ("", "", "Relu", "Relu", "Sigmoid")


def _channels(d: Draw) -> int:
    return d.pick(8, 16, 16, 24, 32, 32, 48, 64, 64, 96, d.rounded(3, 128))


def _convolution(d: Draw) -> str:
    """Returns, as ONNX text, a random convolution; a third are added to another one, as at the end of a block."""
    inputs, outputs, side = _channels(d), _channels(d), d.pick(4, 7, 8, 14, 16, 28, 32, d.size(4, 64))
    k, stride, activation = d.pick(1, 1, 3, 3, 3, 5), d.pick(1, 1, 1, 2), d.pick(*_ACTIVATIONS)
    beside = d.pick(True, False, False)
    d.flops(2 * inputs * outputs, side / stride, side / stride, k * k)
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
    channels, outputs, side = 8 * d.size(1, 18), _channels(d), d.pick(4, 7, 8, 14, 16, 28, 32, d.size(4, 64))
    k, dilation, stride, between = d.pick(3, 3, 5), d.pick(1, 1, 2), d.pick(1, 1, 1, 2), d.pick("", "Relu", "Clip")
    pads = [dilation * (k - 1) // 2] * 4
    window = f"group = {channels}, strides = [{stride}, {stride}], dilations = [{dilation}, {dilation}], pads = {pads}"
    activation = {"": "", "Relu": "r = Relu(c)", "Clip": "r = Clip(c, low, high)"}[between]
    limits = ", float low, float high" if between == "Clip" else ""
    return f"""(float[1,{channels},{side},{side}] x
        | float[{channels},1,{k},{k}] w, float[{channels}] b, float[{outputs},{channels},1,1] v{limits})
        => (float y) {{ c = Conv<{window}>(x, w, b) {activation} y = Conv({"r" if between else "c"}, v) }}"""


# Kinds of instances by name, each with the number of instances in one model.
SWEEPS: dict[str, Sweep] = {"convolution": Sweep((_convolution,), 12), "depthwise": Sweep((_depthwise,), 4)}
