"""A task for a reader process."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from costmodel.runtimes.base import DEFAULT_RUNTIME

__all__ = ["Task"]


@dataclass(frozen=True, slots=True)
class Task:
    """A task for a reader process: to lower and decompose one model.

    Attributes:
        name: Name of the model.
        path: ONNX file of the model; None if `graph` is given.
        graph: Model as a graph of layers, in the form that `LayerGraph.to_dict` returns; None if `path` is given.
        runtime: Name of the runtime that lowers the model.
        level: Level to which the runtime optimises the model: none, basic, extended or all.
        granularity: Maximum number of layers in a layer sequence.
        batch: Batch size, as in `costmodel.onnx_io.model.read_model`.
        shapes: Shapes of inputs of the model by name, as in `costmodel.onnx_io.model.read_model`.
        values: Values of inputs of the model by name, as in `costmodel.onnx_io.model.read_model`.
    """

    name: str
    path: Path | None = None
    graph: Mapping[str, Any] | None = None
    runtime: str = DEFAULT_RUNTIME
    level: str = "all"
    granularity: int = 1
    batch: int | None = None
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    values: Mapping[str, float] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Returns the task in the form in which it is sent to a reader; JSON-serialisable."""
        document: dict[str, Any] = {
            "name": self.name, "runtime": self.runtime, "level": self.level, "granularity": self.granularity,
            "batch": self.batch, "shapes": dict(self.shapes), "values": dict(self.values),
        }  # fmt: skip
        if self.graph is not None:
            document["graph"] = self.graph
        else:
            document["path"] = str(self.path)
        return document
