"""Lowers models on the workers of a Dask cluster: the part of a prediction of many models that takes long.

Models travel without their weights. The graphs go into the cache of lowered graphs, where a prediction finds them, so
that its results are those of a prediction without a cluster.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from onnx import ModelProto

from costmodel.cluster import Cluster
from costmodel.errors import ClusterError
from costmodel.ir.graph import LayerGraph, TensorType
from costmodel.onnx_io.model import Model
from costmodel.progress import Progress, no_progress
from costmodel.runtimes.base import Runtime, get_runtime, lowering_key
from costmodel.runtimes.lowering_cache import find_lowered, put_lowered

__all__ = ["lower_on_cluster"]

_WAIT_S = 5.0


def lower_on_cluster(
    address: str,
    models: Sequence[Model],
    runtime: Runtime,
    level: str,
    cache: Path,
    *,
    progress: Progress | None = None,
) -> int:
    """Lowers the models that are not in the cache on the workers of a cluster; returns how many that were.

    A model that a worker cannot lower, or would lower in another way than this host, is left to this host, which then
    reports the error with the model's name.

    Args:
        address: Address of the scheduler of the cluster.
        models: Models to lower.
        runtime: Runtime that would lower them here.
        level: Optimisation level.
        cache: Folder of the cache of lowered graphs.
        progress: Progress callback.

    Raises:
        ClusterError: The cluster cannot be reached or was lost, or has no worker.
    """
    report = progress or no_progress("")
    missing = {model.digest: model for model in models if find_lowered(runtime, model, level, cache) is None}
    key = lowering_key(runtime, level)
    lowered = 0
    with Cluster.connect(address) as cluster:
        if not cluster.workers():
            raise ClusterError(
                f"the cluster at {address} has no worker: start `dask worker {address}` with costmodel installed"
            )
        tasks = {f"costmodel-lower-{key}-{digest}": model for digest, model in missing.items()}
        for task, model in tasks.items():
            content = model.proto.SerializeToString()
            cluster.submit(task, _lower, model.name, content, dict(model.inputs), runtime.name, level)
        waiting = dict(tasks)
        total = len(tasks)
        while waiting:
            finished = cluster.next_finished(_WAIT_S)
            if finished is None:
                if not cluster.workers():
                    raise ClusterError(f"the last worker has left the cluster at {address}: start one and run again")
                continue
            model = waiting.pop(finished.key)
            report(total - len(waiting), total, model.name)
            if finished.error is None and finished.result[0] == key:
                put_lowered(runtime, model, level, cache, LayerGraph.from_dict(json.loads(finished.result[1])))
                lowered += 1
    return lowered


def _lower(name: str, content: bytes, inputs: Mapping[str, TensorType], runtime: str, level: str) -> tuple[str, str]:
    """Lowers a model; returns what the result depends on besides the model, and the graph as JSON."""
    found = get_runtime(runtime)
    graph = found.lower(Model(name, ModelProto.FromString(content), inputs), level)
    return lowering_key(found, level), json.dumps(graph.to_dict())
