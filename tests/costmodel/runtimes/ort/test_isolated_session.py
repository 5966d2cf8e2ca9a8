"""Layer sequences that run as inside a model: their layers are executed although nothing reads the results."""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest
from onnx import ModelProto, numpy_helper

from costmodel.errors import MeasurementError
from costmodel.ir.graph import LayerGraph, TensorType
from costmodel.ir.sequence import LayerSequence, SequenceLayer, Value, input_indices, weight_indices
from costmodel.partition.decomposition import decompose, whole_model
from costmodel.runtimes.base import RuntimeSettings
from costmodel.runtimes.ort.adapter import OnnxRuntime
from costmodel.synthetic.network import build_network, external_tensor, value_name
from costmodel.synthetic.values import synthetic_value
from tests.fakes import elementwise

Lower = Callable[..., LayerGraph]
Parse = Callable[..., ModelProto]

SMALL, VECTOR = TensorType("float32", (2, 3)), TensorType("float32", (7,))


def failing_chain(layers: int) -> LayerSequence:
    """Returns a chain whose last layer fails: it reshapes six numbers to seven."""
    chain = [SequenceLayer("Relu", "", 14, {}, (i,), (i + 1,)) for i in range(layers)]
    reshape = SequenceLayer("Reshape", "", 14, {}, (layers, layers + 1), (layers + 2,))
    values = (
        Value(SMALL, "input"),
        *(Value(SMALL, "internal") for _ in range(layers)),
        Value(TensorType("int64", (1,)), "constant", (7,)),
        Value(VECTOR, "internal"),
    )
    return LayerSequence((*chain, reshape), values, (layers + 2,))


def executed(sequence: LayerSequence, folder: Path) -> Counter[str]:
    """Returns the layers that ONNX Runtime executes in the discarding network of a plain sequence, from its profile."""
    indices = weight_indices(sequence)
    weights = [numpy_helper.from_array(synthetic_value(sequence, i), value_name(i)) for i in indices]
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.enable_profiling = True
    options.profile_file_prefix = str(folder / "profile")
    network = build_network(sequence, weights=weights, discard_outputs=True)
    session = ort.InferenceSession(network.SerializeToString(), options, providers=["CPUExecutionProvider"])
    session.run(None, {value_name(i): synthetic_value(sequence, i) for i in input_indices(sequence)})
    events = json.loads(Path(session.end_profiling()).read_text())
    ran = [event for event in events if event["cat"] == "Node" and event["name"].endswith("_kernel_time")]
    return Counter(event["args"]["op_name"] for event in ran)


class TestDiscarding:
    """Results are discarded inside the network."""

    @pytest.mark.parametrize("granularity", [1, 2, 5, 100])
    def test_every_layer_is_executed(self, granularity: int, lowered_light: Lower, tmp_path: Path) -> None:
        """Every layer is executed, also those whose results nothing reads."""
        for sequence in decompose("m", lowered_light("shufflenet", "none"), granularity).unique.values():
            assert executed(sequence, tmp_path) == Counter(layer.op_type for layer in sequence.layers)

    def test_nothing_leaves_the_network(self, lowered_light: Lower) -> None:
        """The only output of the network is a constant, so that no result is copied out."""
        for sequence in decompose("m", lowered_light("squeezenet"), 3).unique.values():
            weights = [external_tensor(value_name(i), sequence.values[i], "w") for i in weight_indices(sequence)]
            graph = build_network(sequence, weights=weights, discard_outputs=True).graph
            (output,) = graph.output
            assert output.name in {tensor.name for tensor in graph.initializer}
            assert output.name not in {name for node in graph.node for name in (*node.input, *node.output)}
            assert [node.op_type for node in graph.node] == [layer.op_type for layer in sequence.layers]

    @pytest.mark.parametrize("layers", [0, 1, 3])
    def test_a_layer_that_fails_is_heard_of(self, layers: int, runtime: OnnxRuntime, settings: RuntimeSettings) -> None:
        """A failing layer raises an error, also the last of a chain."""
        runner = runtime.open_sequence(failing_chain(layers), settings)
        with pytest.raises(MeasurementError, match=r"the network failed to run: .*Reshape|cannot be reshaped"):
            runner.run()

    def test_it_runs_again_and_again(self, runtime: OnnxRuntime, settings: RuntimeSettings) -> None:
        """Repeated runs reuse freed memory."""
        runner = runtime.open_sequence(elementwise(1 << 18), settings)
        for _ in range(5):
            runner.feed()
            runner.run()


