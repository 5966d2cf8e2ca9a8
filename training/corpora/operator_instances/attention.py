"""Random instances of attention operators, and of the embeddings, rotary embeddings and caches around them."""

from costmodel.training.corpora.operator_instances.draw import Draw
from costmodel.training.corpora.operator_instances.instance import Sweep

__all__ = ["SWEEPS"]

_MASKED = 8 << 20


def _costs(d: Draw, keys: int) -> None:
    d.flops(4 * d.n * d.a, d.s, keys, d.e)


def _onnx(d: Draw) -> str:
    keys, width = d.pick(d.s, d.s, d.size(1, 512)), d.a * d.e
    _costs(d, keys)
    return f"""(float[{d.n},{d.s},{width}] q, float[{d.n},{keys},{width}] k, float[{d.n},{keys},{width}] v,
        bool[{d.s},{keys}] m) => (float y) {{ y = Attention<q_num_heads = {d.a}, kv_num_heads = {d.a}>(q, k, v, m) }}"""


def _onnx_cache(d: Draw) -> str:
    new = f"float[{d.n},{d.a},1,{d.e}]"
    old = f"float[{d.n},{d.a},{d.s},{d.e}]"
    return f"""({new} q, {new} k, {new} v, {old} a, {old} b) => (float y, float c, float d)
        {{ y, c, d = Attention<is_causal = 1>(q, k, v, , a, b) }}"""


def _rotary(d: Draw) -> str:
    tables = ", ".join(f"float[{d.s + 8},{d.e // 2}] {name}" for name in "cs")
    return f"""(float[{d.n},{d.a},{d.s},{d.e}] x, int64[{d.n},{d.s}] p | {tables}) => (float y)
        {{ y = RotaryEmbedding(x, c, s, p) }}"""


def _rotary_contributed(d: Draw) -> str:
    tables = ", ".join(f"float[{d.s + 8},{d.e // 2}] {name}" for name in "cs")
    return f"""(float[{d.n},{d.s},{d.a * d.e}] x, int64[{d.n},{d.s}] p | {tables}) => (float y)
        {{ y = com.microsoft.RotaryEmbedding<num_heads = {d.a}, rotary_embedding_dim = {d.e}>(x, p, c, s) }}"""


def _rotary_of_three(d: Draw) -> str:
    tables, half = ", ".join(f"float[{d.s + 8},{d.e // 2}] {name}" for name in "cs"), d.e // 2
    return f"""(float[{d.n},{d.s},{d.a * d.e}] x, int64[3,{d.n},{d.s}] p | {tables}) => (float y)
        {{ y = com.microsoft.MRotaryEmbedding<num_heads = {d.a}, rotary_embedding_dim = {d.e},
            mrope_section = {[half // 2, half // 4, half // 4]}>(x, p, c, s) }}"""


def _joint(d: Draw) -> str:
    """Returns a random Attention as ONNX text, which itself projects to queries, keys and values, as in encoders."""
    width = d.a * d.e
    _costs(d, d.s)
    d.flops(6 * d.n, d.s, width, width)
    return f"""(float[{d.n},{d.s},{width}] x, int32[{d.n},{d.s}] m | float[{width},{3 * width}] w, float[{3 * width}] v)
        => (float y) {{ y = com.microsoft.Attention<num_heads = {d.a}>(x, w, v, m) }}"""


def _several(d: Draw) -> str:
    keys, width = d.pick(d.s, d.s, d.size(1, 512)), d.a * d.e
    _costs(d, keys)
    return f"""(float[{d.n},{d.s},{width}] q, float[{d.n},{keys},{width}] k, float[{d.n},{keys},{width}] v
        | float[{3 * width}] b) => (float y)
        {{ y = com.microsoft.MultiHeadAttention<num_heads = {d.a}>(q, k, v, b) }}"""


def _several_cache(d: Draw) -> str:
    new, old = f"float[{d.n},1,{d.a * d.e}]", f"float[{d.n},{d.a},{d.s},{d.e}]"
    return f"""({new} q, {new} k, {new} v, {old} a, {old} b) => (float y, float c, float d)
        {{ y, c, d = com.microsoft.MultiHeadAttention<num_heads = {d.a}>(q, k, v, , , , a, b) }}"""


def _shared_buffer(d: Draw) -> str:
    new, old = f"float[{d.n},1,{d.a * d.e}]", f"float[{d.n},{d.a},{d.s + 2},{d.e}]"
    return f"""({new} q, {new} k, {new} v, {old} a, {old} b, int32[1] n) => (float y, float c, float d)
        {{ y, c, d = com.microsoft.DecoderMaskedMultiHeadAttention
            <num_heads = {d.a}, past_present_share_buffer = 1>(q, k, v, , , a, b, n) }}"""


