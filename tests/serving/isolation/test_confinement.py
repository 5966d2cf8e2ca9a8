"""What a confined reader cannot do, tried by code that has taken it over."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from onnx import helper, numpy_helper

from costmodel.errors import LoweringError
from costmodel.onnx_io.model import read_model
from costmodel.partition.decomposition import decompose
from costmodel.runtimes.ort.adapter import OnnxRuntime
from costmodel.serving.isolation.files import left_open, python_files
from costmodel.serving.isolation.limits import Limits
from costmodel.serving.isolation.wire import decomposition_to_dict
from tests.serving.isolation.readers import Reader, started
from tests.zoo import ZOO

LIMITS = Limits(memory_bytes=1 << 30, cpu_s=30, wall_s=60.0, file_bytes=1 << 26)


def _has_both() -> bool:
    """Returns whether this host has libseccomp and a Landlock with all tested features."""
    try:
        import landlockpy
        import pyseccomp  # noqa: F401
    except (ImportError, RuntimeError):
        return False
    return bool(landlockpy.abi_version() >= 6)


needs_both = pytest.mark.skipif(not _has_both(), reason="this kernel has no Landlock of 2024, or no libseccomp")


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    """A reader that performs the actions that a test asks for."""
    with started(tmp_path_factory.mktemp("hostile"), LIMITS, hostile=True) as reader:
        assert reader.confinement["seccomp"], "what follows is for a reader that is confined"
        yield reader


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with another client's model."""
    folder = tmp_path_factory.mktemp("others")
    (folder / "victim.onnx").write_bytes(b"secret")
    return folder


@needs_both
class TestTakenOver:
    """Actions of a compromised reader."""

    def test_what_is_in_force_is_said(self, hostile: Reader) -> None:
        """The first answer names both protections and nothing as missing."""
        assert hostile.confinement["landlock"] >= 6
        assert hostile.confinement["seccomp"] is True
        assert hostile.confinement["missing"] == []

    @pytest.mark.parametrize(
        ("action", "arguments"),
        [
            ("read", ["/etc/passwd"]),
            ("read", ["/proc/self/environ"]),
            ("read", ["{others}/victim.onnx"]),
            ("read", ["{checkout}/pyproject.toml"]),
            ("list", ["{others}"]),
            ("list", ["/"]),
            ("list", ["{models}"]),
            ("write", ["{others}/new"]),
            ("write", ["/dev/shm/new"]),
            ("write", ["{others}/victim.onnx"]),
            ("write", ["{models}/model.onnx"]),
            ("truncate", ["{others}/victim.onnx"]),
            ("truncate", ["{models}/model.onnx"]),
            ("remove", ["{others}/victim.onnx"]),
            ("rename", ["{others}/victim.onnx", "{scratch}/victim.onnx"]),
            ("link", ["{others}/victim.onnx", "{scratch}/victim.onnx"]),
            ("symlink", ["{others}/victim.onnx", "{scratch}/victim.onnx"]),
            ("chmod", ["{models}/model.onnx"]),
            ("touch", ["{models}/model.onnx"]),
            ("write", ["{scratch}/large", LIMITS.file_bytes + 1]),
            ("connect", ["{port}"]),
            ("socket", [socket.AF_INET, socket.SOCK_STREAM]),
            ("socket", [socket.AF_INET6, socket.SOCK_DGRAM]),
            ("socket", [socket.AF_UNIX, socket.SOCK_STREAM]),
            ("fork", []),
            ("clone", []),
            ("spawn", ["/bin/true"]),
            ("exec", ["/bin/true"]),
            ("exec", [sys.executable]),
            ("run", ["/bin/true"]),
            ("signal", ["{parent}"]),
            ("kill", ["{bystander}"]),
            ("kill_group", []),
            ("kill_all", []),
            ("ptrace", ["{bystander}"]),
            ("unshare", []),
            ("mount", ["{scratch}"]),
            ("outlive", []),
            ("memfd", []),
            ("limit", ["{bystander}"]),
            ("memory", [LIMITS.memory_bytes + 1]),
            ("open_files", [300]),
        ],
        ids=str,
    )
    def test_what_fails(self, hostile: Reader, others: Path, action: str, arguments: list[object]) -> None:
        """Each forbidden action fails with an error, and the reader continues."""
        (hostile.models / "model.onnx").write_bytes(b"model")
        (hostile.models / "model.onnx").chmod(0o600)
        with socket.create_server(("127.0.0.1", 0)) as server, subprocess.Popen(["sleep", "60"]) as bystander:
            known = {
                "others": others, "checkout": Path(__file__).parents[3], "models": hostile.models,
                "scratch": hostile.scratch, "port": server.getsockname()[1], "parent": os.getpid(),
                "bystander": bystander.pid,
            }  # fmt: skip
            given = [_filled(argument, known) for argument in arguments]
            try:
                assert hostile.do(action, *given)["met"] is not None
                assert bystander.poll() is None
            finally:
                bystander.kill()
        assert hostile.do("thread")["met"] is None
        assert sorted(path.name for path in others.iterdir()) == ["victim.onnx"]
        assert (others / "victim.onnx").read_bytes() == b"secret"
        assert (hostile.models / "model.onnx").read_bytes() == b"model"
        assert (hostile.models / "model.onnx").stat().st_mode & 0o777 == 0o600

    def test_what_a_reader_needs_still_works(self, hostile: Reader) -> None:
        """It can read the model, write into its folder and start threads."""
        (hostile.models / "model.onnx").write_bytes(b"model")
        assert hostile.do("read", str(hostile.models / "model.onnx"))["found"] == "b'model'"
        scratch = str(hostile.scratch / "kept")
        assert hostile.do("write", scratch, 100)["met"] is None
        assert hostile.do("rename", scratch, f"{scratch}.onnx")["met"] is None
        assert hostile.do("list", str(hostile.scratch))["met"] is None
        assert hostile.do("remove", f"{scratch}.onnx")["met"] is None
        assert hostile.do("thread")["met"] is None


