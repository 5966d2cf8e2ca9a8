"""Anonymised models, as sent to a service: enough to price the model, and nothing else."""

from collections.abc import Callable, Mapping
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import onnx.defs
import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from hypothesis import given
from onnx import ModelProto, TensorProto, helper, numpy_helper

from costmodel.errors import ModelReadError
from costmodel.ir.graph import LayerGraph
from costmodel.onnx_io.anonymisation import anonymise
from costmodel.onnx_io.model import read_without_weights
from costmodel.partition.decomposition import decompose
from tests.zoo import ZOO

Lower = Callable[..., LayerGraph]

# Operators with learnt or data-dependent attributes, which are anonymised and so change the signature.
LEARNT = {
    "ImageScaler", "RegexFullMatch", "StringNormalizer", "StringSplit", "com.microsoft.Tokenizer",
    "ai.onnx.ml.CategoryMapper", "ai.onnx.ml.Imputer", "ai.onnx.ml.LabelEncoder", "ai.onnx.ml.LabelEncoder/words",
    "ai.onnx.ml.LinearClassifier", "ai.onnx.ml.LinearRegressor", "ai.onnx.ml.SVMClassifier",
    "ai.onnx.ml.SVMRegressor", "ai.onnx.ml.Scaler", "ai.onnx.ml.TreeEnsembleClassifier",
    "ai.onnx.ml.TreeEnsembleRegressor",
}  # fmt: skip
# Text attributes of published operators that are data.
TEXT_DATA = {
    "cats_strings", "classes_strings", "classlabels_strings", "default_string", "delimiter", "keys_strings", "locale",
    "pattern", "pool_strings", "stopwords", "string_vocabulary", "value_string", "value_strings", "values_strings",
}  # fmt: skip


def _signatures(graph: LayerGraph) -> list[str]:
    return [segment.sequence.signature for segment in decompose("m", graph, 1).segments]


def _sent(model: ModelProto) -> ModelProto:
    return ModelProto.FromString(anonymise(model).content)


def test_real_models_keep_their_signatures_and_get_their_names_back(
    light_models: Mapping[str, Path], light_name: str, lower: Lower, lowered_light: Callable[[str], LayerGraph]
) -> None:
    """The signatures of real models do not change, and names in the service's answer are restored."""
    expected = lowered_light(light_name)
    sent = anonymise(ModelProto.FromString(read_without_weights(light_models[light_name])))
    found = lower(ModelProto.FromString(sent.content))
    assert _signatures(found) == _signatures(expected)
    assert [sent.restore(layer.name) for layer in found.layers] == [layer.name for layer in expected.layers]


def test_every_operator_keeps_its_signature(lower: Lower) -> None:
    """Signatures do not change, except of operators with learnt values in attributes."""
    differing = set()
    for name, specimen in ZOO.items():
        model = specimen.model()
        if _signatures(lower(_sent(model))) != _signatures(lower(model)):
            differing.add(name)
    assert differing == LEARNT


def test_constants_that_the_runtime_shares_are_distinguished(parse: Callable[..., ModelProto], lower: Lower) -> None:
    """Different constants of equal type, such as a normalisation's four, stay different."""
    model = parse(
        "(float[1, 3, 8, 8] x) => (float[1, 3, 8, 8] y) { y = BatchNormalization(x, a, b, c, d) }",
        weights=dict.fromkeys("abcd", (3,)),
    )
    assert _signatures(lower(_sent(model))) == _signatures(lower(model))
    values = [numpy_helper.to_array(tensor) for tensor in _sent(model).graph.initializer]
    assert len({array.tobytes() for array in values}) == 4
    assert all(np.allclose(array, 1, atol=1e-6) for array in values)


def test_computed_shapes_are_still_found(parse: Callable[..., ModelProto], lower: Lower) -> None:
    """Shapes that depend on constant fractions, such as a Resize's scales, are still inferred."""
    model = parse(
        "(float[1, 3, 8, 8] x) => (float[1, 3, m, n] y) { s = Constant<value_floats = [1.0, 1.0]>() "
        "t = Constant<value = float[2] {2.0, 3.0}>() u = Concat<axis = 0>(s, t) y = Resize(x, , u) }"
    )
    assert _signatures(lower(_sent(model))) == _signatures(lower(model))


def test_a_symbolic_batch_stays_the_batch(parse: Callable[..., ModelProto], lower: Lower) -> None:
    """The symbolic batch dimension is renamed and still recognised as the batch."""
    model = parse("(float[secret_batch, 8] x, float[secret_batch, 8] w) => (float[a, b] y) { y = Add(x, w) }")
    assert _signatures(lower(_sent(model), batch=5)) == _signatures(lower(model, batch=5))


# No other data remains


def _fill(message: Message, depth: int, choice: int) -> None:
    """Put a secret into each text field that ONNX defines; `choice` selects one field of each oneof."""
    for descriptor in message.DESCRIPTOR.fields:
        name, group = descriptor.name, descriptor.containing_oneof
        if descriptor.type == FieldDescriptor.TYPE_MESSAGE:
            recursive = descriptor.message_type.name in ("GraphProto", "TypeProto")
            chosen = group is None or group.fields[choice % len(group.fields)] is descriptor
            if chosen and depth >= recursive:
                part = getattr(message, name).add() if descriptor.is_repeated else getattr(message, name)
                part.SetInParent()
                _fill(part, depth - recursive, choice)
        elif descriptor.type == FieldDescriptor.TYPE_STRING:
            _put(message, descriptor, f"secret {name}")
        elif descriptor.type == FieldDescriptor.TYPE_BYTES:
            _put(message, descriptor, f"secret {name}".encode())


