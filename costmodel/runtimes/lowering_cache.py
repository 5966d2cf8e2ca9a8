"""A cache of lowered graphs in a folder, keyed by the content of their models."""

import hashlib
import json
import os
from contextlib import suppress
from pathlib import Path

from costmodel.ir.graph import LayerGraph
from costmodel.onnx_io.model import Model
from costmodel.runtimes.base import Runtime, lowering_key

__all__ = ["CACHE_VERSION", "lower_cached"]

# Incremented when the canonical form changes, so that graphs from older code are lowered again.
CACHE_VERSION = 2


def lower_cached(runtime: Runtime, model: Model, level: str, folder: Path) -> LayerGraph:
    """Returns `runtime.lower(model, level)`, from the cache if it is there.

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
    partial = path.with_suffix(f".{os.getpid()}")
    with suppress(OSError):  # if the cache cannot be written, the result is still valid
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            partial.write_text(json.dumps(graph.to_dict()))
            os.replace(partial, path)
        finally:
            partial.unlink(missing_ok=True)
    return graph
