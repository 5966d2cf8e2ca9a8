"""Rules for all commands: help, documentation, wrong usage."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from costmodel.cli.options import parse_shapes, parse_values
from tests.shell import Run

README = Path(__file__).parents[3] / "README.md"
COMMANDS = (
    "adapt", "bench", "decompose", "predict", "systems", "train", "evaluate", "compare", "regressors", "tour",
    "export", "import", "reproduce", "rank", "lower", "drift", "serve", "token", "tokens", "survey", "profile",
    "run", "capacity", "worker", "extender", "interference", "tune", "compare-runtimes",
)  # fmt: skip
GROUPS = {"corpus": ("build", "list")}  # groups of commands


def test_help_lists_every_command(run: Run, tmp_path: Path) -> None:
    """`--help` lists each command with a description that fits its line."""
    done = run(tmp_path, "--help")
    assert done.code == 0
    listed = re.findall(r"^  ([\w-]+) {2,}(.+)$", done.out.partition("Commands:")[2], re.MULTILINE)
    assert {name for name, _ in listed} == {*COMMANDS, *GROUPS}
    assert [text for _, text in listed if not text.endswith(".") or text.endswith("...")] == []


def test_every_command_is_in_the_readme(run: Run, tmp_path: Path) -> None:
    """The README names every command."""
    listed = re.findall(r"^  ([\w-]+) {2,}", run(tmp_path, "--help").out.partition("Commands:")[2], re.MULTILINE)
    text = README.read_text()
    assert [name for name in listed if f"costmodel {name}" not in text] == []


@pytest.mark.parametrize("command", [*COMMANDS, *(f"{group} {name}" for group in GROUPS for name in GROUPS[group])])
def test_every_command_explains_itself_and_speaks_json(run: Run, tmp_path: Path, command: str) -> None:
    """Every command has `--help` and `--json`."""
    done = run(tmp_path, *command.split(), "--help")
    assert done.code == 0
    assert "--json" in done.out
    assert "--no-partial" not in done.out


def test_no_command_is_a_question(run: Run, tmp_path: Path) -> None:
    """`costmodel` without arguments prints the help with the exit code of wrong usage."""
    done = run(tmp_path)
    assert done.code == 2
    assert "Commands:" in done.out + done.err


@pytest.mark.parametrize(
    "arguments",
    [
        ["fly"],
        ["predict"],
        ["predict", "light", "--fast"],
        ["predict", "light", "--granularity", "0"],
        ["predict", "light", "--granularity", "many"],
        ["predict", "light", "--compose", "fastest"],
        ["predict", "light", "--shape", "data"],
        ["predict", "light", "--shape", "data=1,x"],
        ["predict", "light", "--threads", "0"],
        ["predict", "light", "--inter-threads", "0"],
        ["bench", "--level", "extreme"],
        ["bench", "--inter-threads", "0"],
        ["bench", "--budget", "soon"],
        ["bench", "--budget", "-3s"],
        ["bench", "--samples", "-1"],
        ["bench", "--suggest", "0"],
        ["adapt", "--from", "base", "--budget", "soon"],
        ["adapt", "--from", "base", "--system", "base"],
        ["decompose", "light", "--level", "extreme"],
        ["decompose", "light", "--decoys", "3"],
        ["tour", "--budget", "soon"],
        ["worker", "tcp://127.0.0.1:1", "--timeout", "soon"],
        ["bench", "light", "--recheck", "--samples", "3"],
        ["profile", "light_vgg19", "--trace", "no/such/folder/trace.json"],
        ["train", "--seeds", "0"],
        ["evaluate", "extra"],
        ["evaluate", "--folds", "1"],
        ["compare", "nearest"],
        ["compare", "nearest", "guess"],
        ["compare", "nearest", "nearest"],
        ["compare", "nearest", "flops", "--splits", "1"],
        ["compare", "nearest", "flops", "--metric", "speed"],
        ["compare", "nearest", "flops", "--worth", "-1"],
        ["tune", "light_vgg19", "--objective", "speed"],
        ["tune", "light_vgg19", "--within", "reason"],
        ["tune", "light_vgg19", "--budget", "soon"],
        ["compare-runtimes", "light", "--from", "1.30"],
        ["compare-runtimes", "light", "--from", "1.30", "--to", "1.31", "--rounds", "1"],
        ["compare-runtimes", "light", "--from", "1.30", "--to", "1.31", "--budget", "soon"],
        ["export"],
        ["reproduce"],
        ["reproduce", "resnets"],
        ["reproduce", "dlbricks", "--threads", "0"],
        ["reproduce", "dlbricks", "--threads", "one"],
        ["reproduce", "dlbricks", "-G", "4-2"],
        ["reproduce", "dlbricks", "--level", "all,extreme"],
        ["reproduce", "dlbricks", "--system", "c5.xlarge"],
    ],
    ids=" ".join,
)
def test_wrong_usage_exits_2(run: Run, tmp_path: Path, arguments: list[str]) -> None:
    """Wrong usage prints usage and a sentence on standard error, and does nothing."""
    done = run(tmp_path / "home", *arguments)
    assert done.code == 2
    assert done.out == ""
    assert "Usage: " in done.err
    assert "Traceback" not in done.err
    assert not (tmp_path / "home" / "data" / "costmodel.db").exists()


def test_wrong_usage_says_what_is_right(run: Run, tmp_path: Path) -> None:
    """The sentence lists the choices or shows the right form."""
    for arguments, hint in (
        (["predict", "light", "--compose", "fastest"], "sequential, parallel"),
        (["decompose", "light", "--level", "extreme"], "none, basic, extended, all"),
        (["bench", "--budget", "soon"], "90s, 10m, 1h or 30d"),
        (["predict", "light", "--shape", "data"], "input=1,3,224,224"),
        (["decompose", "light", "--decoys", "3"], "--out"),
        (["compare", "nearest", "guess"], "operator_count"),
        (["compare", "nearest", "nearest"], "choose two of"),
        (["compare", "nearest", "flops", "--metric", "speed"], "model_unseen.mape"),
        (["reproduce", "resnets"], "dlbricks"),
        (["reproduce", "dlbricks", "--threads", "0"], "1-4 or 1,2,8"),
        (["reproduce", "dlbricks", "--level", "extreme"], "none, basic, extended, all"),
        (["reproduce", "dlbricks", "--system", "c5.xlarge"], "--no-measure"),
    ):
        assert hint in run(tmp_path, *arguments).err


def test_shapes_are_read() -> None:
    """Several inputs may have shapes, and names may contain an equals sign."""
    assert parse_shapes(["x=1,3,224,224", "a=b=2"]) == {"x": (1, 3, 224, 224), "a=b": (2,)}
    assert parse_shapes(None) == {}


def test_values_are_read() -> None:
    """Several inputs may have values, and names may contain an equals sign."""
    assert parse_values(["rate=16000", "a=b=true"]) == {"rate": 16_000, "a=b": 1}
    assert parse_values(None) == {}


def test_the_module_is_the_command(tmp_path: Path) -> None:
    """`python -m costmodel` works like `costmodel`, with the same sentence and exit code 1."""
    done = subprocess.run(
        [sys.executable, "-m", "costmodel", "predict", "no-such.onnx", "--system", "made.up"],
        capture_output=True, text=True, check=False, env={"COSTMODEL_HOME": str(tmp_path), "PATH": ""},
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (1, "")
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("costmodel: ")


def test_a_closed_pipe_is_no_error(tmp_path: Path) -> None:
    """A closed pipe, as in `costmodel systems | head -0`, ends the command quietly."""
    for option in ([], ["--json"]):
        with subprocess.Popen(
            [sys.executable, "-m", "costmodel", "systems", *option],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={"COSTMODEL_HOME": str(tmp_path)},
        ) as process:  # fmt: skip
            assert process.stdout is not None
            assert process.stderr is not None
            process.stdout.close()
            assert process.stderr.read() == ""
        assert process.returncode == 0