def _put(message: Message, descriptor: FieldDescriptor, content: object) -> None:
    if descriptor.is_repeated:
        getattr(message, descriptor.name).append(content)
    else:
        setattr(message, descriptor.name, content)


def filled_model(choice: int) -> ModelProto:
    """Returns a model with a secret in every text field."""
    model = ModelProto()
    _fill(model, 3, choice)
    return model


@pytest.mark.parametrize("choice", range(6))
def test_no_text_of_the_file_is_sent(choice: int) -> None:
    """No text of graphs, subgraphs, functions or unknown fields is sent."""
    model = filled_model(choice)
    before = model.SerializeToString()
    content = anonymise(ModelProto.FromString(before + b"\xa2\x1f\x06secret")).content
    assert before.count(b"secret") > 200
    assert b"secret" not in content
    assert model.SerializeToString() == before


def test_text_of_public_operators_is_sent_only_if_it_is_a_setting() -> None:
    """Labels and learnt values are replaced; settings, such as a tree's branch modes, are sent."""
    node = helper.make_node(
        "TreeEnsembleClassifier", ["x"], ["y", "z"], domain="ai.onnx.ml", classlabels_strings=["secret", "fraud"],
        nodes_modes=["BRANCH_LEQ", "LEAF"], nodes_values=[0.123, 0.456], nodes_featureids=[3, 0],
    )  # fmt: skip
    model = helper.make_model(helper.make_graph([node], "g", [], []))
    (sent,) = _sent(model).graph.node
    attributes = {one.name: helper.get_attribute_value(one) for one in sent.attribute}
    assert attributes == {
        "classlabels_strings": [b"0", b"1"], "nodes_modes": [b"BRANCH_LEQ", b"LEAF"], "nodes_values": [0, 0],
        "nodes_featureids": [3, 0],
    }  # fmt: skip


def test_each_text_of_a_published_operator_is_known_to_be_a_setting_or_data() -> None:
    """Every text attribute of a published operator is classified as a setting or as data."""
    kinds = (onnx.defs.OpSchema.AttrType.STRING, onnx.defs.OpSchema.AttrType.STRINGS)
    texts = {
        name
        for schema in onnx.defs.get_all_schemas_with_history()
        if "training" not in schema.domain
        for name, attribute in schema.attributes.items()
        if attribute.type in kinds
    }
    sent = set()
    for name in texts:
        model = ModelProto()
        model.graph.node.add(op_type="Any").attribute.append(helper.make_attribute(name, "secret"))
        if b"secret" in anonymise(model).content:
            sent.add(name)
    assert texts - sent == TEXT_DATA


@given(
    st.sampled_from(["float32", "float64", "float16", "int8", "uint8", "int32", "int64", "bool"]),
    st.sampled_from([2, 3, 8, 9, 64, 65, 1000]),
    st.booleans(),
    st.integers(0, 2**32),
)
def test_values_are_sent_only_where_signatures_have_them(dtype: str, count: int, raw: bool, seed: int) -> None:
    """Up to 64 integers are sent; of up to eight floats, only which constants are equal; of others nothing."""
    array = np.random.default_rng(seed).integers(0, 100, count).astype(dtype)
    kind = helper.np_dtype_to_tensor_dtype(array.dtype)
    tensor = numpy_helper.from_array(array) if raw else helper.make_tensor("", kind, [count], array)
    model = ModelProto()
    model.graph.initializer.append(tensor)
    model.graph.node.add(op_type="Constant").attribute.append(helper.make_attribute("value", tensor))
    sent = _sent(model)
    for found in (sent.graph.initializer[0], sent.graph.node[0].attribute[0].t):
        if dtype in ("int64", "bool") and count <= 64:
            assert np.array_equal(numpy_helper.to_array(found), array)
        elif count <= 8:
            assert len(set(numpy_helper.to_array(found).tolist())) == 1
        else:
            assert found.data_location == TensorProto.EXTERNAL
            assert found.ByteSize() < 50


def test_sparse_values_are_not_sent() -> None:
    """Neither values nor indices of sparse tensors are sent."""
    values = numpy_helper.from_array(np.arange(100, dtype=np.float32), "w")
    indices = numpy_helper.from_array(np.arange(100, dtype=np.int64))
    model = ModelProto()
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [1000]))
    (sparse,) = _sent(model).graph.sparse_initializer
    assert list(sparse.dims) == [1000]
    assert sparse.ByteSize() < 30


def test_names_come_back_wherever_the_service_says_them() -> None:
    """Names are restored in derived names and in sentences; unrelated numbers are unchanged."""
    model = ModelProto()
    model.graph.node.add(op_type="Relu", input=["pixels"], output=["/a/relu"], name="first")
    sent = anonymise(model)
    assert sent.number("pixels") == "n0"
    assert sent.number("unheard") == "unheard"
    assert sent.restore("n1_nchwc") == "/a/relu_nchwc"
    assert sent.restore("n2/Fusion: input n0 axis 0 (batch_n0), n77, gn0") == (
        "first/Fusion: input pixels axis 0 (pixels), n77, gn0"
    )


def test_a_name_that_is_no_text_is_refused() -> None:
    """A name of invalid text is refused as a damaged file."""
    model = ModelProto()
    model.graph.node.add(name="abc")
    broken = ModelProto.FromString(model.SerializeToString().replace(b"abc", b"\xff\xfe\xfd"))
    with pytest.raises(ModelReadError, match="is no text"):
        anonymise(broken)
