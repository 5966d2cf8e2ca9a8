"""Shared fixtures: model files, models read from them, the runtime, lowered graphs, runs of layer sequences.

A model in a test is written in ONNX's own text form, `onnx.parser`, without its header: "(float[2,3] x) => ...".

`pytest --host NAME` runs all tests, child processes included, as if on a host of `tests/hosts`. The runtime still uses
the kernels of the real processor.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

import hypothesis
import hypothesis.strategies as st
import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import ModelProto, numpy_helper

from costmodel.ir.graph import Layer, LayerGraph, TensorType
from costmodel.ir.sequence import LayerSequence
from costmodel.onnx_io.model import read_model
from costmodel.partition.decomposition import decompose
from costmodel.runtimes.base import RuntimeSettings
from costmodel.runtimes.ort.adapter import OnnxRuntime
from costmodel.systems.host import probe_host
from tests.hosts import HOSTS, lay_out
from tests.postgres import NoServerError, emptied, running_server

# The same examples on every run, so that tests do not fail by chance. No deadlines, because the machine is shared.
hypothesis.settings.register_profile("costmodel", deadline=None, derandomize=True, max_examples=50)
hypothesis.settings.load_profile("costmodel")

LIGHT_FOLDER = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
LIGHT = MappingProxyType({path.stem.removeprefix("light_"): path for path in sorted(LIGHT_FOLDER.glob("*.onnx"))})


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the option `--host`, which runs all tests as if on another host."""
    parser.addoption("--host", choices=sorted(HOSTS), help="run as on this host of tests/hosts, not as on this machine")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Orders the files of a parallel run: those marked `starts_first`, then the others by number of tests.

    A long file that started last would run alone. In a serial run the order does not matter, and files of a folder stay
    together to share their fixtures.
    """
    if hasattr(config, "workerinput"):
        tests = Counter(item.path for item in items)
        items.sort(key=lambda item: (item.get_closest_marker("starts_first") is None, -tests[item.path]))


@pytest.fixture(scope="session", autouse=True)
def _use_requested_host(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Replaces the detected host by that of `--host`, and limits CPUs to that host's number if it has fewer."""
    name = request.config.getoption("--host")
    if name is None:
        yield
        return
    root = lay_out(name, tmp_path_factory.mktemp("host"))
    before = os.sched_getaffinity(0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COSTMODEL_HOST_ROOT", str(root))
        os.sched_setaffinity(0, sorted(before)[: probe_host().effective_cpus])
        yield
    os.sched_setaffinity(0, before)


@pytest.fixture(params=HOSTS)
def other_host(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Replaces the detected host by each host of `tests/hosts` in turn; the value is its name."""
    monkeypatch.setenv("COSTMODEL_HOST_ROOT", str(lay_out(request.param, tmp_path / "host")))
    return request.param


@pytest.fixture(scope="session")
def light_models() -> MappingProxyType[str, Path]:
    """The nine real topologies that the onnx package contains, by name."""
    assert len(LIGHT) == 9
    return LIGHT


@pytest.fixture(scope="session", params=LIGHT)
def light_name(request: pytest.FixtureRequest) -> str:
    """Name of each light model in turn."""
    return request.param


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """URL of a PostgreSQL database that tests may change in any way."""
    try:
        with running_server() as url:
            yield url
    except NoServerError as error:
        pytest.skip(str(error))


@pytest.fixture
def postgres_url(postgres_server: str) -> str:
    """URL of an empty PostgreSQL database."""
    return emptied(postgres_server)


@pytest.fixture(params=["sqlite", "postgresql"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """URL of a place where a new store can be created, for each supported database in turn."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'store.db'}"
    url: str = request.getfixturevalue("postgres_url")
    return url


@pytest.fixture(scope="session")
def parse() -> Callable[..., ModelProto]:
    """Function that makes a model from text; weights of the given shapes are added by name.

    parse("(float[2] x) => (float[2] y) { y = Mul(x, w) }", weights={"w": (2,)})
    """

    def parse(
        text: str,
        *,
        weights: Mapping[str, tuple[int, ...]] | None = None,
        opset: int = 17,
        domains: tuple[str, ...] = (),
        ir_version: int = 9,
    ) -> ModelProto:
        imports = ", ".join(f'"{domain}" : {version}' for domain, version in [("", opset), *((d, 1) for d in domains)])
        model = onnx.parser.parse_model(f"<ir_version: {ir_version}, opset_import: [{imports}]> tiny {text}")
        random = np.random.default_rng(0)
        for name, shape in (weights or {}).items():
            values = random.uniform(-0.1, 0.1, shape).astype(np.float32)
            model.graph.initializer.append(numpy_helper.from_array(values, name))
        return model

    return parse


@pytest.fixture
def branches(parse: Callable[..., ModelProto]) -> ModelProto:
    """A model of which a flag chooses the branch, as Optimum merges decoders with and without a cache."""
    return parse(
        """(float[4,64] x, bool[1] cached) => (float[4,64] y) {
            y = If(cached) <
                then_branch = g1 () => (float[4,64] a) { a = Tanh(x) },
                else_branch = g2 () => (float[4,64] b) { c = MatMul(x, w) b = Tanh(c) }
            >
        }""",
        weights={"w": (64, 64)},
    )


@pytest.fixture(scope="session")
def runtime() -> OnnxRuntime:
    """ONNX Runtime on this host."""
    return OnnxRuntime()


@pytest.fixture(scope="session")
def settings() -> RuntimeSettings:
    """Settings under which tests run networks: one thread that does not spin."""
    return RuntimeSettings(threads=1, spinning=False)


@pytest.fixture(scope="session")
def lower(runtime: OnnxRuntime) -> Callable[..., LayerGraph]:
    """Function that lowers a model in memory, at any level and with the options of `read_model`."""

    def lower(proto: ModelProto, level: str = "all", **given: object) -> LayerGraph:
        return runtime.lower(read_model(proto, **given), level)

    return lower


@pytest.fixture(scope="session")
def lowered_light(runtime: OnnxRuntime) -> Callable[..., LayerGraph]:
    """Function that returns the graph of a light model at a level, lowered once a session."""
    graphs: dict[tuple[str, str], LayerGraph] = {}

    def lowered_light(name: str, level: str = "all") -> LayerGraph:
        if (name, level) not in graphs:
            graphs[name, level] = runtime.lower(read_model(LIGHT[name]), level)
        return graphs[name, level]

    return lowered_light


@pytest.fixture(scope="session")
def run_alone(runtime: OnnxRuntime, settings: RuntimeSettings) -> Callable[[LayerSequence], None]:
    """Function that runs a sequence in isolation, once a session for each signature."""
    done: set[str] = set()

    def run_alone(sequence: LayerSequence) -> None:
        if sequence.signature not in done:
            runtime.open_sequence(sequence, settings).run()
            done.add(sequence.signature)

    return run_alone


@pytest.fixture(scope="session")
def run_isolated(run_alone: Callable[[LayerSequence], None]) -> Callable[..., None]:
    """Function that runs in isolation every layer sequence of a graph cut at the given granularities."""

    def run_isolated(graph: LayerGraph, *granularities: int) -> None:
        for granularity in granularities or (1,):
            for sequence in decompose("tiny", graph, granularity).unique.values():
                run_alone(sequence)

    return run_isolated


_OPERATORS = (("Relu", 1), ("Tanh", 1), ("Neg", 1), ("Add", 2), ("Mul", 2), ("Sub", 2), ("Max", 3))
_SHAPES = ((4, 8), (8,), ())


@st.composite
def _graphs(draw: st.DrawFn, max_layers: int = 12) -> LayerGraph:
    types: dict[str, TensorType] = {}
    inputs = [f"x{i}" for i in range(draw(st.integers(1, 3)))]
    weights = [f"w{i}" for i in range(draw(st.integers(0, 3)))]
    for name in inputs + weights:
        types[name] = TensorType("float32", draw(st.sampled_from(_SHAPES)))
    readable, layers = inputs + weights, []
    for i in range(draw(st.integers(1, max_layers))):
        operator, arity = draw(st.sampled_from(_OPERATORS))
        read = [draw(st.sampled_from(readable)) for _ in range(arity)]
        made = [f"v{i}_{slot}" for slot in range(draw(st.integers(1, 2)))]
        attributes = draw(st.sampled_from(({}, {"alpha": {"f": 0.5}}, {"axis": {"i": 1}})))
        layers.append(Layer(f"layer{i}", operator, "", 7, attributes, tuple(read), tuple(made)))
        types.update(dict.fromkeys(made, TensorType("float32", (4, 8))))
        readable += made
    made = [name for layer in layers for name in layer.outputs]
    outputs = draw(st.lists(st.sampled_from(made), min_size=1, max_size=3, unique=True))
    return LayerGraph(tuple(layers), types, dict.fromkeys(weights), tuple(inputs), tuple(outputs), 17)


@pytest.fixture(scope="session")
def graphs() -> Callable[..., st.SearchStrategy[LayerGraph]]:
    """Strategy that draws random graphs of element-wise layers with shared inputs and weights."""
    return _graphs