def _grouped(d: Draw) -> str:
    shared, width = max(1, d.a // d.pick(1, 2, 4)), d.a * d.e
    _costs(d, d.s)
    key = f"float[1,{d.s},{shared * d.e}]"
    return f"""(float[1,{d.s},{width}] q, {key} k, {key} v
        | float[{d.s + 8},{d.e // 2}] r, float[{d.s + 8},{d.e // 2}] s) => (float y, float c, float d)
        <int32[1] n = {{{d.s - 1}}}, int32 t = {{{d.s}}}> {{ y, c, d = com.microsoft.GroupQueryAttention
            <num_heads = {d.a}, kv_num_heads = {shared}, do_rotary = 1>(q, k, v, , , n, t, r, s) }}"""


def _grouped_cache(d: Draw) -> str:
    shared, width = max(1, d.a // d.pick(1, 2, 4)), d.a * d.e
    key, old = f"float[1,1,{shared * d.e}]", f"float[1,{shared},{d.s + 2},{d.e}]"
    return f"""(float[1,1,{width}] q, {key} k, {key} v, {old} a, {old} b, int32[1] n, int32 t)
        => (float y, float c, float d) {{ y, c, d = com.microsoft.GroupQueryAttention
            <num_heads = {d.a}, kv_num_heads = {shared}>(q, k, v, a, b, n, t) }}"""


def _linear(d: Draw) -> str:
    d.flops(8 * d.n * d.a, d.s, d.e, d.e)
    each, gate = f"float[{d.n},{d.s},{d.a * d.e}]", f"float[{d.n},{d.s},{d.a}]"
    return f"""({each} q, {each} k, {each} v, {gate} g, {gate} b) => (float y, float s)
        {{ y, s = com.microsoft.LinearAttention
            <q_num_heads = {d.a}, kv_num_heads = {d.a}, update_rule = "gated_delta">(q, k, v, , g, b) }}"""


def _linear_gate(d: Draw) -> str:
    gate = f"float[{d.n},{d.s},{d.a}]"
    return f"""({gate} a, {gate} b | float[{d.a}] d, float[{d.a}] s) => (float y, float z)
        {{ y, z = com.microsoft.LinearAttentionGate(a, d, s, b) }}"""


def _embedded(d: Draw) -> str:
    width, length = d.pick(128, 256, 384), max(2, d.s)
    return f"""(int32[{d.n},{length}] ids, int32[{d.n},{length}] segments
        | float[{d.size(100, 8000)},{width}] t, float[512,{width}] p, float[2,{width}] s,
        float[{width}] g, float[{width}] b) => (float y, int32 m)
        {{ y, m = com.microsoft.EmbedLayerNormalization(ids, segments, t, p, s, g, b) }}"""


def _embedded_bytes(d: Draw) -> str:
    width, length = d.pick(128, 256, 384), max(2, d.s)
    return f"""(int32[{d.n},{length}] ids, int32[{d.n},{length}] segments
        | uint8[{d.size(100, 8000)},{width}] t, uint8[512,{width}] p, uint8[2,{width}] s, uint8[{width}] g,
        uint8[{width}] b) => (float y, int32 m) <float a = {{0.1}}, uint8 z = {{3}}>
        {{ y, m = com.microsoft.QEmbedLayerNormalization
            (ids, segments, t, p, s, g, b, , a, a, a, a, a, z, z, z, z, z) }}"""


SWEEPS: dict[str, Sweep] = {
    "Attention": Sweep((_onnx, _onnx, _onnx_cache), 12, opset=23, most_bytes=_MASKED),
    "RotaryEmbedding": Sweep((_rotary,), 6, opset=23),
    "com.microsoft.RotaryEmbedding": Sweep((_rotary_contributed,), 8),
    "com.microsoft.MRotaryEmbedding": Sweep((_rotary_of_three,), 4),
    "com.microsoft.Attention": Sweep((_joint,), 14),
    "com.microsoft.MultiHeadAttention": Sweep((_several, _several, _several_cache), 15),
    "com.microsoft.DecoderMaskedMultiHeadAttention": Sweep((_shared_buffer,), 4),
    "com.microsoft.GroupQueryAttention": Sweep((_grouped, _grouped_cache), 12),
    "com.microsoft.LinearAttention": Sweep((_linear,), 4, most_bytes=_MASKED),
    "com.microsoft.LinearAttentionGate": Sweep((_linear_gate,), 4),
    "com.microsoft.EmbedLayerNormalization": Sweep((_embedded,), 8),
    "com.microsoft.QEmbedLayerNormalization": Sweep((_embedded_bytes,), 4),
}
