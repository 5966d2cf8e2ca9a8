"""Benchmark suites: writing, reading, and running each network in isolation."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import ModelProto

from costmodel.errors import SuiteError
from costmodel.ir.graph import LayerGraph, TensorType
from costmodel.ir.sequence import LayerSequence, SequenceLayer, Value
from costmodel.partition.decomposition import Decomposition, decompose
from costmodel.partition.suite import MANIFEST, is_suite, private_file, read_suite, suite_network, write_suite
from tests.fakes import elementwise

MODELS = ("squeezenet", "shufflenet")


def run_plainly(model: bytes | str) -> dict[str, tuple[int, ...]]:
    """Run a network with onnxruntime's public API on inputs of the declared types, and return the output shapes."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    types = {"tensor(float)": np.float32, "tensor(int64)": np.int64, "tensor(bool)": np.bool_}
    feeds = {port.name: np.ones(port.shape, types[port.type]) for port in session.get_inputs()}
    names = [port.name for port in session.get_outputs()]
    return {name: value.shape for name, value in zip(names, session.run(names, feeds), strict=True)}


@pytest.fixture(params=[1, 3], ids=["G1", "G3"], scope="module")
def decompositions(request: pytest.FixtureRequest, lowered_light: Callable[..., LayerGraph]) -> list[Decomposition]:
    """Two real models at a granularity."""
    return [decompose(name, lowered_light(name), request.param) for name in MODELS]


