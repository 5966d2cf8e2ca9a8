"""Specs of evaluations: what a file may say, and what is said about a file that is wrong."""

from pathlib import Path

import pytest

from costmodel.errors import EvaluationFileError
from costmodel.jobs.evaluation.spec import find_spec, parse_spec, shipped_specs

SMALL = 'name = "small"\n[models]\ninclude = ["light"]\n'


@pytest.mark.parametrize("name", shipped_specs())
def test_shipped_specs_are_valid(name: str) -> None:
    """Each spec that comes with costmodel has the name of its file and a title."""
    spec = parse_spec(find_spec(name), name)
    assert spec.name == name
    assert spec.title


def test_the_library_has_what_it_promises() -> None:
    """The paper's evaluation, today's models, int8, threads and batches."""
    assert list(shipped_specs()) == ["batches", "dlbricks", "int8", "modern", "threads"]


def test_what_a_spec_does_not_say_has_a_default() -> None:
    """Everything but a name and models may be left out."""
    spec = parse_spec(SMALL, "small.toml")
    assert (spec.systems.names, spec.systems.threads, spec.systems.levels) == (("here",), (1,), ("all",))
    assert (spec.scenario.kind, spec.scenario.batches, spec.seeds) == ("single-stream", (), (0,))
    assert (spec.measure.what, spec.predict.sources, spec.compare) == (("models", "layers"), ("measured",), None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("name = x", "x.toml is not a TOML file: .*at line 1", id="not TOML"),
        pytest.param('name = "x"\n', "x.toml: the key models is missing", id="missing table"),
        pytest.param('name = "x"\n[models]\n', "x.toml: the key models.include is missing", id="missing key"),
        pytest.param(
            SMALL + "[systems]\n\nthread = [1]\n",
            "x.toml, line 6: there is no key systems.thread; known are names, threads, levels$",
            id="unknown key",
        ),
        pytest.param(SMALL + "[traffic]\n", "x.toml, line 4: there is no key traffic; known are name", id="table"),
        pytest.param(
            SMALL + "[systems]\nthreads = [1, 0]\n",
            "x.toml, line 5: systems.threads cannot be 0: input should be greater than or equal to 1",
            id="number",
        ),
        pytest.param(SMALL + '[systems]\nthreads = ["2"]\n', "line 5: systems.threads cannot be '2'", id="type"),
        pytest.param(SMALL + '[systems]\nlevels = ["max"]\n', "line 5: systems.levels cannot be 'max'", id="choice"),
        pytest.param(SMALL + "[models.include]\n", "x.toml is not a TOML file", id="twice"),
        pytest.param('name = "a/b"\n[models]\ninclude = ["light"]', "line 1: name cannot be 'a/b'", id="name"),
        pytest.param(
            SMALL + '[compare]\nby = "size"\n', "line 5: compare.by cannot be 'size': input should be", id="nested"
        ),
        pytest.param(
            SMALL + '[compare]\nby = "suffix"\n', "line 5: compare.suffix belongs to compare.by", id="no suffix"
        ),
    ],
)
def test_an_error_names_key_and_line(text: str, message: str) -> None:
    """A message says where the mistake is and what would be right."""
    with pytest.raises(EvaluationFileError, match=message):
        parse_spec(text, "x.toml")


def test_a_spec_is_found_by_path_or_name(tmp_path: Path) -> None:
    """A file comes before a spec that is shipped."""
    path = tmp_path / "mine.toml"
    path.write_text(SMALL)
    assert find_spec(str(path)) == SMALL
    with pytest.raises(EvaluationFileError, match="thread is neither a file nor one of the evaluations batches, "):
        find_spec("thread")
    path.write_bytes(b"\xff")
    with pytest.raises(EvaluationFileError, match="cannot be read"):
        find_spec(str(path))
