"""Specs of evaluations: which models are measured and predicted on which systems, read from TOML files."""

import re
import tomllib
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from costmodel.errors import EvaluationFileError

__all__ = [
    "HERE",
    "CompareSpec",
    "EvaluationSpec",
    "LayersSpec",
    "MeasureSpec",
    "ModelsSpec",
    "PredictSpec",
    "ScenarioSpec",
    "SystemsSpec",
    "VerifySpec",
    "find_spec",
    "parse_spec",
    "shipped_specs",
]

# Name in a spec that stands for the host on which the evaluation runs.
HERE = "here"

_CONFIG = ConfigDict(extra="forbid")
_Count = Annotated[int, Field(strict=True, ge=1)]
_Text = Annotated[str, Field(min_length=1)]
_Level = Literal["none", "basic", "extended", "all"]


@dataclass(frozen=True, config=_CONFIG)
class ModelsSpec:
    """The models that an evaluation selects.

    Attributes:
        include: Names of corpora or of models in them, model files and folders; paths are relative to the folder from
            which the evaluation is run.
        match: Patterns such as "resnet*"; a model is evaluated if its name matches one of them.
        exclude: Patterns; a model whose name matches one of them is left out.
    """

    include: Annotated[tuple[_Text, ...], Field(min_length=1)]
    match: tuple[_Text, ...] = ("*",)
    exclude: tuple[_Text, ...] = ()


@dataclass(frozen=True, config=_CONFIG)
class SystemsSpec:
    """On which systems models are evaluated.

    Attributes:
        names: "here" for the host on which the evaluation runs, or names of systems that the store knows, on which
            nothing is measured.
        threads: Numbers of threads that a layer may use on this host.
        levels: Optimisation levels of the runtime on this host.
    """

    names: Annotated[tuple[_Text, ...], Field(min_length=1)] = (HERE,)
    threads: Annotated[tuple[_Count, ...], Field(min_length=1)] = (1,)
    levels: Annotated[tuple[_Level, ...], Field(min_length=1)] = ("all",)


@dataclass(frozen=True, config=_CONFIG)
class ScenarioSpec:
    """How requests arrive.

    Attributes:
        kind: "single-stream": each request is sent when the one before it is answered, and its latency is measured.
        batches: Batch sizes at which each model is evaluated; empty for the size that its file says, and 1 where that
            is symbolic.
    """

    kind: Literal["single-stream"] = "single-stream"
    batches: tuple[_Count, ...] = ()


@dataclass(frozen=True, config=_CONFIG)
class LayersSpec:
    """How models are cut into layer sequences.

    Attributes:
        granularities: Maximum numbers of layers in a sequence.
    """

    granularities: Annotated[tuple[_Count, ...], Field(min_length=1)] = (1,)


@dataclass(frozen=True, config=_CONFIG)
class MeasureSpec:
    """The measurements that an evaluation makes on this host.

    Attributes:
        what: "models" for whole models, "layers" for their layer sequences; empty to measure nothing.
    """

    what: tuple[Literal["models", "layers"], ...] = ("models", "layers")


@dataclass(frozen=True, config=_CONFIG)
class PredictSpec:
    """The estimates that an evaluation makes of each model.

    Attributes:
        sources: "measured" for an estimate from measured layers, where there are any; "predicted" for one in which
            every layer is predicted by the regressor; empty for no estimate.
    """

    sources: tuple[Literal["measured", "predicted"], ...] = ("measured",)


@dataclass(frozen=True, config=_CONFIG)
class CompareSpec:
    """The comparison that a summary makes: latencies at one value of a setting with those at its other values.

    Attributes:
        by: "threads", "level" or "batch", whose first value in the spec is the base; or "suffix": models whose names
            end in `suffix` with the models of the same name without it, which are the base.
        suffix: Suffix of names of models, such as "_int8".
    """

    by: Literal["threads", "level", "batch", "suffix"]
    suffix: str = ""


@dataclass(frozen=True, config=_CONFIG)
class VerifySpec:
    """How far results may differ when the evaluation is repeated.

    Attributes:
        tolerance: Largest relative distance between the intervals of two measured latencies, or between two estimates,
            that still counts as noise. Models that are measured twice, hours apart, agree within 0.1 in 90% of cases.
    """

    tolerance: Annotated[float, Field(ge=0, le=1)] = 0.1


