"""A layer sequence as it would run inside a model: its layers are executed though nobody reads what they make."""

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

from costmodel.decomposition import decompose, whole_model
from costmodel.errors import MeasurementError
from costmodel.graph import LayerGraph, TensorType
from costmodel.network import build_network, external_tensor, input_indices, value_name, weight_indices
from costmodel.runtimes import RuntimeSettings
from costmodel.runtimes.ort import OnnxRuntime
from costmodel.sequence import LayerSequence, SequenceLayer, Value
from costmodel.synthesis import synthetic
from tests.fakes import elementwise

Lower = Callable[..., LayerGraph]
Parse = Callable[..., ModelProto]

SMALL, VECTOR = TensorType("float32", (2, 3)), TensorType("float32", (7,))


def ending_badly(layers: int) -> LayerSequence:
    """A chain whose last layer is told to make seven numbers of six."""
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
    """Layers that ONNX Runtime executes of the discarding network of a plain sequence, by its own profile."""
    indices = weight_indices(sequence)
    weights = [numpy_helper.from_array(synthetic(sequence, i), value_name(i)) for i in indices]
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.enable_profiling = True
    options.profile_file_prefix = str(folder / "profile")
    network = build_network(sequence, weights=weights, discarding=True)
    session = ort.InferenceSession(network.SerializeToString(), options, providers=["CPUExecutionProvider"])
    session.run(None, {value_name(i): synthetic(sequence, i) for i in input_indices(sequence)})
    events = json.loads(Path(session.end_profiling()).read_text())
    ran = [event for event in events if event["cat"] == "Node" and event["name"].endswith("_kernel_time")]
    return Counter(event["args"]["op_name"] for event in ran)


class TestDiscarding:
    """Results stay inside, as if layers behind had read them."""

    @pytest.mark.parametrize("granularity", [1, 2, 5, 100])
    def test_every_layer_is_executed(self, granularity: int, lowered_light: Lower, tmp_path: Path) -> None:
        """By the runtime's own account; what is read by nobody is not left out."""
        for sequence in decompose("m", lowered_light("shufflenet", "none"), granularity).unique.values():
            assert executed(sequence, tmp_path) == Counter(layer.op_type for layer in sequence.layers)

    def test_nothing_leaves_the_network(self, lowered_light: Lower) -> None:
        """Its only output is a constant, so that no result is written where a model would not write it."""
        for sequence in decompose("m", lowered_light("squeezenet"), 3).unique.values():
            weights = [external_tensor(value_name(i), sequence.values[i], "w") for i in weight_indices(sequence)]
            graph = build_network(sequence, weights=weights, discarding=True).graph
            (output,) = graph.output
            assert output.name in {tensor.name for tensor in graph.initializer}
            assert output.name not in {name for node in graph.node for name in (*node.input, *node.output)}
            assert [node.op_type for node in graph.node] == [layer.op_type for layer in sequence.layers]

    @pytest.mark.parametrize("layers", [0, 1, 3])
    def test_a_layer_that_fails_is_heard_of(self, layers: int, runtime: OnnxRuntime, settings: RuntimeSettings) -> None:
        """Be it the last of a chain, whose result nobody reads."""
        runner = runtime.open_sequence(ending_badly(layers), settings)
        with pytest.raises(MeasurementError, match=r"the network failed to run: .*Reshape|cannot be reshaped"):
            runner.run()

    def test_it_runs_again_and_again(self, runtime: OnnxRuntime, settings: RuntimeSettings) -> None:
        """Memory that was just let go of is taken again."""
        runner = runtime.open_sequence(elementwise(1 << 18), settings)
        for _ in range(5):
            runner.feed()
            runner.run()


