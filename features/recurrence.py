"""Time of a recurrent layer besides its products and activations.

ONNX Runtime prepares a recurrent layer for some microseconds, and each step calls its products and activations anew. On
a Zen 3, a Zen 4, a Zen 5 and an Emerald Rapids these times are near constant multiples of the time of an empty layer
(docs/adr/0019).
"""

from costmodel.features.contraction import Contraction
from costmodel.features.products import RECURRENT

__all__ = ["UNIT_FLOPS", "layers_of_recurrence"]

# Empty layers that take as long as preparing an LSTM or a GRU, and an RNN; tenths of one for each step of a direction.
_PREPARED, _PREPARED_RNN = 30, 20
_TENTHS_OF_STEP, _TENTHS_OF_RNN_STEP = 9, 3
# For each hidden unit of an RNN in each step, whose activation is computed one by one, in simple operations; those of
# the gates of an LSTM and a GRU are computed in vectors.
UNIT_FLOPS = 400.0


def layers_of_recurrence(op_type: str, recurrence: Contraction | None) -> int:
    """Returns how many empty layers take as long as a recurrent layer takes besides its arithmetic; 0 for any other.

    Args:
        op_type: Operator of the layer.
        recurrence: The products of its steps, one after another.
    """
    if op_type not in RECURRENT or recurrence is None:
        return 0
    rnn = op_type == "RNN"
    prepared, tenths = (_PREPARED_RNN, _TENTHS_OF_RNN_STEP) if rnn else (_PREPARED, _TENTHS_OF_STEP)
    return prepared + tenths * recurrence.batch // 10
