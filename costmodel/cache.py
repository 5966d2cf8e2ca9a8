"""Lowered graphs, kept by the content of their model."""

import hashlib
import json
import os
from contextlib import suppress
from pathlib import Path

from costmodel.graph import LayerGraph
from costmodel.model import Model
from costmodel.runtimes import Runtime, lowering_key

__all__ = ["CACHE_VERSION", "lower_cached"]

# Raised when the canonical form changes: what was lowered by older code is then lowered again.
CACHE_VERSION = 2


def lower_cached(runtime: Runtime, model: Model, level: str, folder: Path) -> LayerGraph:
    """`runtime.lower`, looked up under the model's content before it is done.

    Args:
        runtime: What lowers.
        model: Its digest covers graph and shapes, not weights.
        level: Optimisation level.
        folder: Of the cache; made if need be, and safe to delete.

    Raises:
        LoweringError: The runtime cannot build the model.
    """
    identity = f"{CACHE_VERSION} {lowering_key(runtime, level)} {model.digest}"
    path = folder / "lowered" / f"{hashlib.sha256(identity.encode()).hexdigest()}.json"
    try:
        return LayerGraph.from_dict(json.loads(path.read_text()))
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        pass  # absent or damaged: either way it is made anew
    graph = runtime.lower(model, level)
    partial = path.with_suffix(f".{os.getpid()}")
    with suppress(OSError):  # a cache that cannot be written costs time, not the answer
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            partial.write_text(json.dumps(graph.to_dict()))
            os.replace(partial, path)
        finally:
            partial.unlink(missing_ok=True)
    return graph
