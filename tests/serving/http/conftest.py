"""The service over the made-up world of `tests/synthetic.py`, with real workers that read models."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from onnx import ModelProto
from starlette.testclient import TestClient

from costmodel.home import Home
from tests.served import Serve, serving
from tests.synthetic import SYSTEM, copied


@pytest.fixture(scope="package")
def served_home(trained: Home, tmp_path_factory: pytest.TempPathFactory) -> Home:
    """What the service that tests share answers from."""
    return copied(trained, tmp_path_factory.mktemp("service") / "home")


@pytest.fixture(scope="package")
def client(served_home: Home) -> Iterator[TestClient]:
    """Asks the service that tests share; they add observations and models to it, and change nothing else."""
    with pytest.MonkeyPatch.context() as patch, serving(served_home, patch) as client:
        yield client


@pytest.fixture
def serve(trained: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    """Starts a service of the test's own."""
    running = []

    def serve(home: Home | None = None, **settings: object) -> TestClient:
        own = home or copied(trained, tmp_path / f"home{len(running)}")
        block = serving(own, monkeypatch, **settings)
        client = block.__enter__()
        running.append(block)
        return client

    yield serve
    for block in running:
        block.__exit__(None, None, None)


@pytest.fixture(scope="session")
def convolution(parse: Callable[..., ModelProto]) -> ModelProto:
    """A small model with a symbolic batch."""
    return parse(
        "(float[N, 16, 28, 28] x) => (float[N, 32, 28, 28] z) { y = Conv <kernel_shape = [1, 1]> (x, w) z = Relu(y) }",
        weights={"w": (32, 16, 1, 1)},
    )


@pytest.fixture(scope="session")
def system() -> str:
    """The one that is answered for."""
    return SYSTEM.name
