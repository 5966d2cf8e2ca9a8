"""Random instances of normalisations."""

from costmodel.training.corpora.operator_instances.draw import Draw
from costmodel.training.corpora.operator_instances.instance import Sweep

__all__ = ["SWEEPS"]


def _batch(d: Draw) -> str:
    norms = ", ".join(f"float[{d.c}] {name}" for name in "abmv")
    return f"(float[{d.image}] x | {norms}) => (float y) {{ y = BatchNormalization(x, a, b, m, v) }}"


def _batch_rows(d: Draw) -> str:
    norms = ", ".join(f"float[{d.cols}] {name}" for name in "abmv")
    return f"(float[{d.table}] x | {norms}) => (float y) {{ y = BatchNormalization(x, a, b, m, v) }}"


def _lrn(d: Draw) -> str:
    return f"(float[{d.image}] x) => (float y) {{ y = LRN<size = {d.pick(3, 5, 5, 5, 7)}, alpha = 0.0001>(x) }}"


def _instance(d: Draw) -> str:
    shape = d.pick(d.image, d.image, f"{d.n},{d.c},{d.s}", f"1,32,{d.c * d.i}")
    channels = shape.split(",")[1]
    return f"""(float[{shape}] x | float[{channels}] s, float[{channels}] b) => (float y)
        {{ y = InstanceNormalization(x, s, b) }}"""


def _layer(d: Draw) -> str:
    bias = d.pick(True, True, False)
    return f"""(float[{d.tokens}] x | float[{d.h}] s{f", float[{d.h}] b" if bias else ""}) => (float y)
        {{ y = LayerNormalization<axis = -1>(x, s{", b" if bias else ""}) }}"""


def _layer_last(d: Draw) -> str:
    """Returns, as ONNX text, a random normalisation over channels in the last axis, as in ConvNeXt and Swin."""
    return f"""(float[{d.n},{d.i},{d.i},{d.c}] x | float[{d.c}] s, float[{d.c}] b) => (float y)
        {{ y = LayerNormalization<axis = -1, epsilon = 0.000001>(x, s, b) }}"""


def _skip(d: Draw) -> str:
    return f"""(float[{d.tokens}] x, float[{d.tokens}] k | float[{d.h}] g, float[{d.h}] b, float[{d.h}] c)
        => (float y, float s) {{ y, , , s = com.microsoft.SkipLayerNormalization(x, k, g, b, c) }}"""


def _skip_only(d: Draw) -> str:
    return f"""(float[{d.tokens}] x, float[{d.tokens}] k | float[{d.h}] g, float[{d.h}] b) => (float y)
        {{ y = com.microsoft.SkipLayerNormalization(x, k, g, b) }}"""


def _skip_simplified(d: Draw) -> str:
    return f"""(float[{d.tokens}] x, float[{d.tokens}] k | float[{d.h}] g) => (float y)
        {{ y = com.microsoft.SkipSimplifiedLayerNormalization(x, k, g) }}"""


def _root_mean_square(name: str) -> Sweep:
    def draw(d: Draw) -> str:
        return f"(float[{d.tokens}] x | float[{d.h}] s) => (float y) {{ y = {name}(x, s) }}"

    return Sweep((draw,), 8, opset=23 if name.startswith("RMS") else 21)


def _gated(d: Draw) -> str:
    return f"""(float[{d.table}] x, float[{d.table}] g | float[{d.cols}] s) => (float y)
        {{ y = com.microsoft.GatedRMSNorm(x, s, g) }}"""


def _branches(d: Draw) -> str:
    return f"(float[{d.tokens}] x | float[{d.h}] s) => (float y) {{ y = com.microsoft.BranchwiseRMSNorm(x, s) }}"


def _before_mix(d: Draw) -> str:
    return f"""(float[{d.s},4,{d.h}] x, float[{d.s},4] p) => (float y)
        {{ y = com.microsoft.HyperConnectionPreMix(x, p) }}"""


def _after_mix(d: Draw) -> str:
    return f"""(float[{d.s},4,{d.h}] x, float[{d.s},{d.h}] b, float[{d.s},4] p) => (float y)
        {{ y = com.microsoft.HyperConnectionPostMix(x, b, p) }}"""


def _engram(d: Draw) -> str:
    each = f"float[{d.n},{d.s},2,{d.h}]"
    return f"""({each} k, {each} q, float[{d.tokens}] v | float[2,{d.h}] s, float[2,{d.h}] t) => (float y)
        {{ y = com.microsoft.EngramGate(k, q, v, s, t) }}"""


def _mean_variance(d: Draw) -> str:
    return f"(float[{d.image}] x) => (float y) {{ y = MeanVarianceNormalization(x) }}"


SWEEPS: dict[str, Sweep] = {
    "BatchNormalization": Sweep((_batch, _batch, _batch_rows), 16),
    "LRN": Sweep((_lrn,), 16, most_bytes=16 << 20),
    "InstanceNormalization": Sweep((_instance,), 14),
    "LayerNormalization": Sweep((_layer, _layer, _layer_last), 20),
    "SimplifiedLayerNormalization": _root_mean_square("SimplifiedLayerNormalization"),
    "RMSNormalization": _root_mean_square("RMSNormalization"),
    "com.microsoft.SkipLayerNormalization": Sweep((_skip, _skip_only), 14),
    "com.microsoft.SkipSimplifiedLayerNormalization": Sweep((_skip_simplified,), 6),
    "MeanVarianceNormalization": Sweep((_mean_variance,), 4, opset=8, most_bytes=8 << 20),
    "com.microsoft.GatedRMSNorm": Sweep((_gated,), 4),
    "com.microsoft.BranchwiseRMSNorm": Sweep((_branches,), 4),
    "com.microsoft.HyperConnectionPreMix": Sweep((_before_mix,), 4),
    "com.microsoft.HyperConnectionPostMix": Sweep((_after_mix,), 4),
    "com.microsoft.EngramGate": Sweep((_engram,), 4),
}