@pytest.fixture(scope="module")
def suite(decompositions: list[Decomposition], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The suite of these models, with two decoys."""
    folder = tmp_path_factory.mktemp("suite") / "suite"
    write_suite(folder, decompositions, [elementwise(1, 24), elementwise(1, 40)])
    return folder


def all_unique(decompositions: list[Decomposition]) -> dict[str, LayerSequence]:
    """The unique sequences of all models, by signature."""
    return {signature: sequence for d in decompositions for signature, sequence in d.unique.items()}


class TestRealModels:
    """Suites of two real models at granularities 1 and 3."""

    def test_what_is_written_reads_back(self, suite: Path, decompositions: list[Decomposition]) -> None:
        """Reading returns each sequence once with the same canonical text, and the decoys."""
        expected = {s: q.text for s, q in all_unique(decompositions).items()}
        expected |= {decoy.signature: decoy.text for decoy in (elementwise(1, 24), elementwise(1, 40))}
        found = read_suite(suite)
        assert [q.signature for q in found] == sorted(expected)
        assert {q.signature: q.text for q in found} == expected

    def test_every_network_runs_in_isolation(self, suite: Path) -> None:
        """Plain onnxruntime loads and runs each file, and outputs have the declared shapes."""
        files = sorted(suite.glob("*.onnx"))
        assert len(files) > 20
        for file in files:
            graph = onnx.load(file).graph
            declared = {
                port.name: tuple(dim.dim_value for dim in port.type.tensor_type.shape.dim) for port in graph.output
            }
            assert run_plainly(str(file)) == declared

    def test_networks_are_small(self, suite: Path) -> None:
        """Files are small, because weights are constant fills."""
        assert max(file.stat().st_size for file in suite.glob("*.onnx")) < 20_000

    def test_the_suite_does_not_say_where_it_is_from(self, suite: Path, decompositions: list[Decomposition]) -> None:
        """The suite contains no names of models or layers, no counts and no order."""
        content = b"".join(file.read_bytes() for file in suite.iterdir()).lower()
        for decomposition in decompositions:
            assert decomposition.model.encode() not in content
            named = [layer for segment in decomposition.segments for layer in segment.layers if len(layer) > 8]
            assert not [layer for layer in named if layer.lower().encode() in content]
        manifest = json.loads((suite / MANIFEST).read_text())
        assert set(manifest) == {"format", "granularity", "bricks"}
        assert {frozenset(entry) for entry in manifest["bricks"]} == {
            frozenset({"signature", "file", "kind", "blocked"})
        }
        signatures = [entry["signature"] for entry in manifest["bricks"]]
        assert signatures == sorted(signatures)

    def test_the_files_are_not_written_in_the_order_of_the_layers(self, suite: Path) -> None:
        """Files are written in signature order, decoys included, so that file times reveal no layer order."""
        files = sorted(suite.glob("*.onnx"))
        written = [file.stat().st_mtime_ns for file in files]
        assert written == sorted(written)

    def test_what_the_owner_keeps_restores_the_models(self, suite: Path, decompositions: list[Decomposition]) -> None:
        """The private file has the positions and counts of each sequence in the models, and the decoys."""
        private = json.loads(private_file(suite).read_text())
        assert set(private["models"]) == set(MODELS)
        for decomposition in decompositions:
            restored = [(p["signature"], p["layers"], p["needs"]) for p in private["models"][decomposition.model]]
            assert restored == [
                (p.sequence.signature, list(p.layers), list(p.predecessors)) for p in decomposition.segments
            ]
        assert private["counts"] == sum((d.counts for d in decompositions), Counter())
        assert private["decoys"] == [elementwise(1, 24).signature, elementwise(1, 40).signature]

    def test_the_suite_is_complete_without_what_the_owner_keeps(
        self, decompositions: list[Decomposition], tmp_path: Path
    ) -> None:
        """Measuring a suite does not need the private file."""
        folder = tmp_path / "suite"
        assert write_suite(folder, decompositions) == len(all_unique(decompositions))
        private_file(folder).unlink()
        assert is_suite(folder)
        assert {q.signature for q in read_suite(folder)} == set(all_unique(decompositions))


class TestOldOpsets:
    """Networks at the opset of their layers, with weights that this opset can express."""

    @pytest.mark.parametrize("opset", [7, 8, 9, 13])
    def test_weights_are_made_at_any_opset(
        self, opset: int, parse: Callable[..., ModelProto], lower: Callable[..., LayerGraph]
    ) -> None:
        """Networks below opset 9 run, with weights of any rank."""
        text = """(float[1,8,4,4] x) => (float[1,8,4,4] z) {
            y = BatchNormalization(x, scale, bias, mean, var)
            z = PRelu(y, slope)
        }"""
        weights = dict.fromkeys(("scale", "bias", "mean", "var"), (8,)) | {"slope": ()}
        graph = lower(parse(text, weights=weights, opset=opset, ir_version=8), "none")
        for granularity in (1, 2):
            for sequence in decompose("m", graph, granularity).unique.values():
                assert set(run_plainly(suite_network(sequence).SerializeToString()).values()) == {(1, 8, 4, 4)}

    @pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int64", "int32", "int8", "uint8", "bool"])
    def test_weights_have_their_type(self, dtype: str) -> None:
        """Networks load with weights of any element type."""
        kind = TensorType(dtype, (2, 3))
        layer = SequenceLayer("Concat", "", 4, {"axis": {"i": 0}}, (0, 1), (2,))
        values = (Value(kind, "constant"), Value(kind, "constant"), Value(TensorType(dtype, (4, 3)), "internal"))
        network = suite_network(LayerSequence((layer,), values, (2,)))
        assert run_plainly(network.SerializeToString()) == {"v2": (4, 3)}


@pytest.fixture
def small(tmp_path: Path, parse: Callable[..., ModelProto], lower: Callable[..., LayerGraph]) -> Path:
    """A suite of two networks."""
    graph = lower(parse("(float[2,3] x) => (float[2,3] y) { a = Relu(x) \n y = Tanh(a) }"))
    write_suite(tmp_path / "suite", [decompose("m", graph)])
    return tmp_path / "suite"


class TestWriting:
    """Writing a suite into its own folder."""

    def test_a_folder_with_something_in_it_is_left_alone(self, small: Path) -> None:
        """A non-empty folder is refused and unchanged."""
        before = {file: file.read_bytes() for file in small.iterdir()}
        with pytest.raises(SuiteError, match="is not empty: give a new folder"):
            write_suite(small, [Decomposition("m", 1, ())], [elementwise(3)])
        assert {file: file.read_bytes() for file in small.iterdir()} == before

    @pytest.mark.parametrize("place", ["file", "file/suite"])
    def test_a_place_that_is_no_folder_is_named(self, tmp_path: Path, place: str) -> None:
        """A path that cannot be a folder is refused with the reason."""
        (tmp_path / "file").touch()
        with pytest.raises(SuiteError, match=f"{place} cannot be written"):
            write_suite(tmp_path / place, [Decomposition("m", 1, ())])

    def test_a_suite_that_was_not_finished_is_none(self, tmp_path: Path) -> None:
        """A failure at the last file leaves no suite and no partial folder."""
        private_file(tmp_path / "suite").mkdir()  # a folder where the last file belongs
        with pytest.raises(SuiteError, match="cannot be written"):
            write_suite(tmp_path / "suite", [Decomposition("m", 1, ())], [elementwise(3)])
        assert not is_suite(tmp_path / "suite")
        assert list(tmp_path.iterdir()) == [private_file(tmp_path / "suite")]


def change_manifest(folder: Path, **changes: object) -> None:
    """Replace entries of a manifest."""
    path = folder / MANIFEST
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


class TestDamage:
    """Each damage is one sentence that names the file."""

    def test_a_missing_network(self, small: Path) -> None:
        """A missing file is named."""
        path = next(small.glob("*.onnx"))
        path.unlink()
        with pytest.raises(SuiteError, match=f"the brick .*{path.name} is missing"):
            read_suite(small)

    @pytest.mark.parametrize("content", [b"", b"not a network", b"\x08\x09"])
    def test_a_file_that_is_no_network(self, small: Path, content: bytes) -> None:
        """An empty, truncated or different file is named."""
        path = next(small.glob("*.onnx"))
        path.write_bytes(content)
        with pytest.raises(SuiteError, match=f"{path.name} is not a brick"):
            read_suite(small)

    def test_a_foreign_model_among_the_networks(self, small: Path, parse: Callable[..., ModelProto]) -> None:
        """An ONNX file that is no runnable network is refused."""
        path = next(small.glob("*.onnx"))
        onnx.save(parse("(float[2] x) => (float[2] y) { y = Relu(x) }"), path)
        with pytest.raises(SuiteError, match=f"{path.name} is not a brick"):
            read_suite(small)

    def test_an_exchanged_network(self, small: Path) -> None:
        """A network under another's name is refused."""
        one, other = sorted(small.glob("*.onnx"))
        one.write_bytes(other.read_bytes())
        with pytest.raises(SuiteError, match=f"{one.name} is not the brick that the manifest names"):
            read_suite(small)

    def test_a_network_whose_sequence_was_changed(self, small: Path) -> None:
        """A network whose sequence does not match its signature is refused."""
        path = next(small.glob("*.onnx"))
        network = onnx.load(path)
        network.metadata_props[0].value = elementwise(5, 5).text
        onnx.save(network, path)
        with pytest.raises(SuiteError, match="is not the brick that the manifest names"):
            read_suite(small)

    def test_a_suite_of_a_newer_format(self, small: Path) -> None:
        """A newer format is refused with the advice to upgrade."""
        change_manifest(small, format=2)
        with pytest.raises(SuiteError, match=r"has format 2 .*upgrade costmodel"):
            read_suite(small)

    @pytest.mark.parametrize("content", ["", "{", "[]", "5", "{}", '{"format": 1}', '{"format": "1", "bricks": []}',
                                         '{"format": 1, "bricks": [5]}', '{"format": 1, "bricks": [{}]}',
                                         '{"format": 1, "bricks": [{"file": 5, "signature": "a"}]}'])  # fmt: skip
    def test_a_manifest_that_is_damaged(self, small: Path, content: str) -> None:
        """A damaged manifest is refused."""
        (small / MANIFEST).write_text(content)
        with pytest.raises(SuiteError, match=f"{MANIFEST} is damaged"):
            read_suite(small)

    def test_a_manifest_that_points_elsewhere(self, small: Path, tmp_path: Path) -> None:
        """A manifest with paths outside the suite's folder is refused."""
        path = next(small.glob("*.onnx"))
        outside = path.rename(tmp_path / path.name)
        change_manifest(small, bricks=[{"file": f"../{outside.name}", "signature": path.stem}])
        with pytest.raises(SuiteError, match="is missing"):
            read_suite(small)

    def test_a_folder_of_models_is_no_suite(self, tmp_path: Path) -> None:
        """A folder without a manifest is no suite."""
        assert not is_suite(tmp_path)
        assert not is_suite(tmp_path / "absent")
