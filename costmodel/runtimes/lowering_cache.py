"""A folder that caches the lowered graphs of models, by the content of the model and the runtime."""

import hashlib
import json
from contextlib import suppress
from pathlib import Path

from costmodel.atomic_write import atomic_file
from costmodel.ir.graph import LayerGraph
from costmodel.onnx_io.model import Model
from costmodel.runtimes.base import Runtime, lowering_key

__all__ = ["CACHE_VERSION", "lower_cached"]

# Incremented when the canonical form changes, so that graphs from older code are lowered again.
CACHE_VERSION = 3


def lower_cached(runtime: Runtime, model: Model, level: str, folder: Path) -> LayerGraph:
    """Returns `runtime.lower(model, level)`, read from the cache if it is there and else added to it.

    Args:
        runtime: Runtime that lowers the model.
        model: Model to lower; its digest, which is the cache key, covers graph and shapes but not weights.
        level: Optimisation level, one of `costmodel.runtimes.base.LEVELS`.
        folder: Folder of the cache, created if necessary; it can be deleted at any time.

    Raises:
        LoweringError: The runtime cannot build the model.
    """
    identity = f"{CACHE_VERSION} {lowering_key(runtime, level)} {model.digest}"
    path = folder / "lowered" / f"{hashlib.sha256(identity.encode()).hexdigest()}.json"
    try:
        return LayerGraph.from_dict(json.loads(path.read_text()))
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        pass  # the entry is absent or damaged: in both cases the model is lowered
    graph = runtime.lower(model, level)
    with suppress(OSError):  # if the cache cannot be written, the result is still valid
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(path) as partial:
            partial.write_text(json.dumps(graph.to_dict()))
    return graph
