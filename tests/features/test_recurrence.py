"""Time of recurrent layers besides their products: what grows with the steps, and what does not."""

import pytest

from costmodel.features.contraction import Contraction
from costmodel.features.recurrence import layers_of_recurrence
from tests.features.test_work import work_of


@pytest.mark.parametrize(("op_type", "gates"), [("LSTM", 4), ("GRU", 3), ("RNN", 1)])
def test_each_step_takes_time(op_type: str, gates: int) -> None:
    """A layer with tiny matrices takes about as long as its steps do, and both directions twice as long as one."""

    def layers(steps: int, directions: int) -> int:
        return layers_of_recurrence(op_type, Contraction(steps * directions, 1, gates * 8, 8))

    prepared = layers(0, 1)
    assert prepared > 0
    assert layers(2000, 1) - prepared == layers(1000, 2) - prepared == 2 * (layers(1000, 1) - prepared) > 500


def test_the_gates_of_others_are_computed_in_vectors() -> None:
    """The activations of an RNN are computed one by one, those of a GRU with as many hidden units are not."""
    rnn, gru = (
        work_of(name, [(50, 1, 8), (1, 24 * gates, 8), (1, 24 * gates, 24)], [(50, 1, 1, 24)], weights=(1, 2))
        for name, gates in (("RNN", 1), ("GRU", 3))
    )
    assert rnn.one_by_one_flops > 0 == gru.one_by_one_flops
    assert 0 < rnn.inner_layers < gru.inner_layers


def test_other_layers_have_no_steps() -> None:
    """A product in many parts is no recurrence."""
    assert layers_of_recurrence("MatMul", Contraction(1000, 1, 8, 8)) == 0
    assert layers_of_recurrence("LSTM", None) == 0