class TestKinds:
    """Sequences of all kinds run, with inputs written anew between runs."""

    @pytest.fixture
    def run(self, runtime: OnnxRuntime, settings: RuntimeSettings) -> Callable[[LayerSequence], None]:
        """Function that feeds and runs a sequence twice."""

        def run(sequence: LayerSequence) -> None:
            runner = runtime.open_sequence(sequence, settings)
            for _ in range(2):
                runner.feed()
                runner.run()

        return run

    def test_one_that_copies_nothing(self, run: Callable[..., None], parse: Parse, lower: Lower) -> None:
        """A Reshape whose input has no other reader runs without a copy."""
        graph = lower(parse("(float[64,512] x) => (float y) <int64[2] to = {512, 64}> { y = Reshape(x, to) }"), "none")
        run(whole_model(graph))

    @pytest.mark.parametrize("level", ["none", "all"])
    def test_one_with_a_body(self, level: str, run: Callable[..., None], parse: Parse, lower: Lower) -> None:
        """An If keeps its outputs, because the runtime would remove its branches otherwise."""
        text = """(bool c, float[1,8,8,8] x) => (float y)
            { y = If (c) <then_branch = g () => (float[1,8,8,8] a) { a = Relu(x) },
                          else_branch = h () => (float[1,8,8,8] b) { n = Neg(x) b = Tanh(n) }> }"""
        run(whole_model(lower(parse(text), level)))

    @pytest.mark.parametrize("dtype", ["float", "float16", "double"])
    def test_one_with_large_weights(self, dtype: str, run: Callable[..., None], parse: Parse, lower: Lower) -> None:
        """Large weights of any type are passed as external memory in separate pages."""
        text = "(float[4,300] x) => (float y) { w = Cast<to = 1>(v) m = MatMul(x, w) y = Add(m, b) }"
        model = parse(text, weights={"b": (500,)})
        kinds = {"float": np.float32, "float16": np.float16, "double": np.float64}
        values = np.linspace(0.1, 1.0, 300 * 500).reshape(300, 500).astype(kinds[dtype])
        model.graph.initializer.append(numpy_helper.from_array(values, "v"))
        sequence = whole_model(lower(model, "none"))
        assert max(sequence.values[i].type.nbytes for i in weight_indices(sequence)) >= 300_000
        run(sequence)

    def test_a_blocked_one(self, run: Callable[..., None], lowered_light: Lower) -> None:
        """Blocked sequences run at this host's block size and at any granularity."""
        for granularity in (1, 4):
            run(next(iter(decompose("m", lowered_light("squeezenet"), granularity).unique.values())))

    def test_what_it_makes_may_be_large(self, run: Callable[..., None]) -> None:
        """Results may be larger than the memory that sequences share."""
        run(elementwise(4 << 20))


# Prints as JSON the number of threads after each network, and the error for another number of threads.
THREADS = """
import json, os, sys
from costmodel.errors import MeasurementError
from costmodel.runtimes.base import RuntimeSettings
from costmodel.runtimes.ort.adapter import OnnxRuntime
from tests.fakes import elementwise

runtime = OnnxRuntime()
first, *others = map(int, sys.argv[2:])
counts, refusals = [], []

def open_(threads, size):
    runner = runtime.open_sequence(elementwise(1 << 16, size), RuntimeSettings(threads, spinning=sys.argv[1] == "spin"))
    runner.run()
    counts.append(len(os.listdir("/proc/self/task")))
    return runner

held = [open_(first, size) for size in (1, 2, 3)]
for threads in others:
    try:
        held.append(open_(threads, 4))
    except MeasurementError as error:
        refusals.append(str(error))
print(json.dumps([counts, refusals]))
"""


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="threads are counted as Linux lists them")
class TestThreads:
    """Threads of sessions, in a separate process because all sessions of a process share them."""

    @staticmethod
    def counted(*arguments: object) -> tuple[list[int], list[str]]:
        """Function that returns the number of threads after each network, and errors."""
        command = [sys.executable, "-c", THREADS, *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[4])
        counts, refusals = json.loads(done.stdout)
        return counts, refusals

    def test_networks_share_their_threads(self) -> None:
        """Networks share spinning threads, which would otherwise disturb each other's runs."""
        counts, _ = self.counted("spin", 2)
        assert len(set(counts)) == 1

    def test_threads_that_do_not_spin_are_each_networks_own(self) -> None:
        """Each network has its own threads if they do not spin."""
        counts, _ = self.counted("sleep", 2)
        assert np.diff(counts).tolist() == [1, 1]

    def test_one_thread_is_that_of_the_caller(self) -> None:
        """With one thread, networks add none, and networks with more threads may follow."""
        counts, refusals = self.counted("spin", 1, 2)
        assert len(set(counts[:3])) == 1
        assert counts[3] > counts[0]
        assert refusals == []

    def test_another_number_of_threads_is_refused(self) -> None:
        """Another number of threads is refused with what to do, and the first number continues to work."""
        counts, refusals = self.counted("spin", 2, 3, 2, 1)
        assert len(counts) == 3 + 1
        assert len(refusals) == 2
        for sentence in refusals:
            assert "this process runs networks on 2 spinning threads and cannot change: start another one" in sentence
