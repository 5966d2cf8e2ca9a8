"""Writes the report of the reproduction of the DLBricks paper: its figures and their tables, and numbers as JSON."""

import csv
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from costmodel.jobs.reproduction import figures, paper
from costmodel.jobs.reproduction.construction import Construction, Summary, summarise
from costmodel.measure.measurement import Timing
from costmodel.partition.decomposition import jaccard, repeats_by_kind

__all__ = ["CorpusResult", "summaries_of", "summary_document", "write_report"]

_DRAWN_GRANULARITIES = range(1, 7)
_KINDS = 15


@dataclass(frozen=True)
class CorpusResult:
    """The results of one corpus on one system.

    Attributes:
        corpus: Name of the corpus.
        system: Name of the system.
        found: Constructed and end-to-end latency of each model at every measured granularity.
        summaries: Statistics of the corpus, by granularity.
        kinds: Operator types of each sequence at granularity 1, by signature.
        families: Family of each model, by name of the model.
        environment: Conditions of the measurements: processor, runtime, settings, protocol, first and last time, and
            the statistic by which the times of runs were summarised as a latency.
    """

    corpus: str
    system: str
    found: Sequence[Construction]
    summaries: Mapping[int, Summary]
    kinds: Mapping[str, str]
    families: Mapping[str, str]
    environment: Mapping[str, Any]

    def at(self, granularity: int) -> list[Construction]:
        """Returns constructed and end-to-end latencies at one granularity, ordered by family and name of the model."""
        chosen = [item for item in self.found if item.granularity == granularity]
        return sorted(chosen, key=lambda item: (self.families.get(item.model, ""), item.model))


