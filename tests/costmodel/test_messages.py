"""Messages of one kind, found wherever a schema lets them stand."""

import hypothesis.strategies as st
from google.protobuf.message import Message
from hypothesis import given
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, TrainingInfoProto

from costmodel.messages import messages


def _fill(message: Message, kind: type, depth: int) -> int:
    """Put one message of `kind` into every field that takes one, down to a depth; gives how many there are."""
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
    """As many are found as there are fields that may hold one, at any depth, in places nobody has thought of."""
    model = ModelProto()
    assert len(list(messages(model, kind))) == 0
    there = _fill(model, kind, depth)
    assert len(list(messages(model, kind))) == there


def test_the_constants_of_the_main_graph_come_first() -> None:
    """Who counts on their number may go by position."""
    model = ModelProto()
    model.training_info.append(TrainingInfoProto(algorithm=GraphProto(initializer=[TensorProto(name="training")])))
    model.functions.add().attribute_proto.add().t.name = "function"
    model.graph.node.add().attribute.add().t.name = "attribute"
    model.graph.initializer.extend([TensorProto(name="a"), TensorProto(name="b")])
    names = [tensor.name for tensor in messages(model, TensorProto)]
    assert names[:3] == ["a", "b", "attribute"]
    assert set(names[3:]) == {"function", "training"}


def test_what_is_found_can_be_changed() -> None:
    """The messages are those of the model, not copies."""
    model = ModelProto(graph=GraphProto(initializer=[TensorProto(name="a")]))
    for tensor in messages(model, TensorProto):
        tensor.name = "b"
    assert model.graph.initializer[0].name == "b"
