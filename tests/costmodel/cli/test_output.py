"""Lines and tables on terminals of any width, and in pipes."""

import re

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, example, given, settings

from costmodel.cli.output import note, print_table, say

WORDS = st.lists(st.text("abc-./`", min_size=1, max_size=70), min_size=1, max_size=30)
captured = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@captured
@example(words=["`" * 18], indent=3, columns=20)
@given(words=WORDS, indent=st.integers(0, 4), columns=st.integers(20, 200))
def test_a_line_is_wrapped_between_words(
    capsys: pytest.CaptureFixture[str], words: list[str], indent: int, columns: int
) -> None:
    """Lines are wrapped between words with their indent; only a single word may exceed the width."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", str(columns))
        say(" " * indent + " ".join(words))
    out = capsys.readouterr().out
    assert out.split() == words
    for line in out.splitlines():
        assert len(line) <= columns or len(line.split()) == 1
        assert re.fullmatch(rf" {{{indent}}}\S.*", line)


def test_a_pipe_gets_lines_as_they_are(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines are not wrapped in a pipe."""
    monkeypatch.delenv("COLUMNS", raising=False)
    text = " ".join(["word"] * 100)
    say(text)
    note(text)
    done = capsys.readouterr()
    assert (done.out, done.err) == (f"{text}\n", f"note: {text}\n")


def test_a_note_is_one_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A note is not wrapped, so that a command in it can be copied."""
    monkeypatch.setenv("COLUMNS", "40")
    note("to see the run: mlflow ui --backend-store-uri sqlite:////home/user/mlruns/mlflow.db")
    assert len(capsys.readouterr().err.splitlines()) == 1


NAME = "intel-xeon-platinum-8259cl-cascade-lake-4c-ort1.31-2t"


@pytest.mark.parametrize(
    ("columns", "line"),
    [
        (100, f"{NAME}  20261122-045315-ccaeabc  12345.6  78.9"),
        (90, f"{NAME}  20261122-045315-cca…  12345.6  78.9"),
        (80, f"{NAME}  20261122-…  12345.6  78.9"),
        (60, f"{NAME[:34]}…  2026112…  12345.6  78.9"),
    ],
)
def test_numbers_are_the_last_to_give_way(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: int, line: str
) -> None:
    """Narrow tables shorten other text columns first, then the first column, and numbers never."""
    monkeypatch.setenv("COLUMNS", str(columns))
    print_table(("system", "version", "us", "GB/s"), [(NAME, "20261122-045315-ccaeabc", "12345.6", "78.9")], left=2)
    assert capsys.readouterr().out.splitlines()[1] == line
    assert len(line) <= columns


@captured
@given(
    rows=st.lists(st.tuples(st.text("abc", max_size=90), st.text("abc", max_size=90), st.text("123", max_size=8))),
    columns=st.integers(40, 200),
)
def test_a_table_fits(capsys: pytest.CaptureFixture[str], rows: list[tuple[str, str, str]], columns: int) -> None:
    """A table has one line per row, none wider than the terminal, with every number complete."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", str(columns))
        print_table(("model", "kind", "us"), rows, left=2)
    _, *lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(rows)
    assert all(len(line) <= columns for line in lines)
    assert all(line.endswith(number) for line, (_, _, number) in zip(lines, rows, strict=True))
