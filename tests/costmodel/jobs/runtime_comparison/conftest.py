"""Fixtures that the tests of comparisons share."""

from collections.abc import Callable
from pathlib import Path

import pytest
from onnx import ModelProto


@pytest.fixture
def target(tmp_path: Path, parse: Callable[..., ModelProto]) -> Path:
    """A folder of two models, of which both have a convolution, and one a pooling layer."""
    folder = tmp_path / "models"
    folder.mkdir()
    pooled = parse(
        """(float[1,3,64,64] x) => (float[1,8,31,31] y) {
            c = Conv(x, w)
            r = Relu(c)
            m = MaxPool<kernel_shape=[2,2], strides=[2,2]>(r)
            y = Softmax(m)
        }""",
        weights={"w": (8, 3, 3, 3)},
    )
    plain = parse(
        """(float[1,3,96,96] x) => (float[1,4,94,94] y) {
            c = Conv(x, w)
            y = Relu(c)
        }""",
        weights={"w": (4, 3, 3, 3)},
    )
    for name, model in (("pooled", pooled), ("plain", plain)):
        (folder / f"{name}.onnx").write_bytes(model.SerializeToString())
    return folder
