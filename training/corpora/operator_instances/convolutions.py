"""Random instances of convolutions: those that the runtime executes in channel blocks (NCHWc), and those it cannot."""

from costmodel.training.corpora.operator_instances.draw import Draw
from costmodel.training.corpora.operator_instances.instance import Drawer, Sweep

__all__ = ["MORE", "SWEEPS"]

_ACTIVATIONS = ("", "", "Relu", "Relu", "Sigmoid", "LeakyRelu")


def _conv(
    d: Draw,
    inputs: int,
    outputs: int,
    kernel: tuple[int, ...],
    *,
    group: int = 1,
    stride: int = 1,
    dilation: int = 1,
    activation: str = "",
    fed: bool = False,
    sides: tuple[int, ...] = (),
) -> str:
    """Returns, as ONNX text, a convolution that only `stride` makes smaller; without `sides` the image is square."""
    rank = len(kernel)
    sides = sides or (d.i,) * rank
    d.flops(2 * d.n * outputs * inputs / group, *(side / stride for side in sides), *kernel)
    pads = [dilation * (extent - 1) // 2 for extent in kernel]
    attributes = (
        f"""group = {group}, strides = {[stride] * rank}, dilations = {[dilation] * rank}, pads = {pads + pads}"""
    )
    image = ",".join(map(str, sides))
    taps = ",".join(map(str, kernel))
    bias = "" if fed or d.pick(True, False, False) else f", float[{outputs}] b"
    made, then = ("c", f" y = {activation}(c)") if activation else ("y", "")
    return f"""(float[{d.n},{inputs},{image}] x{"," if fed else " |"} float[{outputs},{inputs // group},{taps}] w{bias})
        => (float y) {{ {made} = Conv<{attributes}>(x, w{", b" if bias else ""}){then} }}"""


def _usual_kernel(d: Draw) -> tuple[int, int]:
    k = d.pick(1, 1, 3, 3, 3, 5, 7)
    return d.pick((k, k), (k, k), (k, k), (k, k), (1, 7), (3, 1))


def _blocked(d: Draw) -> str:
    return _conv(
        d, d.g, 16 * d.size(1, 64), _usual_kernel(d), stride=d.pick(1, 1, 1, 2), activation=d.pick(*_ACTIVATIONS)
    )


def _stem(d: Draw) -> str:
    k = d.pick(3, 3, 4, 7, 8, 11, 16)
    return _conv(
        d, d.pick(1, 3, 3, 3, 4), d.pick(16, 32, 64, 96), (k, k), stride=d.pick(1, 2, 2, 4),
        activation=d.pick(*_ACTIVATIONS),
    )  # fmt: skip


def _depthwise(d: Draw) -> str:
    k = d.pick(3, 3, 3, 5, 7)
    return _conv(d, d.g, d.g, (k, k), group=d.g, stride=d.pick(1, 1, 2), activation=d.pick(*_ACTIVATIONS))


def _grouped(d: Draw) -> str:
    group, width = d.pick(2, 4, 8, 32), d.pick(16, 16, 32, 48)
    return _conv(d, group * width, group * width, (3, 3), group=group, stride=d.pick(1, 1, 2))


def _dilated(d: Draw) -> str:
    return _conv(d, d.g, d.g, (3, 3), dilation=d.pick(2, 2, 4, 6, 12), activation=d.pick(*_ACTIVATIONS))


def _odd(d: Draw) -> int:
    return d.pick(1, 2, 3, 10, 21, 85, 255, d.size(3, 40) * 2 + 1)


def _not_blocked(d: Draw) -> int:
    """Draws an odd number of input channels, which fills no channel blocks.

    It is also too large for the kernel with which the runtime convolves unblocked images of few channels.
    """
    return 2 * d.size(9, 200) + 1


def _few(d: Draw) -> str:
    return _conv(d, _not_blocked(d), _odd(d), _usual_kernel(d))


def _thin_groups(d: Draw) -> str:
    group, width = d.pick(2, 3, 4, 32), d.pick(2, 4, 5, 6, 10)
    return _conv(d, group * width, group * width, (3, 3), group=group, stride=d.pick(1, 1, 2))


def _odd_depthwise(d: Draw) -> str:
    channels = d.size(3, 200) * 2 + 1
    return _conv(d, channels, channels, (3, 3), group=channels, stride=d.pick(1, 1, 2))


def _made_weights(d: Draw) -> str:
    k = d.pick(1, 3, 3)
    return _conv(d, d.c, d.k, (k, k), fed=True)


def _sequence(d: Draw) -> str:
    """Returns, as ONNX text, a random 1-D convolution as for audio and text; some are depthwise, as in Conformers."""
    depthwise = d.pick(True, False, False)
    length, k, stride = d.pick(d.s, d.size(16, 4000)), d.pick(1, 3, 3, 5, 7, 9, 31), d.pick(1, 1, 1, 2, 5)
    outputs = d.h if depthwise else d.k
    inputs = d.h if depthwise else d.pick(d.c, 1, 80)
    group = d.h if depthwise else 1
    d.flops(2 * outputs * inputs / group, length / stride, k)
    return f"""(float[{d.n},{inputs},{length}] x | float[{outputs},{inputs // group},{k}] w, float[{outputs}] b)
        => (float y) {{ y = Conv<group = {group}, strides = [{stride}], pads = [{k // 2}, {k // 2}]>(x, w, b) }}"""


def _volume(d: Draw) -> str:
    frames, side, k = d.size(3, 32), d.size(5, 112), d.pick(1, 3, 3)
    inputs, outputs = d.pick(1, 3, d.rounded(4, 256)), d.rounded(4, 256)
    stride = d.pick(1, 1, 2)
    d.flops(2 * inputs * outputs, k**3, frames, side / stride, side / stride)
    return f"""(float[1,{inputs},{frames},{side},{side}] x | float[{outputs},{inputs},{k},{k},{k}] w) => (float y)
        {{ y = Conv<strides = [1, {stride}, {stride}], pads = {[k // 2] * 6}>(x, w) }}"""


def _fused(activation: str) -> Drawer:
    return lambda d: _conv(d, _not_blocked(d), d.k, _usual_kernel(d), activation=activation)


def _transposed(d: Draw) -> str:
    k, stride = d.pick((2, 2), (4, 2), (3, 2), (3, 1), (16, 8), (8, 4))
    d.flops(4 * d.n * d.c * d.k, d.i * d.i, k * k)
    return f"""(float[{d.n},{d.c},{d.i},{d.i}] x | float[{d.c},{d.k},{k},{k}] w, float[{d.k}] b) => (float y)
        {{ y = ConvTranspose<strides = [{stride}, {stride}], pads = {[(k - stride) // 2] * 4}>(x, w, b) }}"""


def _transposed_1d(d: Draw) -> str:
    k, stride, length = 2 * d.pick(2, 4, 8), d.pick(2, 4), d.size(8, 1000)
    d.flops(2 * d.c * d.k, length, k)
    return f"""(float[1,{d.c},{length}] x | float[{d.c},{d.k},{k}] w) => (float y)
        {{ y = ConvTranspose<strides = [{stride}]>(x, w) }}"""


def _transposed_depthwise(d: Draw) -> str:
    d.flops(2 * d.c, d.i * d.i, 16)
    return f"""(float[1,{d.c},{d.i},{d.i}] x | float[{d.c},1,4,4] w) => (float y)
        {{ y = ConvTranspose<strides = [2, 2], pads = [1, 1, 1, 1], group = {d.c}>(x, w) }}"""


def _transposed_pads(d: Draw) -> str:
    d.flops(2 * d.c * d.k, d.i * d.i, 9)
    return f"""(float[1,{d.c},{d.i},{d.i}] x | float[{d.c},{d.k},3,3] w) => (float y) <int64[4] p = {{1, 1, 1, 1}}>
        {{ y = com.microsoft.ConvTransposeWithDynamicPads<strides = [2, 2]>(x, w, p) }}"""


def _deformed(d: Draw) -> str:
    d.flops(20 * d.c * (d.k + 8), d.i * d.i, 9)
    return f"""(float[1,{d.c},{d.i},{d.i}] x, float[1,18,{d.i},{d.i}] o, float[1,9,{d.i},{d.i}] m
        | float[{d.k},{d.c},3,3] w, float[{d.k}] b)
        => (float y) {{ y = DeformConv<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(x, w, o, b, m) }}"""


def _causal(d: Draw) -> str:
    k = d.pick(3, 4)
    return f"""(float[{d.n},{d.h},{d.s}] x, float[{d.n},{d.h},{k - 1}] p | float[{d.h},1,{k}] w, float[{d.h}] b)
        => (float y, float q) {{ y, q = com.microsoft.CausalConvWithState<activation = "silu">(x, w, b, p) }}"""


def _few_channels(d: Draw) -> str:
    """Returns, as ONNX text, a random convolution as for images of full resolution: few channels, large windows."""
    k, side = d.pick(1, 3, 3, 5, 5, 7, 9), d.size(16, 256)
    inputs, outputs = d.pick(1, 3, d.rounded(1, 64)), d.pick(1, 3, 12, d.rounded(1, 64), d.rounded(1, 64))
    return _conv(d, inputs, outputs, (k, k), sides=(side, side), activation=d.pick(*_ACTIVATIONS))


def _oblong(d: Draw) -> str:
    """Returns, as ONNX text, a random convolution of an image that is wider than high, as of a spectrum or a line."""
    sides = (d.size(1, 128), d.size(16, 1000))
    inputs, outputs = d.pick(1, d.rounded(1, 512), d.g), d.pick(d.rounded(1, 512), d.g)
    return _conv(d, inputs, outputs, _usual_kernel(d), sides=sides, activation=d.pick(*_ACTIVATIONS))


def _patches(d: Draw) -> str:
    """Returns, as ONNX text, a random convolution of windows that touch each other, as before a transformer."""
    k, grid = d.pick(2, 4, 4, 8, 14, 16, 16, 32), d.size(2, 40)
    inputs = d.pick(1, 3, 3) if k > 4 else d.pick(3, d.rounded(8, 512))
    d.flops(2 * d.n * d.h * inputs, grid * grid, k * k)
    return f"""(float[{d.n},{inputs},{k * grid},{k * grid}] x | float[{d.h},{inputs},{k},{k}] w, float[{d.h}] b)
        => (float y) {{ y = Conv<strides = [{k}, {k}]>(x, w, b) }}"""


def _dilated_sequence(d: Draw) -> str:
    length, k, dilation = d.size(16, 4000), d.pick(2, 3, 3, 7, 15), 2 ** d.pick(0, 1, 2, 3, 5, 7)
    group = d.pick(1, 1, 1, d.c)
    d.flops(2 * d.n * d.c * d.c / group, length, k)
    return f"""(float[{d.n},{d.c},{length}] x | float[{d.c},{d.c // group},{k}] w, float[{d.c}] b) => (float y)
        {{ y = Conv<group = {group}, dilations = [{dilation}], pads = [{dilation * (k - 1)}, 0]>(x, w, b) }}"""


def _transposed_far(d: Draw) -> str:
    """Returns, as ONNX text, a random transposed convolution whose windows overlap, as in upscaling and generators."""
    k, stride = d.pick((4, 1), (4, 2), (5, 2), (6, 3), (8, 4), (9, 2), (9, 3), (9, 4))
    side = d.pick(1, 4, 8, d.size(4, 128), d.size(4, 128))
    inputs, outputs = d.rounded(1, 1024), d.pick(1, 3, d.rounded(1, 512), d.rounded(1, 512))
    pad = 0 if side == 1 else (k - stride) // 2
    d.flops(2 * d.n * inputs * outputs, side * side, k * k)
    return f"""(float[{d.n},{inputs},{side},{side}] x | float[{inputs},{outputs},{k},{k}] w) => (float y)
        {{ y = ConvTranspose<strides = [{stride}, {stride}], pads = {[pad] * 4}>(x, w) }}"""


# Further ways to draw instances of operators on which models spend much time.
MORE: dict[str, tuple[Drawer, ...]] = {
    "com.microsoft.nchwc.Conv": (_patches, _oblong, _few_channels),
    "Conv": (_few_channels, _few_channels, _oblong, _dilated_sequence),
    "ConvTranspose": (_transposed_far, _transposed_far),
}

SWEEPS: dict[str, Sweep] = {
    "com.microsoft.nchwc.Conv": Sweep(
        (_blocked, _blocked, _blocked, _stem, _depthwise, _depthwise, _grouped, _dilated), 72
    ),
    "Conv": Sweep((_few, _thin_groups, _odd_depthwise, _made_weights, _sequence, _sequence, _volume, _volume), 48),
    "com.microsoft.FusedConv": Sweep(tuple(map(_fused, ("Relu", "Sigmoid", "LeakyRelu", "Tanh"))), 12),
    "ConvTranspose": Sweep((_transposed, _transposed, _transposed_1d, _transposed_depthwise), 24, most_bytes=32 << 20),
    "com.microsoft.ConvTransposeWithDynamicPads": Sweep((_transposed_pads,), 4),
    "DeformConv": Sweep((_deformed,), 6),
    "com.microsoft.CausalConvWithState": Sweep((_causal,), 6),
}
