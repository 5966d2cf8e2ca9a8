"""Inputs of a model that say how long its sequences are."""

from collections.abc import Callable

import pytest
from onnx import ModelProto

from costmodel.onnx_io.model import read_model
from costmodel.runtimes.base import RuntimeSettings
from costmodel.runtimes.ort.adapter import OnnxRuntime
from costmodel.synthetic.length_inputs import sequence_lengths
from costmodel.synthetic.values import model_inputs

Parse = Callable[..., ModelProto]


def _recurrent(path: str, length: str = "n") -> str:
    return f"""(float[20,1,8] x, int64[1] lengths) => (float y) <float[1,16,8] w = {{{",".join(["1"] * 128)}}},
        float[1,16,4] r = {{{",".join(["1"] * 64)}}}> {{ {path} y, h = LSTM<hidden_size = 4>(x, w, r, , {length}) }}"""


@pytest.mark.parametrize(
    "path",
    [
        "n = Cast<to = 6>(lengths)",
        "one = Constant<value = int64[1] {1}>() l, order = TopK(lengths, one) n = Cast<to = 6>(l)",
    ],
)
def test_lengths_are_those_of_the_sequences(
    parse: Parse, runtime: OnnxRuntime, settings: RuntimeSettings, path: str
) -> None:
    """A length gets as many steps as the layer has that it limits, and the model runs with it."""
    model = read_model(parse(_recurrent(path)))
    assert sequence_lengths(model.proto) == {"lengths": 20}
    assert model_inputs(model)["lengths"].tolist() == [20]
    runtime.open_model(model, settings).run()


def test_other_integers_are_no_lengths(parse: Parse) -> None:
    """An input that limits no sequence is not one, whether the model has recurrent layers or not."""
    assert sequence_lengths(read_model(parse(_recurrent("n = Cast<to = 6>(lengths)", ""))).proto) == {}
    assert sequence_lengths(read_model(parse("(int64[1] n) => (int64 y) { y = Neg(n) }")).proto) == {}
