"""Search for all protobuf messages of one type in a message."""

import hypothesis.strategies as st
from google.protobuf.message import Message
from hypothesis import given
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, TrainingInfoProto

from costmodel.ir.protobuf import messages


def _fill(message: Message, kind: type, depth: int) -> int:
    """Put a message of `kind` into every field that takes one, down to a depth, and return their number."""
    found = 0
    for field in message.DESCRIPTOR.fields:
        inner = field.message_type
        if inner is None:
            continue
        if inner.full_name == kind.DESCRIPTOR.full_name or depth:
            value = getattr(message, field.name)
            child = value.add() if field.is_repeated else value
            child.SetInParent()
            found += inner.full_name == kind.DESCRIPTOR.full_name
            if depth:
                found += _fill(child, kind, depth - 1)
    return found


@given(st.sampled_from([TensorProto, GraphProto, NodeProto, AttributeProto]), st.integers(1, 6))
def test_every_field_of_the_schema_is_looked_into(kind: type, depth: int) -> None:
    """All messages are found in every field of the schema, at any depth."""
    model = ModelProto()
    assert len(list(messages(model, kind))) == 0
    there = _fill(model, kind, depth)
    assert len(list(messages(model, kind))) == there


def test_the_constants_of_the_main_graph_come_first() -> None:
    """Constants of the main graph are found first and in order, so that callers may rely on positions."""
    model = ModelProto()
    model.training_info.append(TrainingInfoProto(algorithm=GraphProto(initializer=[TensorProto(name="training")])))
    model.functions.add().attribute_proto.add().t.name = "function"
    model.graph.node.add().attribute.add().t.name = "attribute"
    model.graph.initializer.extend([TensorProto(name="a"), TensorProto(name="b")])
    names = [tensor.name for tensor in messages(model, TensorProto)]
    assert names[:3] == ["a", "b", "attribute"]
    assert set(names[3:]) == {"function", "training"}


def test_what_is_found_can_be_changed() -> None:
    """The found messages are those of the model, not copies."""
    model = ModelProto(graph=GraphProto(initializer=[TensorProto(name="a")]))
    for tensor in messages(model, TensorProto):
        tensor.name = "b"
    assert model.graph.initializer[0].name == "b"
