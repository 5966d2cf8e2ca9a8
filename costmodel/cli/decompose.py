"""Implements `costmodel decompose`, which cuts models into layer sequences."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from costmodel.cli import app
from costmodel.cli.context import Context
from costmodel.cli.options import (
    BatchOption,
    GranularityOption,
    JsonOption,
    LevelOption,
    RuntimeOption,
    ShapeOption,
    StoreOption,
    ValueOption,
    parse_granularity,
    parse_shapes,
    parse_values,
)
from costmodel.cli.output import note, print_json, print_table, progress_bars, say

if TYPE_CHECKING:
    from costmodel.partition.decomposition import CorpusStatistics, Decomposition

__all__ = ["decompose"]

_MOST_REPEATED = 6


@app.command()
def decompose(
    command: typer.Context,
    models: Annotated[str, typer.Argument(help="An ONNX file, a folder of them, or the name of a corpus.")],
    granularity: GranularityOption = "1",
    out: Annotated[Path | None, typer.Option(help="Write the benchmark suite to this new folder.")] = None,
    decoys: Annotated[int, typer.Option(min=0, help="Mix in this many sequences that no model has; with --out.")] = 0,
    batch: BatchOption = None,
    shape: ShapeOption = None,
    value: ValueOption = None,
    runtime: RuntimeOption = "onnxruntime",
    level: LevelOption = "all",
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Cut models into unique layer sequences.

    Prints how many of the sequences are unique, in each model and in all models together. With --out, the unique
    sequences are written as a benchmark suite. The suite can be given to others: it does not reveal the models that its
    networks come from.
    """
    from costmodel.jobs.bench import runnable_on
    from costmodel.jobs.decomposed_models import decompose_models, put_models
    from costmodel.partition.decomposition import corpus_statistics, jaccard
    from costmodel.partition.granularity import AUTO
    from costmodel.partition.suite import private_file, write_suite
    from costmodel.runtimes.base import lowering_key
    from costmodel.synthetic.sampling import sample_around
    from costmodel.training.corpus import corpus_models

    if decoys and out is None:
        raise typer.BadParameter(
            "decoys are mixed into a suite: say where to write it with --out", param_hint="--decoys"
        )
    most = parse_granularity(granularity)
    if most == AUTO:
        raise typer.BadParameter(
            "auto weighs time against error, and nothing is timed here: give a number", param_hint="--granularity"
        )
    context = Context(store, tools=command.obj, runtime_name=runtime)
    adapter, here = context.here(None, 1, level=level)
    refused: dict[str, str] = {}
    with progress_bars() as stage:
        items = decompose_models(
            corpus_models(models), adapter, level, context.home.cache, granularity=most, batch=batch,
            shapes=parse_shapes(shape), values=parse_values(value), refused=refused, progress=stage("lowering models"),
        )  # fmt: skip
    for name, reason in refused.items():
        note(f"{name} is left out: {reason}")
    cut = [item.decomposition for item in items]
    for item in items:
        for warning in item.model.warnings:
            note(f"{item.model.name}: {warning}")
    statistics = corpus_statistics(cut)
    written = mixed = 0
    if out is not None:
        unique = list({s: q for d in cut for s, q in d.unique.items()}.values())
        samples = sample_around(unique, decoys, runs=runnable_on(adapter, here))
        decoy_sequences = [decoy for decoy, _ in samples.values()]
        written, mixed = write_suite(out, cut, decoy_sequences), len(decoy_sequences)
        # Stored so that results imported from another machine find their models, families and origins here.
        put_models(context.store, items, lowering_key(adapter, level))
        context.store.put_samples(samples)
        if mixed < decoys:
            note(f"only {mixed} decoys could be made: the models' sequences do not vary enough for {decoys}")
    if json:
        print_json(
            {
                "granularity": most,
                "total": statistics.total,
                "unique": statistics.unique,
                "unique_share": statistics.unique_share,
                "repeats_by_kind": dict(statistics.repeats_by_kind),
                "models": [
                    {
                        "model": d.model,
                        "sequences": len(d.segments),
                        "unique": len(d.unique),
                        "unique_share": d.unique_share,
                    }
                    for d in cut
                ],
                "jaccard": [[jaccard(a.unique.keys(), b.unique.keys()) for b in cut] for a in cut],
                "bricks": None if out is None else {"folder": str(out), "written": written, "decoys": mixed},
            }
        )
        return
    _print(cut, statistics, most)
    if out is not None:
        say(f"{written} networks in {out}, {mixed} of them decoys.")
        say(f"Keep {private_file(out)} to yourself: it says which model each network comes from.")


def _print(cut: "Sequence[Decomposition]", statistics: "CorpusStatistics", granularity: int) -> None:
    say(
        f"Layer sequences of at most {granularity} layers" if granularity > 1 else "Layers as the runtime executes them"
    )
    rows = [(d.model, str(len(d.segments)), str(len(d.unique)), f"{d.unique_share:.0%}") for d in cut]
    if len(cut) > 1:
        rows.append(("all", str(statistics.total), str(statistics.unique), f"{statistics.unique_share:.0%}"))
    print_table(("model", "sequences", "unique", "share"), rows)
    if statistics.repeats_by_kind:
        repeats = list(statistics.repeats_by_kind.items())[:_MOST_REPEATED]
        say()
        print_table(("most repeated", "repeats"), [(kind, str(count)) for kind, count in repeats])
