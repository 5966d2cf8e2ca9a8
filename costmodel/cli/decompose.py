"""`costmodel decompose`."""

from pathlib import Path
from typing import Annotated

import typer

from costmodel.cli import app
from costmodel.cli.options import Context, GranularityOption, JsonOption, ShapeOption, parse_shapes
from costmodel.cli.output import console, note, print_json, progress_bars


@app.command()
def decompose(
    models: Annotated[str, typer.Argument(help="An ONNX file, a folder of them, or the name of a corpus.")],
    granularity: GranularityOption = 1,
    out: Annotated[Path | None, typer.Option(help="Write the benchmark suite to this new folder.")] = None,
    decoys: Annotated[int, typer.Option(min=0, help="Mix in this many sequences of no model.")] = 0,
    batch: Annotated[int | None, typer.Option(help="Size of the batch.")] = None,
    shape: ShapeOption = None,
    level: Annotated[str, typer.Option(help="Optimisation level: none, basic, extended or all.")] = "all",
    json: JsonOption = False,
) -> None:
    """Cut models into unique runnable sequences; say how much repeats; write a suite that travels."""
    from costmodel.bricks import write_bricks
    from costmodel.decomposition import corpus_statistics, jaccard
    from costmodel.jobs import decompose_models, runs_here
    from costmodel.sampling import sample_around
    from costmodel.training.corpus import corpus_models

    context = Context()
    runtime, here = context.here(None, 1, level=level)
    with progress_bars() as stage:
        items = decompose_models(
            corpus_models(models), runtime, level, context.home.cache, granularity=granularity, batch=batch,
            shapes=parse_shapes(shape), progress=stage("lowering models"),
        )  # fmt: skip
    cut = [item.decomposition for item in items]
    for item in items:
        for warning in item.model.warnings:
            note(f"{item.model.name}: {warning}")
    statistics = corpus_statistics(cut)
    written = mixed = 0
    if out is not None:
        unique = list({s: q for d in cut for s, q in d.unique.items()}.values())
        samples = sample_around(unique, decoys, runs=runs_here(runtime, here))
        strangers = [decoy for decoy, _ in samples.values()]
        written, mixed = write_bricks(out, cut, strangers), len(strangers)
        if mixed < decoys:
            note(f"only {mixed} decoys could be made: the models' sequences do not vary enough for {decoys}")
    if json:
        print_json(
            {
                "granularity": granularity,
                "total": statistics.total,
                "unique": statistics.unique,
                "unique_share": statistics.unique_share,
                "repeats_by_kind": dict(statistics.repeats_by_kind),
                "models": [
                    {
                        "model": d.model,
                        "sequences": len(d.pieces),
                        "unique": len(d.unique),
                        "unique_share": d.unique_share,
                    }
                    for d in cut
                ],
                "jaccard": [[jaccard(a, b) for b in cut] for a in cut],
                "bricks": None if out is None else {"folder": str(out), "written": written, "decoys": mixed},
            }
        )
        return
    _print(cut, statistics, granularity)
    if out is not None:
        console().print(
            f"{written} bricks in {out}, {mixed} of them decoys. Keep {out / 'private.json'}: it says what is whose."
        )


def _print(cut, statistics, granularity) -> None:  # type: ignore[no-untyped-def]  # lazily imported types
    from rich.table import Table

    table = Table("model", "sequences", "unique", "share", box=None, header_style="bold")
    for d in cut:
        table.add_row(d.model, str(len(d.pieces)), str(len(d.unique)), f"{d.unique_share:.0%}")
    if len(cut) > 1:
        table.add_row("all", str(statistics.total), str(statistics.unique), f"{statistics.unique_share:.0%}")
    for column in table.columns[1:]:
        column.justify = "right"
    out = console()
    out.print(
        f"Layer sequences of at most {granularity} layers" if granularity > 1 else "Layers as the runtime executes them"
    )
    out.print(table)
    repeats = list(statistics.repeats_by_kind.items())[:6]
    if repeats:
        out.print("Most repeated: " + ", ".join(f"{kind} {count}" for kind, count in repeats))
