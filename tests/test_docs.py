"""Commands, Python examples and links in the documentation work."""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import click
import pytest
import typer

from costmodel.cli import app
from tests.served import listening
from tests.synthetic import SYSTEM, copied, trained_home

ROOT = Path(__file__).parents[1]
WRITTEN = ROOT / "docs/reference"  # by docs/reference.py
PAGES = [
    page
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "examples").glob("*.md")))
    if page.parent != WRITTEN
]
SHOWN_SYSTEM = "amd-epyc-zen5-2c-ort1.31-1t"
SHOWN_URL = "http://127.0.0.1:8000"


def _blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


def _commands() -> Iterator[tuple[str, str]]:
    """Returns every `costmodel` command in a code block or in backticks, with the page that shows it."""
    for page in PAGES:
        text = page.read_text()
        blocks = "\n".join(re.findall(r"^```\w*\n(.*?)^```", text, re.MULTILINE | re.DOTALL)).replace("\\\n", " ")
        lines = [line.removeprefix("$ ") for line in blocks.splitlines()]
        inline = re.findall(r"`(costmodel [^`]+)`", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL))
        for command in [line for line in lines if line.startswith("costmodel ")] + inline:
            yield page.name, command.partition("  #")[0].partition(" > ")[0].strip()


def _resolved(words: list[str]) -> tuple[click.Command, list[str]]:
    command: click.Command = typer.main.get_command(app)
    rest = words
    while isinstance(command, click.Group) or hasattr(command, "commands"):
        name, *rest = rest
        assert name in command.commands, f"there is no command {name}"  # type: ignore[union-attr]
        command = command.commands[name]  # type: ignore[union-attr]
        if not rest:
            break
    return command, rest


@pytest.mark.parametrize(("page", "line"), sorted(set(_commands())))
def test_every_command_that_is_shown_exists(page: str, line: str) -> None:
    """Every documented command exists, with the documented options."""
    words = shlex.split(line)[1:]
    if words[0].startswith("--") or words[0] == "...":
        return
    command, rest = _resolved(words)
    known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)} | {
        "--help"
    }
    shown = [word.partition("=")[0] for word in rest if re.match(r"--?[A-Za-z]", word)]
    assert [option for option in shown if option not in known] == [], line


@pytest.mark.parametrize("page", [p for p in PAGES if _blocks(p, "python")], ids=lambda page: page.name)
def test_python_that_is_shown_runs(
    page: Path,
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    light_models: Mapping[str, Path],
) -> None:
    """The documented Python blocks run in order as one program, beside a running service and a filled store."""
    code = "\n".join(_blocks(page, "python"))
    if "pandas" in code or "def rule" in code:
        pytest.skip("needs what is not there, and has a test of its own")
    home = copied(trained_home(tmp_path_factory.getbasetemp() / "trained-home"), tmp_path / "home")
    (tmp_path / "model.onnx").write_bytes(light_models["squeezenet"].read_bytes())
    monkeypatch.chdir(tmp_path)
    code = code.replace(SHOWN_SYSTEM, SYSTEM.name).replace("CostModel.load()", f'CostModel.load("{SYSTEM.name}")')
    with listening(home, monkeypatch) as url:
        exec(compile(code.replace(SHOWN_URL, url), str(page), "exec"), {"__name__": "shown"})


def test_links_lead_somewhere() -> None:
    """Every relative link in the documentation points to an existing file."""
    for page in PAGES:
        for target in re.findall(r"\]\((?!https?:|#)([^)#\s]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_reference_pages_are_current() -> None:
    """What the reference says of the command line and of the HTTP interface is what the code says."""
    done = subprocess.run([sys.executable, ROOT / "docs/reference.py", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_page_is_in_the_navigation() -> None:
    """A page that nobody can reach is not documentation."""
    listed = set(re.findall(r"[\w/-]+\.md", (ROOT / "mkdocs.yml").read_text()))
    pages = {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")}
    assert listed == pages


def test_every_file_in_the_table_of_questions_exists() -> None:
    """docs/architecture.md answers where something is with files that are there."""
    table = (ROOT / "docs/architecture.md").read_text().partition("## Where is")[2]
    files = re.findall(r"`([\w/]+\.\w+)`", table)
    assert len(files) >= 20
    assert [file for file in files if not (ROOT / file).is_file()] == []
