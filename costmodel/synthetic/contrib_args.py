"""Rules that choose values for arguments of ONNX Runtime's contrib operators: cache lengths, positions, hash tables."""

from collections.abc import Mapping

import numpy as np

from costmodel.ir.layer_view import LayerView
from costmodel.synthetic.argument_rules import SEED, Rule, random_below, row_of

__all__ = ["PREFERRED", "REQUIRED"]


def _constant(value: float) -> Rule:
    return lambda view: np.array(value)


def _total_length(view: LayerView) -> int:
    """Returns the number of tokens that a GroupQueryAttention attends to: those in the key cache after the run."""
    if view.has_output(1):
        return view.output_shape(1)[2]
    new = view.input_shape(1 if view.has_input(1) else 0)[1]
    return new + (view.input_shape(3)[2] if view.has_input(3) else 0)


def _total_lengths(view: LayerView) -> np.ndarray:
    return np.array(_total_length(view))


def _last_positions(view: LayerView) -> np.ndarray:
    return np.array(_total_length(view) - 1)


def _past_length(view: LayerView) -> np.ndarray | None:
    """Returns the number of past tokens of a DecoderMaskedMultiHeadAttention: buffer length less the new token.

    Returns None if past and present do not share a buffer.
    """
    return np.array(view.input_shape(5)[2] - 1) if view.has_input(5) else None


def _positions(view: LayerView) -> np.ndarray | None:
    """Returns the token positions for a RotaryEmbedding: one offset for all tokens, or the position of each token.

    Returns None for ONNX's own RotaryEmbedding, whose argument in this place is the cosine cache.
    """
    if not view.input_dtype(1).startswith("int"):
        return None
    return np.zeros(()) if view.input_shape(1) == (1,) else np.arange(view.input_shape(1)[-1]) % view.input_shape(2)[0]


def _gathered_rows(view: LayerView) -> np.ndarray:
    limit = view.input_shape(0)[view.integer("gather_axis", 0)]
    return random_below(limit, view.input_shape(1))


def _request_starts(view: LayerView) -> np.ndarray:
    """Returns the offsets at which the requests packed into one input start, all requests being equally long."""
    return np.floor(np.linspace(0, view.input_shape(0)[0], view.input_shape(3)[0]))


def _image_size(view: LayerView) -> np.ndarray:
    return np.array(view.output_shape()[2:4])


def _unit_boxes(view: LayerView) -> np.ndarray:
    corners = np.random.default_rng(SEED).random(view.input_shape(1)) / 2
    corners[..., 2:] += 0.5
    return corners


def _all_steps(view: LayerView) -> np.ndarray:
    return np.array(view.input_shape(0)[0])


def _memory_steps(view: LayerView) -> np.ndarray:
    return np.array(view.input_shape(11)[1])


def _previous_match(view: LayerView) -> np.ndarray:
    """Returns the position of a BifurcationDetector's previous match that gives the output its recorded length.

    From that position on, there is one source token fewer than there are predicted tokens.
    """
    return np.array(view.input_shape(0)[0] + 1 - view.input_shape(3)[0] if view.has_input(3) else 0)


def _transposed_pads(view: LayerView) -> np.ndarray:
    """Returns the pads with which a ConvTransposeWithDynamicPads produces an output of the recorded shape."""
    rank = len(view.output_shape()) - 2
    strides, dilations, extra = (
        view.attributes.get(name, {"ints": [default] * rank})["ints"]
        for name, default in (("strides", 1), ("dilations", 1), ("output_padding", 0))
    )
    totals = [
        (size - 1) * stride + dilation * (kernel - 1) + 1 + added - made
        for size, stride, dilation, kernel, added, made in zip(
            view.input_shape(0)[2:],
            strides,
            dilations,
            view.input_shape(1)[2:],
            extra,
            view.output_shape()[2:],
            strict=True,
        )
    ]
    return np.array([*(total // 2 for total in totals), *(total - total // 2 for total in totals)])


# See costmodel.synthetic.argument_constraints for the meaning of these tables.
REQUIRED: Mapping[tuple[str, int], Rule] = {
    ("EmbedLayerNormalization", 0): row_of(2, 0),
    ("EmbedLayerNormalization", 1): row_of(4, 1),
    ("EmbedLayerNormalization", 8): row_of(3, 8),
    ("QEmbedLayerNormalization", 0): row_of(2, 0),
    ("QEmbedLayerNormalization", 1): row_of(4, 1),
    ("WordConvEmbedding", 0): row_of(3, 0),
    ("GatherBlockQuantized", 1): _gathered_rows,
    ("GroupQueryAttention", 5): _last_positions,
    ("GroupQueryAttention", 6): _total_lengths,
    ("NGramHashMapping", 2): _constant(97),
    ("VarlenNGramHashMapping", 2): _constant(97),
    ("VarlenNGramHashMapping", 3): _request_starts,
    ("BifurcationDetector", 2): _previous_match,
    ("CropAndResize", 2): row_of(0, 2),
    ("CropAndResize", 3): _image_size,
    ("ConvTransposeWithDynamicPads", 2): _transposed_pads,
    ("AttnLSTM", 4): _all_steps,
    ("AttnLSTM", 12): _memory_steps,
    ("DynamicQuantizeLSTM", 4): _all_steps,
}
PREFERRED: Mapping[tuple[str, int], Rule] = {
    ("RotaryEmbedding", 1): _positions,
    ("DecoderMaskedMultiHeadAttention", 7): _past_length,
    ("CropAndResize", 1): _unit_boxes,
}
