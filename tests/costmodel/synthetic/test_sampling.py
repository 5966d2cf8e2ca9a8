"""Samples: sequences of no model, made from real ones."""

from collections import Counter
from collections.abc import Callable

import onnxruntime
import pytest
from onnx import ModelProto

from costmodel.ir.graph import LayerGraph
from costmodel.ir.sequence import LayerSequence
from costmodel.jobs.bench import runnable_on
from costmodel.partition.decomposition import decompose
from costmodel.partition.suite import suite_network
from costmodel.runtimes.base import RuntimeSettings
from costmodel.runtimes.ort.adapter import OnnxRuntime
from costmodel.synthetic.sampling import sample_around
from costmodel.systems.system import this_system
from tests.fakes import elementwise


@pytest.fixture(scope="module")
def real(lowered_light: Callable[..., LayerGraph]) -> list[LayerSequence]:
    """The sequences of three real models, one and two layers long."""
    graphs = [lowered_light(name) for name in ("squeezenet", "shufflenet", "densenet121")]
    return list({s: q for graph in graphs for g in (1, 2) for s, q in decompose("m", graph, g).unique.items()}.values())


@pytest.fixture(scope="module")
def runs(runtime: OnnxRuntime) -> Callable[[LayerSequence], bool]:
    """Function that says whether a sequence runs on this host."""
    return runnable_on(runtime, this_system(runtime, RuntimeSettings(spinning=False)))


@pytest.fixture
def sampled(
    parse: Callable[..., ModelProto], lower: Callable[..., LayerGraph], runs: Callable[[LayerSequence], bool]
) -> Callable[..., list[LayerSequence]]:
    """Function that samples the sequences of a model in text form, all of which must run."""

    def sampled(text: str, granularity: int = 1, **given: object) -> list[LayerSequence]:
        graph = lower(parse(text, **given))
        samples = sample_around(list(decompose("m", graph, granularity).unique.values()), 24)
        assert all(runs(sample) for sample, _ in samples.values())
        return [sample for sample, _ in samples.values()]

    return sampled


def check_shapes(sequence: LayerSequence) -> None:
    """Asserts that the outputs of a network have their declared shapes."""
    network = suite_network(sequence)
    names = [port.name for port in network.graph.output]
    declared = [tuple(d.dim_value for d in port.type.tensor_type.shape.dim) for port in network.graph.output]
    found = {
        port.name: tuple(port.shape)
        for port in onnxruntime.InferenceSession(
            _undeclared(network).SerializeToString(), providers=["CPUExecutionProvider"]
        ).get_outputs()
    }
    assert [found[name] for name in names] == declared


def _undeclared(network: ModelProto) -> ModelProto:
    """Returns the network without declared output shapes, so that the runtime infers them."""
    bare = ModelProto()
    bare.CopyFrom(network)
    for port in bare.graph.output:
        port.type.tensor_type.ClearField("shape")
    return bare


class TestRealModels:
    """Samples of real sequences."""

    def test_samples_run_and_their_shapes_fit(
        self, real: list[LayerSequence], runs: Callable[[LayerSequence], bool]
    ) -> None:
        """Each sample runs on the real runtime, and its outputs have the inferred shapes."""
        samples = sample_around(real, 40, runs=runs)
        assert len(samples) == 40
        for signature, (sample, _) in samples.items():
            assert sample.signature == signature
            assert runs(sample)
            check_shapes(sample)

    def test_hardly_a_candidate_fails_to_run(
        self, real: list[LayerSequence], runs: Callable[[LayerSequence], bool]
    ) -> None:
        """Few candidates fail to run, because inconsistent ones are rejected before a trial run."""
        candidates = sample_around(real, 60)
        assert sum(map(runs, (sample for sample, _ in candidates.values()))) >= 57

    def test_no_sample_is_real(self, real: list[LayerSequence]) -> None:
        """Samples differ from all real sequences, have the kind of their origin, and name it."""
        samples = sample_around(real, 200)
        assert not samples.keys() & {sequence.signature for sequence in real}
        assert all(origin in real and sample.kind == origin.kind for sample, origin in samples.values())
        # Operators, versions and roles are those of the origin; only sizes differ.
        for sample, origin in samples.values():
            assert [v.role for v in sample.values] == [v.role for v in origin.values]
            assert [v.type.dtype for v in sample.values] == [v.type.dtype for v in origin.values]
            assert [(x.op_type, x.domain, x.since) for x in sample.layers] == [
                (x.op_type, x.domain, x.since) for x in origin.layers
            ]

    def test_a_seed_gives_the_same_samples(self, real: list[LayerSequence]) -> None:
        """A seed gives the same samples in the same order, another seed others."""
        first = sample_around(real, 30, seed=1)
        assert list(sample_around(real, 30, seed=1)) == list(first)
        assert set(sample_around(real, 30, seed=2)) != set(first)
        refused = next(iter(first))
        others = sample_around(real, 30, seed=1, runs=lambda s: s.signature != refused)
        assert set(first) - {refused} <= set(others)
        assert refused not in others

    def test_many_kinds_are_sampled(self, real: list[LayerSequence]) -> None:
        """Nearly every kind of sequence can be sampled."""
        samples = sample_around(real, 400)
        assert {o.kind for _, o in samples.values()} >= {"Conv", "MaxPool", "Concat", "ReorderInput", "ReorderOutput"}


