"""Particular values for the operators that ONNX Runtime adds to ONNX's own: lengths of caches, layouts, hash tables."""

from collections.abc import Callable, Mapping

import numpy as np

from costmodel.call import Call

__all__ = ["PREFERRED", "REQUIRED"]

_SEED = 2019  # as in costmodel.synthesis

_Rule = Callable[[Call], np.ndarray | None]


def _row_of(table: int, slot: int) -> _Rule:
    """Indices, read in `slot`, of rows of another argument."""
    return lambda call: np.random.default_rng(_SEED).integers(0, call.shape(table)[0], call.shape(slot))


def _constant(value: float) -> _Rule:
    return lambda call: np.array(value)


def _total_length(call: Call) -> int:
    """Tokens that a GroupQueryAttention looks at, the new ones included: as many as the cache holds afterwards."""
    if call.makes(1):
        return call.made(1)[2]
    new = call.shape(1 if call.has(1) else 0)[1]
    return new + (call.shape(3)[2] if call.has(3) else 0)


def _total_lengths(call: Call) -> np.ndarray:
    return np.array(_total_length(call))


def _last_positions(call: Call) -> np.ndarray:
    return np.array(_total_length(call) - 1)


def _whole_cache(call: Call) -> np.ndarray | None:
    """All but the place of the new token, where past and present share their memory."""
    return np.array(call.shape(5)[2] - 1) if call.has(5) else None


def _positions(call: Call) -> np.ndarray | None:
    """Of a rotation: one offset for all, or the place of each token. ONNX's own has its table of cosines here."""
    if not call.dtype(1).startswith("int"):
        return None
    return np.zeros(()) if call.shape(1) == (1,) else np.arange(call.shape(1)[-1]) % call.shape(2)[0]


def _gathered_rows(call: Call) -> np.ndarray:
    limit = call.shape(0)[call.integer("gather_axis", 0)]
    return np.random.default_rng(_SEED).integers(0, limit, call.shape(1))


def _even_starts(call: Call) -> np.ndarray:
    """Requests of one length, packed one behind the other."""
    return np.floor(np.linspace(0, call.shape(0)[0], call.shape(3)[0]))


def _image_size(call: Call) -> np.ndarray:
    return np.array(call.made()[2:4])


def _unit_boxes(call: Call) -> np.ndarray:
    corners = np.random.default_rng(_SEED).random(call.shape(1)) / 2
    corners[..., 2:] += 0.5
    return corners


def _all_steps(call: Call) -> np.ndarray:
    return np.array(call.shape(0)[0])


def _memory_steps(call: Call) -> np.ndarray:
    return np.array(call.shape(11)[1])


def _following_tokens(call: Call) -> np.ndarray:
    """Where a BifurcationDetector matched last: so that as many tokens follow as were predicted."""
    return np.array(call.shape(0)[0] + 1 - call.shape(3)[0] if call.has(3) else 0)


def _transposed_pads(call: Call) -> np.ndarray:
    """What a ConvTranspose is cut by, to give the recorded size."""
    rank = len(call.made()) - 2
    strides, dilations, extra = (
        call.attributes.get(name, {"ints": [default] * rank})["ints"]
        for name, default in (("strides", 1), ("dilations", 1), ("output_padding", 0))
    )
    totals = [
        (size - 1) * stride + dilation * (kernel - 1) + 1 + added - made
        for size, stride, dilation, kernel, added, made in zip(
            call.shape(0)[2:], strides, dilations, call.shape(1)[2:], extra, call.made()[2:], strict=True
        )
    ]
    return np.array([*(total // 2 for total in totals), *(total - total // 2 for total in totals)])


# As in costmodel.particular.
REQUIRED: Mapping[tuple[str, int], _Rule] = {
    ("EmbedLayerNormalization", 0): _row_of(2, 0),
    ("EmbedLayerNormalization", 1): _row_of(4, 1),
    ("EmbedLayerNormalization", 8): _row_of(3, 8),
    ("QEmbedLayerNormalization", 0): _row_of(2, 0),
    ("QEmbedLayerNormalization", 1): _row_of(4, 1),
    ("WordConvEmbedding", 0): _row_of(3, 0),
    ("GatherBlockQuantized", 1): _gathered_rows,
    ("GroupQueryAttention", 5): _last_positions,
    ("GroupQueryAttention", 6): _total_lengths,
    ("NGramHashMapping", 2): _constant(97),
    ("VarlenNGramHashMapping", 2): _constant(97),
    ("VarlenNGramHashMapping", 3): _even_starts,
    ("BifurcationDetector", 2): _following_tokens,
    ("CropAndResize", 2): _row_of(0, 2),
    ("CropAndResize", 3): _image_size,
    ("ConvTransposeWithDynamicPads", 2): _transposed_pads,
    ("AttnLSTM", 4): _all_steps,
    ("AttnLSTM", 12): _memory_steps,
    ("DynamicQuantizeLSTM", 4): _all_steps,
}
PREFERRED: Mapping[tuple[str, int], _Rule] = {
    ("RotaryEmbedding", 1): _positions,
    ("DecoderMaskedMultiHeadAttention", 7): _whole_cache,
    ("CropAndResize", 1): _unit_boxes,
}
