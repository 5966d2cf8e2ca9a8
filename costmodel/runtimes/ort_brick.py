"""A layer sequence as it would run inside a model, though it runs by itself (docs/adr/0005).

Inside a model a layer writes into memory that another layer has just let go of, reads weights that nobody has touched
since the last run, and a Reshape copies nothing. So results go to the arena that all sequences share, are freed with
the layer that made them, and never become outputs; weights lie in pages of their own, as ONNX Runtime lays them.
"""

import mmap
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from onnx import numpy_helper

from costmodel.network import build_network, external_tensor, input_indices, value_name, weight_indices
from costmodel.runtimes import RuntimeSettings
from costmodel.runtimes.ort_session import SessionRunner, new_session, ort_value, session_options, shared_arena
from costmodel.sequence import LayerSequence
from costmodel.synthesis import synthetic

__all__ = ["open_brick"]

_WEIGHTS = "weights.bin"
# Small weights go into the network, where shape inference finds them: scales of Resize say a shape.
_EMBEDDED_BYTES = 1024
_ALIGNMENT = 64
# Memory for a larger result is not used again before the caches have forgotten it, in a model with more of its kind.
_SOON_REUSED_BYTES = 2 << 20


def open_brick(sequence: LayerSequence, settings: RuntimeSettings) -> SessionRunner:
    """A session for `sequence`, which is in the layout of this host.

    Optimisation is off, because the layers are optimised already; bodies of If, Loop and Scan are kept in plain
    layout, so that a sequence with one is optimised as the model is, and must have its outputs for that.

    Raises:
        Exception: Whatever onnxruntime says of a network that it does not load.
    """
    indices = weight_indices(sequence)
    large = [i for i in indices if sequence.values[i].type.nbytes > _EMBEDDED_BYTES]
    weights = [external_tensor(value_name(i), sequence.values[i], _WEIGHTS) for i in large]
    weights += [numpy_helper.from_array(synthetic(sequence, i), value_name(i)) for i in indices if i not in set(large)]
    body = _has_body(sequence)
    network = build_network(sequence, weights=weights, discarding=not body)
    options = session_options(settings if body else replace(settings, level="none"), timed=True)
    if max((v.type.nbytes for v in sequence.values if v.role == "internal"), default=0) <= _SOON_REUSED_BYTES:
        options.add_session_config_entry("session.use_env_allocators", "1")
    options.enable_mem_pattern = False  # memory that is planned ahead is not that which was just let go of
    shared_arena()
    laid = _laid_out([synthetic(sequence, i) for i in large])
    values = [ort_value(array) for array in laid]
    if values:
        options.add_external_initializers([value_name(i) for i in large], values)
    session = new_session(network.SerializeToString(), options)
    runner = SessionRunner(session, {value_name(i): synthetic(sequence, i) for i in input_indices(sequence)}, values)
    if body:
        runner.check_end()
    return runner


def _laid_out(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Copies in one block of ordinary pages: numpy's own large ones are huge, which onnxruntime's weights are not."""
    starts = np.cumsum([0, *(-(-array.nbytes // _ALIGNMENT) * _ALIGNMENT for array in arrays)]).tolist()
    block = np.frombuffer(mmap.mmap(-1, max(1, starts[-1])), np.uint8)
    copies = []
    for start, array in zip(starts, arrays, strict=False):
        copy = block[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
        copy[...] = array
        copies.append(copy)
    return copies


def _has_body(sequence: LayerSequence) -> bool:
    return any("g" in value for layer in sequence.layers for value in layer.attributes.values())
