"""Opens layer sequences in isolation so that they run as they would inside a model (docs/adr/0005).

Inside a model, a layer writes into memory that another layer has just freed, its weights have not been read since the
last run, and a Reshape copies nothing. Therefore results are allocated in an arena that all sequences share, are freed
with the layer that produced them, and never become outputs of the network. Weights and inputs are in aligned memory, as
ONNX Runtime allocates them.
"""

import atexit
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
from onnx import numpy_helper

from costmodel.ir.sequence import LayerSequence, input_indices, weight_indices
from costmodel.runtimes.base import RuntimeSettings
from costmodel.runtimes.ort.session import SessionRunner, new_session, ort_value, session_options, shared_arena
from costmodel.synthetic.aligned_memory import aligned_arrays, aligned_copies, is_aligned
from costmodel.synthetic.index_inputs import index_limits
from costmodel.synthetic.network import build_network, external_tensor, value_name
from costmodel.synthetic.values import numpy_type, synthetic_value
from costmodel.synthetic.weights import write_weight

__all__ = ["WEIGHTS_FOLDER", "open_isolated"]

_WEIGHTS = "weights.bin"
# Key of the session option that names the folder with the files of external weights.
WEIGHTS_FOLDER = "session.model_external_initializers_file_folder_path"
# Smaller weights are embedded in the network, where shape inference finds them: the scales of Resize determine a shape.
_EMBEDDED_BYTES = 1024
# In a model with results larger than this share of the level 3 cache, their memory is no longer in the caches when it
# is used again. Sequences with such results therefore do not use the shared arena.
_SOON_REUSED_SHARE = 1 / 16
_L3_FILE = Path("/sys/devices/system/cpu/cpu0/cache/index3/size")
_DEFAULT_L3_KIB = 32 << 10


def open_isolated(sequence: LayerSequence, settings: RuntimeSettings, patience_s: float) -> SessionRunner:
    """Opens a session for `sequence`, which must be in the memory layout of this host, and returns its runner.

    Optimisation is off, because the layers are optimised already. A sequence with an If, Loop or Scan is an exception:
    their bodies are stored in plain layout, so the sequence is optimised as the model was, and for that its network
    must have outputs.

    Args:
        sequence: Layer sequence to run.
        settings: Threads, level and spinning of the session.
        patience_s: Time in seconds after which the trial run of a sequence with a loop is stopped.

    Raises:
        Exception: onnxruntime cannot load the network; the exception is onnxruntime's own.
    """
    indices = weight_indices(sequence)
    large = [i for i in indices if sequence.values[i].type.nbytes > _EMBEDDED_BYTES]
    weights = [external_tensor(value_name(i), sequence.values[i], _WEIGHTS) for i in large]
    weights += [
        numpy_helper.from_array(synthetic_value(sequence, i), value_name(i)) for i in indices if i not in set(large)
    ]
    body = _has_body(sequence)
    network = build_network(sequence, weights=weights, discard_outputs=not body)
    options = session_options(settings if body else replace(settings, level="none"), timed=True)
    if max((v.type.nbytes for v in sequence.values if v.role == "internal"), default=0) <= _soon_reused_bytes():
        options.add_session_config_entry("session.use_env_allocators", "1")
    options.enable_mem_pattern = False  # a memory plan would not use the memory that was just freed
    shared_arena()
    types = [sequence.values[i].type for i in large]
    arrays = aligned_arrays([(numpy_type(kind.dtype), kind.shape) for kind in types])
    inputs = _inputs(sequence, index_limits(network.graph))
    for i, array in zip(large, arrays, strict=True):
        write_weight(sequence, i, inputs, array)
    values = [ort_value(array) for array in arrays]
    if body:  # with optimisations, ONNX Runtime reads the values before it looks for initialisers
        options.add_external_initializers([value_name(i) for i in large], values)
    else:
        options.add_session_config_entry(WEIGHTS_FOLDER, _placeholder_folder())
        for i, value in zip(large, values, strict=True):
            options.add_initializer(value_name(i), value)
    session = new_session(network.SerializeToString(), options)
    runner = SessionRunner(session, {value_name(i): array for i, array in inputs.items()}, values)
    if body:
        runner.check_end(patience_s)
    return runner


@cache
def _placeholder_folder() -> str:
    """Returns a folder with an empty file of weights, which ONNX Runtime requires to exist but never reads."""
    folder = tempfile.mkdtemp(prefix="costmodel-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    (Path(folder) / _WEIGHTS).touch()
    return folder


@cache
def _soon_reused_bytes() -> float:
    # Read here, because runtimes know nothing of `costmodel.systems`, which describes hosts.
    try:
        l3_kib = int(_L3_FILE.read_text(encoding="ascii").strip().removesuffix("K"))
    except (OSError, ValueError):
        l3_kib = _DEFAULT_L3_KIB
    return l3_kib * 1024 * _SOON_REUSED_SHARE


def _inputs(sequence: LayerSequence, limits: Mapping[str, int]) -> dict[int, np.ndarray]:
    """Returns values for the inputs of a sequence, by index, in aligned memory as in a model.

    Args:
        sequence: Layer sequence to run.
        limits: Numbers of rows that integer inputs may choose from, by name.
    """
    inputs = {i: synthetic_value(sequence, i, limits.get(value_name(i))) for i in input_indices(sequence)}
    apart = [i for i, array in inputs.items() if not is_aligned(array)]
    return inputs | dict(zip(apart, aligned_copies([inputs[i] for i in apart]), strict=True))


def _has_body(sequence: LayerSequence) -> bool:
    return any("g" in value for layer in sequence.layers for value in layer.attributes.values())