def _filled(argument: object, known: dict[str, object]) -> object:
    if not isinstance(argument, str) or "{" not in argument:
        return argument
    name = argument[1:].partition("}")[0]
    value = known[name]
    return value if argument == f"{{{name}}}" and isinstance(value, int) else argument.format(**known)


class TestReading:
    """A confined reader works like an unconfined one."""

    def test_every_light_model_is_lowered_and_kept(
        self, tmp_path: Path, light_models: dict[str, Path], runtime: OnnxRuntime
    ) -> None:
        """The file and its kept, weightless copy give the same sequences as without a reader."""
        with started(tmp_path / "reader", LIMITS) as reader:
            for name, path in light_models.items():
                model = reader.models / "model.onnx"
                model.write_bytes(path.read_bytes())
                found = reader.lower(model, name=name)
                assert "error" not in found
                assert sum(len(layers) for _, layers, _ in found["segments"]) == len(
                    runtime.lower(read_model(path), "all").layers
                )
                kept = reader.scratch / "kept.onnx"
                assert reader.ask(name=name, path=str(model), keep=str(kept)).keys() == {"digest"}
                model.write_bytes(kept.read_bytes())
                again = reader.lower(model, name=name)
                assert again["sequences"] == found["sequences"]

    def test_every_operator_is_lowered_as_without_a_reader(self, tmp_path: Path, runtime: OnnxRuntime) -> None:
        """Confinement prevents nothing that ONNX Runtime needs for any operator."""
        with started(tmp_path / "reader", LIMITS) as reader:
            for kind, specimen in ZOO.items():
                model = reader.models / "model.onnx"
                model.write_bytes(specimen.model().SerializeToString())
                cut = decompose("mine", runtime.lower(read_model(model, name="mine"), "all"))
                assert reader.lower(model).get("sequences") == decomposition_to_dict(cut)["sequences"], kind

    def test_openvino_is_loaded_before_a_reader_is_confined(self, tmp_path: Path) -> None:
        """It starts no thread by then, and confinement prevents nothing that it needs for any operator."""
        pytest.importorskip("openvino")
        from costmodel.runtimes.openvino.adapter import OpenVino

        openvino = OpenVino()
        with (
            started(tmp_path / "plain", LIMITS) as plain,
            started(tmp_path / "reader", LIMITS, runtimes=["openvino"]) as reader,
        ):
            assert reader.confinement == plain.confinement
            for kind, specimen in ZOO.items():
                model = reader.models / "model.onnx"
                model.write_bytes(specimen.model().SerializeToString())
                found = reader.lower(model, runtime="openvino")
                try:
                    cut = decompose("mine", openvino.lower(read_model(model, name="mine"), "all"))
                except LoweringError:
                    assert found["error"] == "LoweringError", kind
                else:
                    assert found.get("sequences") == decomposition_to_dict(cut)["sequences"], kind

    def test_a_model_elsewhere_is_not_opened(self, tmp_path: Path, light_models: dict[str, Path]) -> None:
        """A task with a file outside the model folder is refused in a sentence without the path."""
        elsewhere = tmp_path / "elsewhere.onnx"
        elsewhere.write_bytes(light_models["squeezenet"].read_bytes())
        with started(tmp_path / "reader", LIMITS) as reader:
            if reader.confinement["landlock"] is None:
                pytest.skip("this kernel has no Landlock")
            found = reader.lower(elsewhere)
        assert found["error"] == "ModelReadError"
        assert str(tmp_path) not in found["message"]

    def test_without_folders_nothing_is_confined_and_that_is_said(self, tmp_path: Path) -> None:
        """A reader started without folders reports that it is not confined."""
        with started(tmp_path / "reader", LIMITS, confined=False) as reader:
            assert reader.confinement["landlock"] is None
            assert reader.confinement["seccomp"] is False
            assert any("named no folders" in sentence for sentence in reader.confinement["missing"])


