"""Fixtures of the service on the synthetic store, with real worker processes that read models."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path

import pytest
from onnx import ModelProto
from starlette.testclient import TestClient

from costmodel.paths import Home
from tests.served import Serve, serving
from tests.synthetic import SYSTEM, copied


@pytest.fixture(scope="package")
def served_home(trained: Home, tmp_path_factory: pytest.TempPathFactory) -> Home:
    """Home of the service that tests share."""
    return copied(trained, tmp_path_factory.mktemp("service") / "home")


@pytest.fixture(scope="package")
def client(served_home: Home) -> Iterator[TestClient]:
    """Client of the shared service; tests may add observations and models to it and change nothing else."""
    with pytest.MonkeyPatch.context() as patch, serving(served_home, patch) as client:
        yield client


@pytest.fixture
def serve(trained: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    """Function that starts a separate service."""
    number = count()
    with ExitStack() as running:

        def serve(home: Home | None = None, **settings: object) -> TestClient:
            own = home or copied(trained, tmp_path / f"home{next(number)}")
            return running.enter_context(serving(own, monkeypatch, **settings))

        yield serve


@pytest.fixture(scope="session")
def convolution(parse: Callable[..., ModelProto]) -> ModelProto:
    """A small model with a symbolic batch dimension."""
    return parse(
        "(float[N, 16, 28, 28] x) => (float[N, 32, 28, 28] z) { y = Conv <kernel_shape = [1, 1]> (x, w) z = Relu(y) }",
        weights={"w": (32, 16, 1, 1)},
    )


@pytest.fixture
def switched(parse: Callable[..., ModelProto]) -> ModelProto:
    """A model with a symbolic batch dimension, of which a flag chooses a small or a large convolution."""
    return parse(
        """(float[N, 16, 28, 28] x, bool[1] large) => (float[N, 32, 28, 28] z) {
            z = If(large) <
                then_branch = g1 () => (float[N, 32, 28, 28] a) {
                    b = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (x, v) a = Relu(b)
                },
                else_branch = g2 () => (float[N, 32, 28, 28] c) { d = Conv <kernel_shape = [1, 1]> (x, w) c = Relu(d) }
            >
        }""",
        weights={"w": (32, 16, 1, 1), "v": (32, 16, 3, 3)},
    )


@pytest.fixture(scope="session")
def system() -> str:
    """Name of the synthetic system."""
    return SYSTEM.name
