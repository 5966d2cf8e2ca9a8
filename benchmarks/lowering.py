"""Compares the time of lowering a model with that of loading and running it in ONNX Runtime, within one run.

    python benchmarks/lowering.py [--repeats 5]

The models get random weights inside the file, because the onnx package ships them without. Times one inference,
loading a session, loading with the optimised graph written to disk and weights in a separate file, and
`OnnxRuntime.lower`.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
from onnx import numpy_helper

from costmodel.onnx_io.model import read_model
from costmodel.runtimes.base import RuntimeSettings, get_runtime
from costmodel.training.corpus import corpus_models


def with_weights(source: Path, target: Path) -> None:
    """Writes `source` to `target` with random initialisers in place of its ConstantOfShape nodes."""
    model = onnx.load(source)
    shapes = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    rng = np.random.default_rng(0)
    kept = []
    for node in model.graph.node:
        if node.op_type == "ConstantOfShape" and node.input[0] in shapes:
            values = rng.uniform(0.01, 0.1, shapes[node.input[0]]).astype(np.float32)
            model.graph.initializer.append(numpy_helper.from_array(values, node.output[0]))
        else:
            kept.append(node)
    del model.graph.node[:]
    model.graph.node.extend(kept)
    constants = {t.name for t in model.graph.initializer}
    inputs = [port for port in model.graph.input if port.name not in constants]
    del model.graph.input[:]
    model.graph.input.extend(inputs)
    model.ir_version = 4
    onnx.save(model, target)


def best_ms(job: Callable[[], object], repeats: int) -> float:
    """Returns the time of the fastest of some runs, in milliseconds."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        job()
        times.append(time.perf_counter() - start)
    return min(times) * 1e3


def load(path: Path, saved: Path | None = None) -> ort.InferenceSession:
    """Loads a session as a user does; if `saved` is given, writes the optimised graph there, its weights separately."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    if saved is not None:
        options.optimized_model_filepath = str(saved)
        options.add_session_config_entry("session.optimized_model_external_initializers_file_name", "weights.bin")
        options.add_session_config_entry("session.optimized_model_external_initializers_min_size_in_bytes", "1024")
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def main() -> None:
    """Prints one row for each model."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args().repeats
    runtime = get_runtime()
    print(f"onnxruntime {ort.__version__}, 1 thread, best of {repeats}")
    print(
        f"{'model':<18}{'inference':>12}{'load':>10}{'load+save':>11}{'read':>9}{'lower':>9}{'(read+lower)/inference':>24}"
    )
    with tempfile.TemporaryDirectory() as folder:
        for item in corpus_models("light"):
            if item.name not in ("light_resnet50", "light_vgg19", "light_shufflenet"):
                continue
            path = Path(folder) / f"{item.name}.onnx"
            with_weights(item.path, path)
            model = read_model(path)
            runner = runtime.open_model(model, RuntimeSettings())
            inference = best_ms(runner.run, repeats)
            plain = best_ms(lambda p=path: load(p), repeats)
            saving = best_ms(lambda p=path: load(p, Path(folder) / "saved.onnx"), repeats)
            read = best_ms(lambda p=path: read_model(p), repeats)
            lower = best_ms(lambda m=model: runtime.lower(m, "all"), repeats)
            print(
                f"{item.name:<18}{inference:>9.1f} ms{plain:>7.0f} ms{saving:>8.0f} ms{read:>6.1f} ms{lower:>6.0f} ms"
                f"{(read + lower) / inference:>24.1f}"
            )


if __name__ == "__main__":
    main()