@dataclass(frozen=True, config=_CONFIG)
class EvaluationSpec:
    """One evaluation.

    Attributes:
        name: Name of the evaluation, of letters, digits, "-" and "_".
        models: Which models are evaluated.
        title: What the evaluation shows, in a sentence.
        seeds: Seeds of the order in which models are measured; each seed is one more measurement of everything.
        systems: On which systems models are evaluated.
        scenario: How requests arrive.
        layers: How models are cut into layer sequences.
        measure: What is measured on this host.
        predict: Which estimates are made of each model.
        compare: What the summary compares; None to compare nothing.
        verify: How far results may differ when the evaluation is repeated.
    """

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$")]
    models: ModelsSpec
    title: str = ""
    seeds: Annotated[tuple[Annotated[int, Field(strict=True, ge=0)], ...], Field(min_length=1)] = (0,)
    systems: SystemsSpec = SystemsSpec()
    scenario: ScenarioSpec = ScenarioSpec()
    layers: LayersSpec = LayersSpec()
    measure: MeasureSpec = MeasureSpec()
    predict: PredictSpec = PredictSpec()
    compare: CompareSpec | None = None
    verify: VerifySpec = VerifySpec()


def shipped_specs() -> dict[str, str]:
    """Returns the text of each spec that comes with costmodel, by name."""
    folder = files("costmodel.jobs.evaluation") / "specs"
    found = {entry.name.removesuffix(".toml"): entry for entry in folder.iterdir() if entry.name.endswith(".toml")}
    return {name: found[name].read_text(encoding="utf-8") for name in sorted(found)}


def find_spec(source: str) -> str:
    """Returns the text of a spec.

    Args:
        source: Path of a file, or name of a spec that comes with costmodel.

    Raises:
        EvaluationFileError: There is neither a file nor a spec of that name, or the file cannot be read.
    """
    path = Path(source)
    try:
        if path.is_file():
            return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise EvaluationFileError(f"{source} cannot be read ({error}): give a TOML file") from error
    shipped = shipped_specs()
    if source not in shipped:
        raise EvaluationFileError(f"{source} is neither a file nor one of the evaluations {', '.join(shipped)}")
    return shipped[source]


def parse_spec(text: str, source: str) -> EvaluationSpec:
    """Returns the spec that a TOML document contains.

    Args:
        text: The document.
        source: Name of the document, for messages.

    Raises:
        EvaluationFileError: The document is not TOML, or a key is missing, unknown or has a value that it cannot have;
            the message names the key and its line.
    """
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise EvaluationFileError(f"{source} is not a TOML file: {error}") from error
    try:
        spec = TypeAdapter(EvaluationSpec).validate_python(document)
    except ValidationError as error:
        raise EvaluationFileError(_complaint(error, document, text, source)) from error
    if spec.compare is not None and (spec.compare.by == "suffix") != bool(spec.compare.suffix):
        raise EvaluationFileError(
            f'{source}{_line(text, ("compare", "by"))}: compare.suffix belongs to compare.by = "suffix": give both or '
            "neither"
        )
    return spec


def _complaint(error: ValidationError, document: dict[str, Any], text: str, source: str) -> str:
    """Returns a message about the first error that was found in a document."""
    first = error.errors()[0]
    # Positions in lists, and what pydantic inserts for the alternatives of a value, are no keys of the document.
    location = [part for part in first["loc"] if isinstance(part, str) and part != "CompareSpec"]
    key, where = ".".join(location), _line(text, location)
    if first["type"] == "unexpected_keyword_argument":
        return f"{source}{where}: there is no key {key}; known are {', '.join(_known(location[:-1]))}"
    if first["type"] in ("missing", "missing_argument"):
        return f"{source}: the key {key} is missing"
    message = first["msg"][0].lower() + first["msg"][1:]
    return f"{source}{where}: {key} cannot be {first['input']!r}: {message}"


def _known(location: Sequence[str]) -> list[str]:
    """Returns the keys of the table at `location`."""
    tables = {
        "models": ModelsSpec, "systems": SystemsSpec, "scenario": ScenarioSpec, "layers": LayersSpec,
        "measure": MeasureSpec, "predict": PredictSpec, "compare": CompareSpec, "verify": VerifySpec,
    }  # fmt: skip
    kind: Any = tables[location[0]] if location else EvaluationSpec
    return list(kind.__dataclass_fields__)


def _line(text: str, location: Sequence[str]) -> str:
    """Returns ", line N" for the line of a TOML document that sets the key at `location`; "" if it is not found."""
    table: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        if header := re.match(r"\s*\[\s*([\w.-]+)\s*\]", line):
            table = header[1].split(".")
            if table == list(location):
                return f", line {number}"
        elif (key := re.match(r"\s*([\w.-]+)\s*=", line)) and [*table, *key[1].split(".")] == list(location):
            return f", line {number}"
    return ""