class TestKinds:
    """Bricks of all kinds run, inputs written anew between the runs."""

    @pytest.fixture
    def run(self, runtime: OnnxRuntime, settings: RuntimeSettings) -> Callable[[LayerSequence], None]:
        """Feeds and runs a sequence, twice."""

        def run(sequence: LayerSequence) -> None:
            runner = runtime.open_sequence(sequence, settings)
            for _ in range(2):
                runner.feed()
                runner.run()

        return run

    def test_one_that_copies_nothing(self, run: Callable[..., None], parse: Parse, lower: Lower) -> None:
        """A Reshape of a value that nobody reads afterwards is done in place."""
        graph = lower(parse("(float[64,512] x) => (float y) <int64[2] to = {512, 64}> { y = Reshape(x, to) }"), "none")
        run(whole_model(graph))

    @pytest.mark.parametrize("level", ["none", "all"])
    def test_one_with_a_body(self, level: str, run: Callable[..., None], parse: Parse, lower: Lower) -> None:
        """An If is optimised as its model is, and keeps its outputs: without them it would be nothing."""
        text = """(bool c, float[1,8,8,8] x) => (float y)
            { y = If (c) <then_branch = g () => (float[1,8,8,8] a) { a = Relu(x) },
                          else_branch = h () => (float[1,8,8,8] b) { n = Neg(x) b = Tanh(n) }> }"""
        run(whole_model(lower(parse(text), level)))

    @pytest.mark.parametrize("dtype", ["float", "float16", "double"])
    def test_one_with_large_weights(self, dtype: str, run: Callable[..., None], parse: Parse, lower: Lower) -> None:
        """They are supplied from outside, in pages of their own, of whatever type."""
        text = "(float[4,300] x) => (float y) { w = Cast<to = 1>(v) m = MatMul(x, w) y = Add(m, b) }"
        model = parse(text, weights={"b": (500,)})
        kinds = {"float": np.float32, "float16": np.float16, "double": np.float64}
        values = np.linspace(0.1, 1.0, 300 * 500).reshape(300, 500).astype(kinds[dtype])
        model.graph.initializer.append(numpy_helper.from_array(values, "v"))
        sequence = whole_model(lower(model, "none"))
        assert max(sequence.values[i].type.nbytes for i in weight_indices(sequence)) >= 300_000
        run(sequence)

    def test_a_blocked_one(self, run: Callable[..., None], lowered_light: Lower) -> None:
        """In this host's own blocks, at any granularity."""
        for granularity in (1, 4):
            run(next(iter(decompose("m", lowered_light("squeezenet"), granularity).unique.values())))

    def test_what_it_makes_may_be_large(self, run: Callable[..., None]) -> None:
        """Larger than the memory that sequences share is used for."""
        run(elementwise(4 << 20))


# Says, as JSON, how many threads there are after each network, and what another number of threads gives.
THREADS = """
import json, os, sys
from costmodel.errors import MeasurementError
from costmodel.runtimes import RuntimeSettings
from costmodel.runtimes.ort import OnnxRuntime
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
    """In a process of their own: of the threads that sessions share there is one number in a process."""

    @staticmethod
    def counted(*arguments: object) -> tuple[list[int], list[str]]:
        """Threads after each network, and refusals."""
        command = [sys.executable, "-c", THREADS, *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[3])
        counts, refusals = json.loads(done.stdout)
        return counts, refusals

    def test_networks_share_their_threads(self) -> None:
        """Those of one would go on spinning after its run, against those of the next."""
        counts, _ = self.counted("spin", 2)
        assert len(set(counts)) == 1

    def test_threads_that_do_not_spin_are_each_networks_own(self) -> None:
        """They disturb nobody."""
        counts, _ = self.counted("sleep", 2)
        assert np.diff(counts).tolist() == [1, 1]

    def test_one_thread_is_that_of_the_caller(self) -> None:
        """No network adds one, and more of them may follow."""
        counts, refusals = self.counted("spin", 1, 2)
        assert len(set(counts[:3])) == 1
        assert counts[3] > counts[0]
        assert refusals == []

    def test_another_number_of_threads_is_refused(self) -> None:
        """The sentence says which it is and what to do; the number that it began with goes on working."""
        counts, refusals = self.counted("spin", 2, 3, 2, 1)
        assert len(counts) == 3 + 1
        assert len(refusals) == 2
        for sentence in refusals:
            assert "this process runs networks on 2 spinning threads and cannot change: start another one" in sentence