def write_report(folder: Path, results: Sequence[CorpusResult]) -> None:
    """Writes `summary.json` and, in a folder for each corpus, the figures and their tables.

    The figures have the numbers that they have in the DLBricks paper. Figures 3, 5, 6, 7 and 10 are about single
    layers, and leave out systems on which single layers are not measured.

    Args:
        folder: Folder to write to; it is created if necessary, and files of an earlier report in it are replaced.
        results: Results, each of one corpus on one system; a figure that shows only one system shows the first result
            of its corpus.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for corpus in dict.fromkeys(result.corpus for result in results):
        of_corpus = [result for result in results if result.corpus == corpus]
        place = folder / Path(corpus).resolve().name  # a corpus may be a path; nothing is written into that folder
        place.mkdir(exist_ok=True)
        of_layers = [result for result in of_corpus if result.at(1)]
        for result in of_layers[:1]:
            _about_layers(place, result)
        for result in of_layers:
            _about_models(place, result)
        _about_granularity(place, of_corpus)
    (folder / "summary.json").write_text(json.dumps(summary_document(results), indent=1) + "\n")


def summary_document(results: Sequence[CorpusResult]) -> dict[str, Any]:
    """Returns a JSON document with the numbers that the DLBricks paper reports and those of all results."""
    return {
        "paper": {
            "geometric_mean": paper.GEOMETRIC_MEAN, "range": paper.RANGE, "speedup": paper.SPEEDUP,
            "unique_share": paper.UNIQUE_LAYERS / paper.LAYERS,
        },
        "results": [
            {
                "system": result.system,
                "corpus": result.corpus,
                "environment": dict(result.environment),
                "granularities": [
                    {**asdict(summary), "unique_share": summary.unique_share} for summary in result.summaries.values()
                ],
            }
            for result in results
        ],
    }  # fmt: skip


def _about_layers(place: Path, result: CorpusResult) -> None:
    """Writes Figures 5, 6 and 7 of the DLBricks paper to the folder `place`.

    They show how layers repeat within and across models, which does not depend on the measured latencies.
    """
    models = result.at(1)
    by_share = sorted(models, key=lambda item: item.unique_share)
    names = [item.model for item in by_share]
    shares = [item.unique_share for item in by_share]
    rows = [(i.model, len(i.signatures), len(set(i.signatures)), s) for i, s in zip(by_share, shares, strict=True)]
    _write(place / "figure05.csv", ("model", "layers", "unique", "unique_share"), rows)
    figures.bars(
        place / "figure05.svg", "Share of unique layers in each model", names, shares, "unique / all layers",
        percent=True,
    )  # fmt: skip
    counts = Counter(signature for item in models for signature in item.signatures)
    common = list(repeats_by_kind(counts, result.kinds).items())
    _write(place / "figure06.csv", ("kind", "repeated"), common)
    figures.bars(
        place / "figure06.svg", "What the repeated layers are", [kind for kind, _ in common[:_KINDS]],
        [count for _, count in common[:_KINDS]], "layers beyond the first of their kind", percent=False,
    )  # fmt: skip
    sets = [set(item.signatures) for item in models]
    matrix = np.array([[jaccard(one, other) for other in sets] for one in sets])
    names = [item.model for item in models]
    _write(
        place / "figure07.csv", ("model", *names), [(n, *row) for n, row in zip(names, matrix.tolist(), strict=True)]
    )
    figures.heat_map(place / "figure07.svg", "Layers that models share", names, matrix)


def _about_models(place: Path, result: CorpusResult) -> None:
    """Writes Figures 3 and 10 of the DLBricks paper, which have a row for each model, to the folder `place`."""
    models = result.at(1)
    _write(
        place / f"figure03-{result.system}.csv",
        ("model", "end_to_end_us", "sequential_us", "parallel_us"),
        [(item.model, item.end_to_end_us, item.sequential_us, item.parallel_us) for item in models],
    )
    figures.ratios(
        place / f"figure03-{result.system}.svg",
        f"Sum of layers and critical path over end to end\n{result.system}",
        [item.model for item in models],
        {
            "sequential": [item.ratio for item in models],
            "parallel": [item.parallel_us / item.end_to_end_us for item in models],
        },
        {"the paper's geometric mean, sequential": paper.GEOMETRIC_MEAN},
    )
    by_granularity = {
        granularity: {item.model: item.ratio for item in result.at(granularity)} for granularity in result.summaries
    }
    _write(
        place / f"figure10-{result.system}.csv",
        ("model", *(f"G{granularity}" for granularity in by_granularity)),
        [(i.model, *(of.get(i.model, "") for of in by_granularity.values())) for i in models],
    )
    figures.ratios(
        place / f"figure10-{result.system}.svg",
        f"Constructed over end to end by granularity\n{result.system}",
        [item.model for item in models],
        {
            f"G = {granularity}": [of.get(item.model, float("nan")) for item in models]
            for granularity, of in by_granularity.items()
            if granularity in _DRAWN_GRANULARITIES
        },
        {"the paper's worst and best at G = 1": paper.RANGE[0], "": paper.RANGE[1]},
    )


def _about_granularity(place: Path, results: Sequence[CorpusResult]) -> None:
    """Writes Figures 11 and 12 of the DLBricks paper, which have a line for each system, to the folder `place`."""
    rows = [
        (result.system, s.granularity, s.geometric_mean, s.lowest, s.highest, s.within_5pct, s.within_10pct, s.speedup)
        for result in results
        for s in result.summaries.values()
    ]
    header = ("system", "granularity", "geometric_mean", "lowest", "highest", "within_5pct", "within_10pct", "speedup")
    _write(place / "figure11.csv", header[:-1], [row[:-1] for row in rows])
    _write(place / "figure12.csv", (*header[:2], header[-1]), [(*row[:2], row[-1]) for row in rows])
    figures.lines(
        place / "figure11.svg",
        "Geometric mean of constructed over end to end",
        {result.system: {g: s.geometric_mean for g, s in result.summaries.items()} for result in results},
        "constructed / end to end",
        ("the paper at G = 1", paper.GEOMETRIC_MEAN),
        band=True,
    )
    figures.lines(
        place / "figure12.svg",
        "Benchmarking time saved",
        {result.system: {g: s.speedup for g, s in result.summaries.items()} for result in results},
        "models' latencies / unique sequences' latencies",
        ("the paper's best", paper.SPEEDUP),
    )


def summaries_of(found: Iterable[Construction], timings: Mapping[str, Timing]) -> dict[int, Summary]:
    """Returns the statistics of a corpus at each measured granularity, by granularity."""
    by_granularity: dict[int, list[Construction]] = {}
    for item in found:
        by_granularity.setdefault(item.granularity, []).append(item)
    return {granularity: summarise(items, timings) for granularity, items in sorted(by_granularity.items())}


def _write(path: Path, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows([f"{cell:.6g}" if isinstance(cell, float) else cell for cell in row] for row in rows)
