"""Attention, embedding, rotary embedding and cache operators, and recurrent layers."""

from tests.zoo.specimen import Specimen

__all__ = ["SPECIMENS"]

_ROTARY = """(float[2,3,16] x, int64[2,3] p, float[9,4] c, float[9,4] s) => (float[2,3,16] y)
    { y = com.microsoft.RotaryEmbedding<num_heads = 2, rotary_embedding_dim = 8>(x, p, c, s) }"""

SPECIMENS: dict[str, Specimen] = {
    "Attention": Specimen(
        """(float[2,3,16] q, float[2,5,16] k, float[2,5,16] v, bool[3,5] m) => (float[2,3,16] y)
        { y = Attention<q_num_heads = 2, kv_num_heads = 2>(q, k, v, m) }""",
        opset=23,
    ),
    "Attention/cache": Specimen(
        """(float[2,2,3,8] q, float[2,2,3,8] k, float[2,2,3,8] v, float[2,2,4,8] a, float[2,2,4,8] b)
        => (float[2,2,3,8] y, float[2,2,7,8] c, float[2,2,7,8] d)
        { y, c, d = Attention<is_causal = 1>(q, k, v, , a, b) }""",
        opset=23,
    ),
    "Attention/lengths": Specimen(
        """(float[2,2,3,8] q, float[2,2,6,8] k, float[2,2,6,8] v, int64[2] n) => (float[2,2,3,8] y)
        { y = Attention(q, k, v, , , , n) }""",
        opset=24,
    ),
    "RotaryEmbedding": Specimen(
        """(float[2,2,3,8] x, float[9,4] c, float[9,4] s, int64[2,3] p) => (float[2,2,3,8] y)
        { y = RotaryEmbedding(x, c, s, p) }""",
        opset=23,
    ),
    "com.microsoft.RotaryEmbedding": Specimen(_ROTARY),
    "com.microsoft.RotaryEmbedding/offset": Specimen(_ROTARY.replace("int64[2,3] p", "int64[1] p")),
    "com.microsoft.MRotaryEmbedding": Specimen(
        """(float[2,3,16] x, int64[3,2,3] p, float[9,4] c, float[9,4] s) => (float[2,3,16] y)
        { y = com.microsoft.MRotaryEmbedding
            <num_heads = 2, rotary_embedding_dim = 8, mrope_section = [2, 1, 1]>(x, p, c, s) }"""
    ),
    "com.microsoft.Attention": Specimen(
        """(float[2,8,16] x, float[16,48] w, float[48] v, int32[2,8] m) => (float[2,8,16] y)
        { y = com.microsoft.Attention<num_heads = 4>(x, w, v, m) }"""
    ),
    "com.microsoft.Attention/lengths": Specimen(
        """(float[2,8,16] x, float[16,48] w, float[48] v, int32[2] m) => (float[2,8,16] y)
        { y = com.microsoft.Attention<num_heads = 4>(x, w, v, m) }"""
    ),
    "com.microsoft.EmbedLayerNormalization": Specimen(
        """(int32[2,8] ids, int32[2,8] segments, int32[2,8] mask, float[9,16] t, float[8,16] p, float[1,16] s,
        float[16] g, float[16] b, float[16,48] w, float[48] v) => (float[2,8,16] y)
        { e, m = com.microsoft.EmbedLayerNormalization(ids, segments, t, p, s, g, b, mask)
          y = com.microsoft.Attention<num_heads = 4>(e, w, v, m) }""",
    ),
    "com.microsoft.EmbedLayerNormalization/positions": Specimen(
        """(int32[2,8] ids, float[9,16] t, float[4,16] p, float[16] g, float[16] b, int32[2,8] q)
        => (float[2,8,16] y, int32[2] m)
        { y, m = com.microsoft.EmbedLayerNormalization(ids, , t, p, , g, b, , q) }""",
    ),
    "com.microsoft.QEmbedLayerNormalization": Specimen(
        """(int32[2,8] ids, int32[2,8] segments) => (float[2,8,16] y, int32[2] m)
        <float a = {0.1}, uint8 z = {3}>
        { y, m = com.microsoft.QEmbedLayerNormalization
            (ids, segments, t, p, s, g, b, , a, a, a, a, a, z, z, z, z, z) }""",
        weights={
            "t": ("uint8", (9, 16)),
            "p": ("uint8", (8, 16)),
            "s": ("uint8", (2, 16)),
            "g": ("uint8", (16,)),
            "b": ("uint8", (16,)),
        },
    ),
    "com.microsoft.MultiHeadAttention": Specimen(
        """(float[2,3,16] q, float[2,5,16] k, float[2,5,16] v, float[48] b, int32[2,5] m) => (float[2,3,16] y)
        { y = com.microsoft.MultiHeadAttention<num_heads = 2>(q, k, v, b, m) }"""
    ),
    "com.microsoft.MultiHeadAttention/cache": Specimen(
        """(float[2,1,16] q, float[2,1,16] k, float[2,1,16] v, float[2,2,4,8] a, float[2,2,4,8] b)
        => (float[2,1,16] y, float[2,2,5,8] c, float[2,2,5,8] d)
        { y, c, d = com.microsoft.MultiHeadAttention<num_heads = 2>(q, k, v, , , , a, b) }"""
    ),
    "com.microsoft.DecoderMaskedMultiHeadAttention": Specimen(
        """(float[2,1,16] q, float[2,1,16] k, float[2,1,16] v, float[2,2,6,8] a, float[2,2,6,8] b, int32[1] n)
        => (float[2,1,16] y, float[2,2,6,8] c, float[2,2,6,8] d)
        { y, c, d = com.microsoft.DecoderMaskedMultiHeadAttention
            <num_heads = 2, past_present_share_buffer = 1>(q, k, v, , , a, b, n) }"""
    ),
    "com.microsoft.GroupQueryAttention": Specimen(
        """(float[2,1,32] q, float[2,1,16] k, float[2,1,16] v, float[2,2,6,8] a, float[2,2,6,8] b, int32[2] n, int32 t)
        => (float[2,1,32] y, float[2,2,p,8] c, float[2,2,p,8] d)
        { y, c, d = com.microsoft.GroupQueryAttention<num_heads = 4, kv_num_heads = 2>(q, k, v, a, b, n, t) }"""
    ),
    "com.microsoft.GroupQueryAttention/prompt": Specimen(
        """(float[1,5,64] q, float[1,5,32] k, float[1,5,32] v, int32[1] n, int32 t, float[9,8] r, float[9,8] s)
        => (float[1,5,64] y, float[1,2,p,16] c, float[1,2,p,16] d)
        { y, c, d = com.microsoft.GroupQueryAttention
            <num_heads = 4, kv_num_heads = 2, do_rotary = 1>(q, k, v, , , n, t, r, s) }"""
    ),
    "com.microsoft.LinearAttention": Specimen(
        """(float[2,3,16] q, float[2,3,16] k, float[2,3,16] v, float[2,3,2] g, float[2,3,2] b)
        => (float[2,3,16] y, float[2,2,8,8] s)
        { y, s = com.microsoft.LinearAttention
            <q_num_heads = 2, kv_num_heads = 2, update_rule = "gated_delta">(q, k, v, , g, b) }"""
    ),
    "com.microsoft.LinearAttentionGate": Specimen(
        """(float[2,3,4] a, float[4] d, float[4] s, float[2,3,4] b) => (float[2,3,4] y, float[2,3,4] z)
        { y, z = com.microsoft.LinearAttentionGate(a, d, s, b) }"""
    ),
    "LSTM": Specimen(
        """(float[5,2,8] x, float[1,24,8] w, float[1,24,6] r, float[1,48] b, int32[2] l) => (float[5,1,2,6] y)
        { y = LSTM<hidden_size = 6>(x, w, r, b, l) }""",
    ),
    "LSTM/states": Specimen(
        """(float[5,2,8] x, float[1,24,8] w, float[1,24,6] r, float[1,2,6] h, float[1,2,6] c)
        => (float[1,2,6] y, float[1,2,6] z) { , y, z = LSTM<hidden_size = 6>(x, w, r, , , h, c) }""",
    ),
    "GRU": Specimen(
        """(float[5,2,8] x, float[2,18,8] w, float[2,18,6] r) => (float[5,2,2,6] y)
        { y = GRU<hidden_size = 6, direction = "bidirectional">(x, w, r) }""",
    ),
    "RNN": Specimen(
        """(float[5,2,8] x, float[1,6,8] w, float[1,6,6] r) => (float[5,1,2,6] y, float[1,2,6] h)
        { y, h = RNN<hidden_size = 6>(x, w, r) }""",
    ),
    "com.microsoft.DynamicQuantizeLSTM": Specimen(
        """(float[5,2,8] x, float[1,48] b) => (float[5,1,2,6] y)
        { y = com.microsoft.DynamicQuantizeLSTM<hidden_size = 6>(x, w, r, b, , , , , s, z, s, z) }""",
        weights={
            "w": ("int8", (1, 8, 24)),
            "r": ("int8", (1, 6, 24)),
            "s": ("float32", (1,)),
            "z": ("int8", (1,)),
        },
    ),
    "com.microsoft.AttnLSTM": Specimen(
        """(float[5,2,8] x, float[1,24,16] w, float[1,24,6] r, float[1,6,4] q, float[1,9,4] k, float[1,4] v,
        float[2,3,9] m, float[1,15,8] a) => (float[5,1,2,6] y) <int32[2] n = {3, 3}>
        { y = com.microsoft.AttnLSTM<hidden_size = 6>(x, w, r, , , , , , q, k, v, m, n, a) }""",
    ),
}
