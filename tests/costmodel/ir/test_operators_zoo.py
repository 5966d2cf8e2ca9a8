"""Every operator that ONNX Runtime runs on CPUs is lowered, decomposed and run from a tiny model."""

from collections.abc import Callable

import pytest
from onnxruntime.capi.onnxruntime_pybind11_state import get_all_opkernel_def

from costmodel.errors import LoweringError, ModelError
from costmodel.ir.graph import Layer, LayerGraph
from costmodel.partition.decomposition import decompose
from tests.zoo import OTHER_PROCESSORS, ZOO, Specimen

Lower = Callable[..., LayerGraph]

# Models with inputs or outputs that are no tensors of numbers are refused; the message contains this text.
REFUSED = {
    "ai.onnx.ml.ZipMap": (
        "(float[3,2] x) => (seq(map(int64, float)) y) { y = ai.onnx.ml.ZipMap<classlabels_int64s = [0, 1]>(x) }",
        "y is a sequence, which only layers in the middle of a model may exchange",
    ),
    "ai.onnx.ml.CastMap": (
        '(map(int64, float) x) => (float y) { y = ai.onnx.ml.CastMap<cast_to = "TO_FLOAT">(x) }',
        "input x is of the type map",
    ),
    "ai.onnx.ml.DictVectorizer": (
        "(map(int64, float) x) => (float y) { y = ai.onnx.ml.DictVectorizer<int64_vocabulary = [0, 1]>(x) }",
        "input x is of the type map",
    ),
    "com.microsoft.SparseToDenseMatMul": (
        "(sparse_tensor(float[3,3]) x, float[3,3] w) => (float y) { y = com.microsoft.SparseToDenseMatMul(x, w) }",
        "input x is of the type sparse_tensor",
    ),
}

# Operators without a model in the zoo, and the reason.
EXCEPTIONS = {
    **dict.fromkeys(
        ("com.microsoft.BeamSearch", "com.microsoft.GreedySearch", "com.microsoft.Sampling"),
        "a whole generation, around a decoder with the ports of one exporter: no tiny model of it is real",
    ),
    "com.microsoft.WhisperBeamSearch": "the same, around an encoder and a decoder",
    "com.microsoft.SparseAttention": "writes over its inputs: outputs have to be bound to the same memory",
}


def operator_of(layer: Layer) -> str:
    """Returns the name of a layer's operator, with its domain."""
    return f"{layer.domain}.{layer.op_type}" if layer.domain else layer.op_type


KERNELS = {f"{k.domain}.{k.op_name}" if k.domain else k.op_name for k in get_all_opkernel_def()}


@pytest.mark.parametrize("kind", ZOO)
def test_every_sequence_with_an_operator_runs(kind: str, lower: Lower, run_isolated: Callable[..., None]) -> None:
    """The layer of every operator runs in isolation on synthetic weights, indices and sizes."""
    operator = kind.partition("/")[0]
    if operator not in KERNELS:
        pytest.skip("this release of onnxruntime does not have it")
    found = set()
    for level in ("none", "all"):
        graph = lower(ZOO[kind].model(), level)
        found |= {operator_of(layer) for layer in graph.layers}
        run_isolated(graph, 1, 2)
    assert operator in found


def test_the_zoo_is_complete() -> None:
    """Every operator that the runtime registers for CPUs has a model here or a reason for having none."""
    shown = {kind.partition("/")[0] for kind in ZOO} | OTHER_PROCESSORS
    assert KERNELS - shown - REFUSED.keys() - EXCEPTIONS.keys() == set()
    assert (REFUSED.keys() | EXCEPTIONS.keys()) & shown == set()


@pytest.mark.parametrize("operator", REFUSED)
def test_what_is_no_tensor_is_refused(operator: str, lower: Lower) -> None:
    """A map, a sequence or a sparse tensor as a model's input or output is named in one sentence."""
    text, sentence = REFUSED[operator]
    with pytest.raises(ModelError, match=sentence):
        lower(Specimen(text).model())


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('(string[3] s) => (bool[3] y) { y = RegexFullMatch<pattern = "a">(s) }', "input s has elements of string"),
        ("(int64[3] x) => (string[3] y) { y = Cast<to = 8>(x) }", "y is a string, which only layers in the middle"),
        (
            """(int64[3] x) => (bool[3] y) <string[1] k = {"a"}>
            { a = Cast<to = 8>(x) b = StringConcat(a, k) y = RegexFullMatch<pattern = "a">(b) }""",
            "k is a string, which only layers in the middle",
        ),
        ("(seq(float[2]) s) => (float y) { y = ConcatFromSequence<axis = 0>(s) }", "input s is of the type sequence"),
        ("(optional(float[2]) o) => (float y) { y = OptionalGetElement(o) }", "input o is of the type optional"),
        ("(float[2] x) => (seq(float[2]) s) { s = SequenceConstruct(x, x) }", "s is a sequence, which only layers"),
    ],
)
def test_strings_and_sequences_stay_within_a_model(text: str, sentence: str, lower: Lower) -> None:
    """Strings and sequences are refused as inputs, outputs or weights of a model."""
    with pytest.raises(ModelError, match=sentence):
        lower(Specimen(text).model())


def test_a_branch_that_contradicts_itself(lower: Lower) -> None:
    """A model with an invalid branch is refused by the runtime, with the reason, even if it is never taken."""
    text = """(bool c, float[4,6] x, float[5,6] w) => (float[4,6] y)
        { y = If (c) <then_branch = g () => (float[4,6] a) { a = Add(x, w) },
                      else_branch = h () => (float[4,6] b) { b = Relu(x) }> }"""
    with pytest.raises(LoweringError, match=r"is refused by onnxruntime .* Incompatible dimensions"):
        lower(Specimen(text).model())


def test_a_sequence_is_never_fed(lower: Lower) -> None:
    """The layers that make and read an ONNX sequence are one layer sequence, without unrelated layers."""
    kind = "SequenceConstruct/beside_another_branch"
    segments = decompose("tiny", lower(ZOO[kind].model(), "none"), 1).segments
    assert sorted(segment.sequence.kind for segment in segments) == [
        "Concat",
        "Relu",
        "SequenceConstruct+ConcatFromSequence",
        "Sigmoid",
    ]
