"""A folder that caches the lowered graphs of models, by the content of the model and the runtime."""

import hashlib
import json
from contextlib import suppress
from pathlib import Path

from costmodel.atomic_write import atomic_file
from costmodel.ir.graph import LayerGraph
from costmodel.onnx_io.model import Model
from costmodel.runtimes.base import Runtime, lowering_key
from costmodel.runtimes.crashes import refusing_after_crashes

__all__ = ["CACHE_VERSION", "find_lowered", "lower_cached", "put_lowered"]

# Incremented when the canonical form changes, so that graphs from older code are lowered again.
CACHE_VERSION = 11


def lower_cached(runtime: Runtime, model: Model, level: str, folder: Path) -> LayerGraph:
    """Returns `runtime.lower(model, level)`, read from the cache if it is there and else added to it.

    Args:
        runtime: Runtime that lowers the model.
        model: Model to lower; its digest, which is the cache key, covers graph and shapes but not weights.
        level: Optimisation level, one of `costmodel.runtimes.base.LEVELS`.
        folder: Folder of the cache, created if necessary; it can be deleted at any time.

    Raises:
        LoweringError: The runtime cannot build the model, or has ended two processes that tried to lower it.
    """
    graph = find_lowered(runtime, model, level, folder)
    if graph is None:
        crashes = _path(runtime, model, level, folder).with_suffix(".crashes")
        with refusing_after_crashes(crashes, f"{runtime.name} {runtime.version} lowered {model.name}"):
            graph = runtime.lower(model, level)
        put_lowered(runtime, model, level, folder, graph)
    return graph


def find_lowered(runtime: Runtime, model: Model, level: str, folder: Path) -> LayerGraph | None:
    """Returns the lowered graph of a model from the cache; None if it is not there, or its entry is damaged."""
    try:
        return LayerGraph.from_dict(json.loads(_path(runtime, model, level, folder).read_text()))
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None


def put_lowered(runtime: Runtime, model: Model, level: str, folder: Path, graph: LayerGraph) -> None:
    """Adds the lowered graph of a model to the cache, if the cache can be written."""
    path = _path(runtime, model, level, folder)
    with suppress(OSError):  # if the cache cannot be written, the graph is still valid
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(path) as partial:
            partial.write_text(json.dumps(graph.to_dict()))


def _path(runtime: Runtime, model: Model, level: str, folder: Path) -> Path:
    identity = f"{CACHE_VERSION} {lowering_key(runtime, level)} {model.digest}"
    return folder / "lowered" / f"{hashlib.sha256(identity.encode()).hexdigest()}.json"