class TestWeights:
    """Sampling weights of the sequences."""

    ONES = tuple(elementwise(32 * prime, 7) for prime in (3, 5, 7, 11, 13, 17))

    def test_weight_zero_is_never_chosen(self) -> None:
        """A sequence of weight 0 is never chosen, at any position."""
        samples = sample_around(self.ONES, 20, weights=[0, 1, 0, 2, 1, 0])
        assert {origin.signature for _, origin in samples.values()} == {self.ONES[i].signature for i in (1, 3, 4)}

    def test_heavier_ones_are_chosen_more_often(self) -> None:
        """Sequences are chosen roughly in proportion to their weights."""
        many = [elementwise(2 ** (5 + n // 40), 16 * (n + 40)) for n in range(80)]
        samples = sample_around(many, 60, weights=[9] * 40 + [1] * 40)
        heavy = {sequence.signature for sequence in many[:40]}
        found = Counter(origin.signature in heavy for _, origin in samples.values())
        assert found[True] > 2 * found[False]

    def test_without_weights_all_are_alike(self) -> None:
        """Without weights, each of a few sequences is sampled."""
        samples = sample_around(self.ONES, 24)
        assert {origin.signature for _, origin in samples.values()} == {s.signature for s in self.ONES}


class TestCount:
    """The number of samples."""

    @pytest.mark.parametrize("count", [0, 1, 7])
    def test_the_count_is_kept(self, real: list[LayerSequence], count: int) -> None:
        """The requested number is returned if enough sizes can vary."""
        assert len(sample_around(real, count)) == count

    def test_there_are_fewer_where_the_sequences_do_not_vary_enough(self) -> None:
        """Fewer samples, all different, are returned if sizes cannot vary enough."""
        samples = sample_around([elementwise(3, 64)], 50)
        sizes = [sample.values[0].type.shape[1] for sample, _ in samples.values()]
        assert sorted(sizes) == [32, 48, 80, 96, 128]

    @pytest.mark.parametrize("sequences", [[], [elementwise(3)], [elementwise()]], ids=["none", "small", "scalar"])
    def test_nothing_comes_of_nothing(self, sequences: list[LayerSequence]) -> None:
        """Small sizes, such as windows and colours, are kept, so that some sequences have no samples."""
        assert sample_around(sequences, 5) == {}

    def test_nothing_that_does_not_run_is_returned(self) -> None:
        """Samples that do not run by the caller's function are not returned."""
        assert sample_around([elementwise(3, 64)], 5, runs=lambda _: False) == {}


class TestLayers:
    """Layers with dependent sizes."""

    def test_a_constant_keeps_its_length(self, sampled: Callable[..., list[LayerSequence]]) -> None:
        """The length of a constant, such as eight pads, does not change."""
        text = """(float[1,16,8,8] x) => (float[1,16,10,10] y) <int64[8] pads = {0, 0, 1, 1, 0, 0, 1, 1}> {
            y = Pad(x, pads)
        }"""
        samples = sampled(text)
        assert {sample.values[1].type.shape for sample in samples} == {(8,)}
        assert {sample.values[2].type.shape for sample in samples} >= {(1, 32, 10, 10), (1, 16, 18, 18)}

    def test_a_shape_that_is_written_down_follows(self, sampled: Callable[..., list[LayerSequence]]) -> None:
        """The constant shape of a Reshape changes with the number of channels."""
        text = (
            """(float[1,64,6] x) => (float[1,2,32,6] y) <int64[4] shape = {1, 2, 32, -1}> { y = Reshape(x, shape) }"""
        )
        assert sampled(text)

    @pytest.mark.parametrize("group", [1, 2, 32])
    def test_a_convolution_changes_with_its_filter(
        self, group: int, sampled: Callable[..., list[LayerSequence]]
    ) -> None:
        """Channels of image and filter change together, grouped or depthwise."""
        text = f"""(float[1,32,9,9] x) => (float[1,32,9,9] y) {{
            y = Conv<group = {group}, pads = [1, 1, 1, 1]>(x, w)
        }}"""
        samples = sampled(text, weights={"w": (32, 32 // group, 3, 3)})
        assert any(sample.values[0].type.shape[1] == 64 for sample in samples)

    def test_windows_strides_and_batches_are_moved(self, sampled: Callable[..., list[LayerSequence]]) -> None:
        """Windows, strides and batches vary; padding that kept the size still does."""
        text = "(float[1,6,30,30] x) => (float[1,6,30,30] y) { y = Conv<pads = [1, 1, 1, 1]>(x, w) }"
        samples = sampled(text, weights={"w": (6, 6, 3, 3)})
        for sample in samples:
            check_shapes(sample)
        convolutions = [sample for sample in samples if sample.kind == "Conv"]
        windows = {tuple(s.layers[0].attributes["kernel_shape"]["ints"]) for s in convolutions}
        strides = {tuple(s.layers[0].attributes["strides"]["ints"]) for s in convolutions}
        assert len(windows) > 2
        assert len(strides) == 2
        assert len({s.values[0].type.shape[0] for s in convolutions}) > 1
        same = [s for s in convolutions if s.layers[0].attributes["strides"]["ints"] == [1, 1]]
        assert all(s.values[0].type.shape[2:] == s.values[s.outputs[0]].type.shape[2:] for s in same)

    def test_a_quantised_convolution_has_its_filter_elsewhere(
        self, sampled: Callable[..., list[LayerSequence]]
    ) -> None:
        """Scales and zero points of a quantised convolution change with its filter, which is a later input."""
        text = """(uint8[1,32,9,9] x, uint8[32,16,3,3] w) => (uint8[1,32,7,7] y)
            <float s = {0.5}, uint8 z = {0}> { y = QLinearConv<group = 2>(x, s, z, w, s, z, s, z) }"""
        samples = [sample for sample in sampled(text) if sample.kind == "QLinearConv"]
        assert any(64 in sample.values[0].type.shape for sample in samples)
        for sample in samples:
            check_shapes(sample)

    def test_channels_last_are_moved(self, sampled: Callable[..., list[LayerSequence]]) -> None:
        """A reorder to channels-last has the permuted shape."""
        text = """(float[1,16,16,32] x) => (float[1,16,16,32] y) {
            a = Transpose<perm = [0, 3, 1, 2]>(x)
            b = Conv<pads = [1, 1, 1, 1]>(a, w)
            y = Transpose<perm = [0, 2, 3, 1]>(b)
        }"""
        for granularity in (1, 3):
            for sample in sampled(text, granularity, weights={"w": (32, 32, 3, 3)}):
                check_shapes(sample)

    def test_bodies_are_left_alone(self, sampled: Callable[..., list[LayerSequence]]) -> None:
        """Values captured by an If's branch are not resized."""
        text = """(bool c, float[64] x) => (float[64] y) {
            y = If(c) <
                then_branch = then () => (float[64] a) { a = Relu(x) },
                else_branch = other () => (float[64] b) { b = Tanh(x) }
            >
        }"""
        assert sampled(text) == []
