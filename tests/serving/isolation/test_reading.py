"""What a reader says about a runtime that it cannot load."""

from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from costmodel.runtimes.base import Runtime
from costmodel.serving.isolation import reading
from costmodel.serving.isolation.limits import Limits


def test_a_runtime_that_a_confined_process_cannot_load_is_refused_with_a_way_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The refusal says how to send the layers instead of the file."""

    def forbidden(name: str) -> Runtime:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(reading, "get_runtime", forbidden)
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, (1, 8)) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "tiny", ports[:1], ports[1:])
    path = tmp_path / "tiny.onnx"
    onnx.save(helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 17)]), path)
    task = {"name": "tiny", "path": str(path), "runtime": "openvino", "level": "all", "granularity": 1}
    answer = reading.answer_task(task, {}, Limits())
    assert "costmodel lower MODEL --runtime openvino --json" in answer["message"]
