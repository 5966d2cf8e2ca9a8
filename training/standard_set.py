"""The standard set: the models that every new machine measures, so that machines can be compared and learnt from.

Each runtime has a set. It is chosen once from the measurements of a base system, and the choice is a versioned file. It
has whole models of all families and of many latencies. Of most of them every layer is measured as well, because such
complete models show how the costs of layers add up; the errors of estimates that measuring their layers removes decide
which ones. `benchmarks/standard_set.py` makes the file, and `costmodel survey` measures the set.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from costmodel.atomic_write import atomic_file
from costmodel.errors import DataFileError
from costmodel.ir.footprint import read_bytes, weight_bytes
from costmodel.ir.sequence import LayerSequence
from costmodel.measure.duration import estimated_group_seconds
from costmodel.measure.protocol import Protocol
from costmodel.training.suggestion import BenchmarkTimeModel, Usage, importance, value_of_measuring

if TYPE_CHECKING:
    from costmodel.training.dataset import Dataset, MeasuredModel

__all__ = ["StandardModel", "StandardSet", "choose_standard_set", "measuring_values", "standard_set_file"]

_FORMAT = 1

# Limits of the set. Both thread counts of a survey share 40 minutes, and a new machine may take half as long again as
# the base system.
MODELS = 150
LAYERS = 3000
LONGEST_US = 150_000.0
BUDGET_S = 800.0

# Parts of the names of operators that only int8 models have.
_QUANTISED = ("Quant", "QLinear", "QGemm", "Integer")


def standard_set_file(runtime: str) -> str:
    """Returns the name of the file, among the shipped data, that has the standard set of a runtime."""
    return f"standard_set-{runtime}.json"


@dataclass(frozen=True, slots=True)
class StandardModel:
    """A model of the standard set.

    Attributes:
        name: Name of the model.
        family: Architecture lineage of the model.
        whole: Signature of the whole model as one sequence, which also determines the layers of the model.
        complete: Whether each layer of the model is measured, too, and not only the model end to end.
    """

    name: str
    family: str
    whole: str
    complete: bool


@dataclass(frozen=True)
class StandardSet:
    """The models that every new machine measures, the most important first.

    Attributes:
        base: Name of the system from whose measurements the set was chosen.
        fingerprint: Fingerprint of the data set of that system, as `Dataset.fingerprint` returns it.
        layers: Number of different layers that are measured.
        seconds: Expected seconds for measuring the set on the base system.
        models: Models of the set.
    """

    base: str
    fingerprint: str
    layers: int
    seconds: float
    models: tuple[StandardModel, ...]

    def write(self, path: Path) -> None:
        """Writes the set to a JSON file, which is replaced if it exists."""
        with atomic_file(path) as partial:
            partial.write_text(json.dumps({"format": _FORMAT, **asdict(self)}, indent=1) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> "StandardSet":
        """Returns the set in a JSON file that `write` wrote.

        Raises:
            DataFileError: There is no such file, or it is no standard set of this version of costmodel.
        """
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
            if document.pop("format") != _FORMAT:
                raise DataFileError(f"{path} has another format than this costmodel knows: use the file of its release")
            models = tuple(StandardModel(**model) for model in document.pop("models"))
            return cls(**document, models=models)
        except OSError as error:
            raise DataFileError(f"{path} cannot be read ({error.strerror}): check the path") from error
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            raise DataFileError(
                f"{path} is no standard set: make it anew with `python benchmarks/standard_set.py`"
            ) from error


def measuring_values(dataset: "Dataset", predicted_us: np.ndarray) -> np.ndarray:
    """Returns the value of measuring each row of a data set: its share of models' latencies times its expected error.

    The share is averaged over families and not over models, or search spaces with many models would decide alone. The
    expected error is the mean of the row's own error and of the average error of its operators, because a single
    prediction may be right by chance.

    Args:
        dataset: Measured sequences and models.
        predicted_us: Cost of each row in microseconds, as predicted without the families of the row; nan for rows
            without a prediction. Shape [num_rows].

    Returns:
        Values of the rows, shape [num_rows].
    """
    errors = np.abs(np.log(predicted_us / dataset.latencies_us))
    of_kind: dict[str, list[float]] = defaultdict(list)
    for kind, error in zip(dataset.kinds, errors.tolist(), strict=True):
        if not np.isnan(error):
            of_kind[kind].append(error)
    average = float(np.nanmean(errors))
    typical = np.array([np.mean(of_kind[kind]) if kind in of_kind else average for kind in dataset.kinds])
    expected = np.where(np.isnan(errors), typical, (errors + typical) / 2)
    usages: dict[str, list[Usage]] = defaultdict(list)
    for model in dataset.models:
        usages[model.family].append(Usage(model.name, model.rows, 0))
    shares = np.mean([importance(of_family, dataset.latencies_us) for of_family in usages.values()], axis=0)
    return value_of_measuring(shares, expected)


def choose_standard_set(
    dataset: "Dataset",
    sequences: Mapping[str, LayerSequence],
    values: np.ndarray,
    *,
    models: int = MODELS,
    layers: int = LAYERS,
    longest_us: float = LONGEST_US,
    budget_s: float = BUDGET_S,
) -> StandardSet:
    """Chooses the standard set from the models of a data set; the same data always give the same set.

    Models are chosen in rounds. In each round every family gives one model, and one more if it has int8 models: first
    the model whose layers that are not chosen yet have the highest values on average, in later rounds the one whose
    latency differs most from those chosen before. Within a round, the models with the highest values come first. A
    model is complete as long as its layers fit into the limits.

    Args:
        dataset: Measured sequences and models of the base system.
        sequences: Layer sequence of each signature that occurs in a model.
        values: Value of measuring each row of the data set, as `measuring_values` returns it; shape [num_rows].
        models: Maximum number of models.
        layers: Maximum number of different layers.
        longest_us: Longest latency of a model, in microseconds on the base system.
        budget_s: Seconds that measuring the set may take on the base system.
    """
    prices = _time_model(dataset, sequences, longest_us)
    candidates = [_Candidate(dataset, model, prices) for model in dataset.models if model.latency_us <= longest_us]
    chosen_rows = np.zeros(len(dataset), dtype=bool)

    def gain(candidate: _Candidate) -> float:
        """Returns the average value of the layers that a model adds; infinite for a model that adds none."""
        new = candidate.rows[~chosen_rows[candidate.rows]]
        return float(values[new].mean()) if len(new) else float("inf")

    chosen: list[StandardModel] = []
    seconds = 0.0
    for candidate in _in_rounds(candidates, gain):
        if len(chosen) == models:
            break
        if seconds + candidate.whole_s > budget_s:
            continue
        new = candidate.rows[~chosen_rows[candidate.rows]]
        complete = (
            int(chosen_rows.sum()) + len(new) <= layers
            and seconds + candidate.whole_s + candidate.layers_s <= budget_s
        )  # fmt: skip
        seconds += candidate.whole_s
        if complete:
            seconds += candidate.layers_s
            chosen_rows[new] = True
        model = candidate.model
        chosen.append(StandardModel(model.name, model.family, dataset.signatures[model.row], complete))
    return StandardSet(
        base=dataset.system.name,
        fingerprint=dataset.fingerprint,
        layers=int(chosen_rows.sum()),
        seconds=round(seconds, 1),
        models=tuple(chosen),
    )


@dataclass(frozen=True)
class _Candidate:
    """A model that may be chosen, with the time that measuring it takes."""

    dataset: "Dataset"
    model: "MeasuredModel"
    prices: BenchmarkTimeModel

    @cached_property
    def rows(self) -> np.ndarray:
        """Rows of the data set for the different layers of the model."""
        return np.unique(self.model.rows)

    @cached_property
    def group(self) -> tuple[str, bool]:
        """Family of the model, and whether it is an int8 model."""
        kinds = {self.dataset.kinds[row] for row in self.rows.tolist()}
        return self.model.family, any(part in kind for kind in kinds for part in _QUANTISED)

    @cached_property
    def layers_s(self) -> float:
        """Expected seconds for measuring the layers of the model."""
        footprint = int(self.prices.reads_bytes[self.model.rows].sum())
        return self.prices.seconds(Usage(self.model.name, self.model.rows, footprint), self.rows)

    @cached_property
    def whole_s(self) -> float:
        """Expected seconds for measuring the model end to end."""
        weights = int(self.prices.weights_bytes[self.rows].sum())
        return estimated_group_seconds([self.model.latency_us], weights, 0, self.prices.protocol)


def _time_model(dataset: "Dataset", sequences: Mapping[str, LayerSequence], longest_us: float) -> BenchmarkTimeModel:
    """Returns a model of how long it takes to measure the layers of models up to a latency on the base system."""
    weights, reads = (np.zeros(len(dataset), dtype=np.int64) for _ in range(2))
    rows = {row for model in dataset.models if model.latency_us <= longest_us for row in model.rows.tolist()}
    for row in rows:
        sequence = sequences[dataset.signatures[row]]
        weights[row], reads[row] = weight_bytes(sequence), read_bytes(sequence)
    return BenchmarkTimeModel(dataset.latencies_us, weights, reads, dataset.system.host, Protocol())


def _in_rounds(candidates: Sequence[_Candidate], gain: Callable[[_Candidate], float]) -> Iterator[_Candidate]:
    """Yields candidates in rounds, in each of which every group gives one, those with the highest gain first.

    Args:
        candidates: Models to choose from.
        gain: Function that returns the gain of choosing a model; it is called anew after each yielded model.
    """
    left: dict[tuple[str, bool], list[_Candidate]] = defaultdict(list)
    for candidate in sorted(candidates, key=lambda candidate: candidate.model.name):
        left[candidate.group].append(candidate)
    logs: dict[tuple[str, bool], list[float]] = defaultdict(list)

    def best_of(group: tuple[str, bool]) -> _Candidate:
        if not logs[group]:
            return max(left[group], key=gain)
        return max(left[group], key=lambda c: min(abs(np.log(c.model.latency_us) - log) for log in logs[group]))

    while any(left.values()):
        waiting = sorted(group for group, models in left.items() if models)
        while waiting:
            best = max((best_of(group) for group in waiting), key=gain)
            waiting.remove(best.group)
            left[best.group].remove(best)
            logs[best.group].append(float(np.log(best.model.latency_us)))
            yield best
