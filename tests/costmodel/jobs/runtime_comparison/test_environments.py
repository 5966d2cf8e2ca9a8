"""Environments of releases, installed from a folder that stands in for an index."""

import subprocess
import zipfile
from pathlib import Path

import pytest

import costmodel
from costmodel.errors import CostModelError
from costmodel.jobs.runtime_comparison.environments import ReleaseName, environment_of, parse_release, program_in


@pytest.fixture
def offered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder from which pip installs in the test, which offers two releases of onnxruntime."""
    folder = tmp_path / "offered"
    folder.mkdir()
    for version in ("9.9.1", "9.9.2"):
        info = f"onnxruntime-{version}.dist-info"
        with zipfile.ZipFile(folder / f"onnxruntime-{version}-py3-none-any.whl", "w") as wheel:
            wheel.writestr("onnxruntime/__init__.py", f"__version__ = {version!r}\n")
            wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: onnxruntime\nVersion: {version}\n")
            wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            wheel.writestr(f"{info}/RECORD", "")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def test_an_environment_has_its_release_and_this_costmodel(offered: Path, tmp_path: Path) -> None:
    """The release in the environment takes precedence over the one of this interpreter, and is installed once."""
    notes: list[str] = []
    release = parse_release("onnxruntime==9.9")
    python = environment_of(release, tmp_path / "environments", notes.append)
    assert environment_of(release, tmp_path / "environments", notes.append) == python
    (note,) = notes
    assert "an environment with onnxruntime==9.9 is made in" in note
    program = program_in(python, "import costmodel, numpy, onnxruntime as o; print(o.__version__, costmodel.__file__)")
    done = subprocess.run(program, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["9.9.2", str(Path(costmodel.__file__).resolve())]
    assert (release.includes("9.9.2"), release.includes("9.90.0"), release.includes("9.8.0")) == (True, False, False)


def test_a_release_that_does_not_exist_is_one_sentence(
    offered: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sentence names releases that exist, or says that the index cannot be used; nothing is left behind."""
    folder = tmp_path / "environments"
    with pytest.raises(CostModelError, match=r"no release onnxruntime==9.9.3 .* such as 9.9.1, 9.9.2$"):
        environment_of(parse_release("9.9.3"), folder)
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(CostModelError, match="pip finds no release of onnxruntime at all: check the network"):
        environment_of(parse_release("9.9.2"), folder)
    assert [path.name for path in folder.iterdir() if path.is_dir()] == []


def test_a_place_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    """The error names the environment."""
    (tmp_path / "environments").write_text("a file")
    with pytest.raises(CostModelError, match="cannot be made"):
        environment_of(parse_release("9.9.2"), tmp_path / "environments")


def test_names_of_releases() -> None:
    """A release is a runtime and a version, and two numbers mean the newest patch."""
    assert parse_release("onnxruntime==1.30") == ReleaseName("onnxruntime", "1.30") == parse_release("1.30")
    assert parse_release("2026.5", "openvino") == ReleaseName("openvino", "2026.5")
    assert [parse_release(text).requirement for text in ("1.30", "1.30.1")] == [
        "onnxruntime==1.30.*", "onnxruntime==1.30.1",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "runtime", "message"),
    [
        ("newest", None, "names no release"),
        ("onnxruntime>=1.30", None, "names no release"),
        ("onnxruntime==1.30 --pre", None, "names no release"),
        ("tensorflow==2.20", None, "choose one of onnxruntime, openvino"),
        ("onnxruntime==1.12", None, r"older than costmodel can use: .* onnxruntime==1\.\d+ on"),
        ("openvino==2026.5", "onnxruntime", "a release of another runtime than onnxruntime"),
    ],
)
def test_other_names_are_refused(text: str, runtime: str | None, message: str) -> None:
    """One sentence says how a release is named, or why it cannot be used."""
    with pytest.raises(CostModelError, match=message):
        parse_release(text, runtime)


def test_the_program_has_the_search_path_of_this_interpreter() -> None:
    """The environment's own standard library is used, and the packages of this interpreter come after its own."""
    *_, paths = program_in(Path("python"))
    assert str(Path(costmodel.__file__).parents[1].resolve()) in paths
    assert "site-packages" in paths or "dist-packages" in paths
    assert "lib-dynload" not in paths