class TestElsewhere:
    """Hosts without some protection: readers report it and still read models."""

    @pytest.mark.parametrize(
        ("package", "sentence"), [("landlockpy", "landlockpy is not installed"), ("pyseccomp", "pyseccomp is not inst")]
    )
    def test_a_package_that_is_not_there(
        self, tmp_path: Path, light_models: dict[str, Path], package: str, sentence: str
    ) -> None:
        """Without one of the two protections the other one is in force."""
        without = f"import sys; sys.modules[{package!r}] = None"
        program = f"{without}\nfrom costmodel.serving.isolation import reader\nreader.main()"
        script = tmp_path / "reader.py"
        script.write_text(program)
        reader = Reader(tmp_path / "reader", LIMITS, [str(script)])
        try:
            assert any(sentence in missing for missing in reader.confinement["missing"])
            model = reader.models / "model.onnx"
            model.write_bytes(light_models["squeezenet"].read_bytes())
            assert "error" not in reader.lower(model)
        finally:
            reader.end()

    def test_an_older_kernel_says_what_it_lacks(self) -> None:
        """Older versions of Landlock report more missing protections; the system call filter covers some."""
        alone = [len(left_open(version, sockets_refused=False)) for version in (1, 3, 4, 6)]
        assert alone == sorted(alone, reverse=True)
        assert len(set(alone)) == 4
        assert left_open(3, sockets_refused=True) == []
        assert len(left_open(2, sockets_refused=True)) == 1

    def test_the_checkout_is_not_readable(self) -> None:
        """Only installed packages are readable, not whole module path folders, which may hold the service's data."""
        checkout = Path(__file__).parents[3]
        readable = python_files()
        assert checkout not in readable
        assert not any(path in checkout.parents for path in readable)
        assert any((checkout / "costmodel").is_relative_to(path) for path in readable)


def test_limits_are_sent_as_the_service_sends_them(tmp_path: Path) -> None:
    """A file size limit below a model's largest constant gives an error message, not a killed reader."""
    weight = numpy_helper.from_array(np.zeros((600, 600), np.float32), "w")
    ports = [helper.make_tensor_value_info(name, 1, [1, 600]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", ports[:1], ports[1:], [weight])
    model = helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 17)])
    with started(tmp_path / "reader", replace(LIMITS, file_bytes=1 << 20)) as reader:
        path = reader.models / "model.onnx"
        path.write_bytes(model.SerializeToString())
        found = reader.lower(path)
    assert json.dumps(found).count("constant of more than 1 MiB") == 1
