"""Layers described in code equal the layers that the runtime makes of models."""

from collections.abc import Callable

import numpy as np
import pytest
from onnx import ModelProto

from costmodel import constant, layer, weight
from costmodel.errors import LoweringError, ShapeError
from costmodel.estimate.blocks import Block, block_sequences
from costmodel.onnx_io.model import read_model
from costmodel.partition.decomposition import decompose
from costmodel.runtimes.ort.adapter import OnnxRuntime
from costmodel.synthetic.described_layers import LayerSpec

Parse = Callable[..., ModelProto]
Sequences = Callable[[Block], list[str]]


@pytest.fixture(scope="module")
def signatures(runtime: OnnxRuntime, tmp_path_factory: pytest.TempPathFactory) -> Sequences:
    """Returns the signatures of the sequences of a block."""
    cache = tmp_path_factory.mktemp("cache")
    return lambda block: [found.signature for found in block_sequences(block, runtime, "all", cache)]


def _of_model(runtime: OnnxRuntime, model: ModelProto) -> list[str]:
    return [segment.sequence.signature for segment in decompose("m", runtime.lower(read_model(model), "all")).segments]


def _inverted(channels: int, wide: int, size: int, kernel: int) -> list[LayerSpec]:
    """Returns an inverted residual block."""
    image, inner = (1, channels, size, size), (1, wide, size, size)
    return [
        layer("Conv", image, weight(wide, channels, 1, 1), weight(wide)),
        layer("HardSwish", inner),
        layer("Conv", inner, weight(wide, 1, kernel, kernel), weight(wide), group=wide, pads=[kernel // 2] * 4),
        layer("HardSwish", inner),
        layer("Conv", inner, weight(channels, wide, 1, 1), weight(channels)),
        layer("Add", image, image),
    ]


@pytest.mark.parametrize(("channels", "wide"), [(16, 64), (24, 72), (40, 120)])
def test_a_network_is_its_blocks(
    runtime: OnnxRuntime, parse: Parse, signatures: Sequences, channels: int, wide: int
) -> None:
    """Stem, two residual blocks and head, each described alone, have exactly the layers of their model.

    Activations and sums are fused, and convolutions blocked, as in the model, for any number of channels.
    """
    body = ""
    for place, before in enumerate(("s", "b0")):
        body += f"""
            e{place} = Conv<kernel_shape=[1,1]>({before}, we{place}, be{place}) h{place} = HardSwish(e{place})
            d{place} = Conv<kernel_shape=[5,5], group={wide}, pads=[2,2,2,2]>(h{place}, wd{place}, bd{place})
            g{place} = HardSwish(d{place}) p{place} = Conv<kernel_shape=[1,1]>(g{place}, wp{place}, bp{place})
            b{place} = Add(p{place}, {before})"""
    weights = {"ws": (channels, 3, 3, 3), "bs": (channels,)}
    for place in range(2):
        weights |= {
            f"we{place}": (wide, channels, 1, 1), f"be{place}": (wide,), f"wd{place}": (wide, 1, 5, 5),
            f"bd{place}": (wide,), f"wp{place}": (channels, wide, 1, 1), f"bp{place}": (channels,),
        }  # fmt: skip
    model = parse(
        "(float[1,3,32,32] x) => (float[1,?] y) "
        "{ c = Conv<kernel_shape=[3,3], pads=[1,1,1,1], strides=[2,2]>(x, ws, bs) "
        f"s = HardSwish(c) {body} a = GlobalAveragePool(b1) y = Flatten(a) }}",
        weights=weights,
        opset=18,
    )
    stem = (1, channels, 16, 16)
    blocks: list[Block] = [
        [
            layer("Conv", (1, 3, 32, 32), weight(channels, 3, 3, 3), weight(channels), pads=[1] * 4, strides=[2, 2]),
            layer("HardSwish", stem),
        ],
        _inverted(channels, wide, 16, 5),
        _inverted(channels, wide, 16, 5),
        [layer("GlobalAveragePool", stem), layer("Flatten", (1, channels, 1, 1))],
    ]
    expected = _of_model(runtime, model)
    found = [signature for block in blocks for signature in signatures(block)]
    assert sorted(found) == sorted(expected)


def test_what_is_no_image_is_lowered_as_it_is(runtime: OnnxRuntime, parse: Parse, signatures: Sequences) -> None:
    """Blocks without images, such as attention, are lowered without added layers."""
    model = parse(
        "(float[12,64,64] q, float[12,64,64] k) => (float[12,64,64] y) "
        "{ t = Transpose<perm=[0,2,1]>(k) s = MatMul(q, t) y = Softmax<axis=-1>(s) }",
        opset=18,
    )
    shape = (12, 64, 64)
    keys = layer("Transpose", shape, perm=[0, 2, 1])
    found = signatures([keys, layer("MatMul", shape, shape), layer("Softmax", shape, axis=-1)])
    assert len(found) == len(_of_model(runtime, model))


def test_operands_may_be_shapes_arrays_weights_and_constants(signatures: Sequences) -> None:
    """Operands may be shapes, arrays, weights and constants, and optional ones may be absent."""
    by_shape = signatures(layer("MatMul", (4, 8), weight(8, 16)))
    by_array = signatures(layer("MatMul", np.zeros((4, 8), np.float32), weight(8, 16)))
    assert by_shape == by_array
    assert len(signatures(layer("Reshape", (2, 3, 4), constant(2, 12)))) == 1
    assert len(signatures(layer("Clip", (2, 3), None, (), outputs=1))) == 1
    assert signatures(layer("Relu", np.zeros((4, 8), np.float64))) != signatures(layer("Relu", (4, 8)))


def test_descriptions_are_values() -> None:
    """Equal descriptions compare equal and can be dictionary keys."""
    assert layer("Conv", (1, 3, 8, 8), weight(4, 3, 1, 1), pads=[0] * 4) == layer(
        "Conv", (1, 3, 8, 8), weight(4, 3, 1, 1), pads=(0,) * 4
    )
    assert len({layer("Relu", (1, 8)), layer("Relu", (1, 8)), layer("Relu", (2, 8))}) == 2


def test_what_makes_no_sense_is_refused(signatures: Sequences) -> None:
    """Invalid layers are refused when described or when lowered."""
    with pytest.raises(ShapeError, match="every dimension must be 1 or more"):
        layer("Relu", (1, 0))
    with pytest.raises(ShapeError, match="a tensor of float12 cannot be priced"):
        weight(3, dtype="float12")
    with pytest.raises(LoweringError, match="Nothing is refused by onnxruntime"):
        signatures(layer("Nothing", (1, 8)))
