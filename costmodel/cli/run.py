"""Implements `costmodel run`, which runs an evaluation that a file describes, and verifies its results."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from costmodel.cli import app
from costmodel.cli.bench_report import bench_line, note_failures
from costmodel.cli.child_process import call_in_child_process
from costmodel.cli.context import Context
from costmodel.cli.options import JsonOption, StoreOption
from costmodel.cli.output import note, print_json, print_table, progress_bars, say

if TYPE_CHECKING:
    from costmodel.jobs.bench_report import BenchReport
    from costmodel.jobs.evaluation.folder import Environment, ResultFolder
    from costmodel.jobs.evaluation.results import EvaluationResults
    from costmodel.jobs.evaluation.spec import EvaluationSpec
    from costmodel.jobs.evaluation.verify import Verification

__all__ = ["run"]

_DIFFERS = 1


@app.command()
def run(
    command: typer.Context,
    evaluation: Annotated[
        str | None,
        typer.Argument(help="A TOML file, or the name of an evaluation that comes with costmodel.", show_default=False),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for the results; by default results/NAME.", metavar="DIR", show_default=False),
    ] = None,
    verify: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            show_default=False,
            help="Repeat the evaluation whose results are in this folder, and compare; exits with 1 if they differ.",
        ),
    ] = None,
    listed: Annotated[bool, typer.Option("--list", help="List the evaluations that come with costmodel.")] = False,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Run an evaluation that a file describes.

    Measures and predicts the models of the evaluation on its systems. What was measured before is not measured again:
    if the command is stopped, it goes on where it stopped. The folder of the results has everything that is needed to
    repeat them.
    """
    from costmodel.jobs.evaluation.folder import ResultFolder
    from costmodel.jobs.evaluation.spec import find_spec, parse_spec

    if sum((evaluation is not None, verify is not None, listed)) != 1:
        raise typer.BadParameter("give one of EVALUATION, --verify and --list")
    if listed:
        _list(json=json)
        return
    context = Context(store, tools=command.obj)
    if verify is not None:
        if out is not None:
            raise typer.BadParameter("a verification is stored in the folder that it verifies", param_hint="--out")
        found = _verify(context, ResultFolder(verify))
        if json:
            print_json(_verification_document(found))
        else:
            _print_verification(found)
        if found.beyond_noise:
            raise typer.Exit(_DIFFERS)
        return
    text = find_spec(str(evaluation))
    spec = parse_spec(text, str(evaluation))
    folder = ResultFolder(out or Path("results") / spec.name)
    folder.prepare(text)
    results, _ = _run(context, spec, folder, store)
    for what, reason in results.failed.items():
        note(f"{what}: {reason}")
    if json:
        print_json(_document(spec, results, folder.path))
        return
    _print(spec, results)
    say(f"Spec, results and what is needed to repeat them are in {folder.path}.")


def _run(
    context: Context, spec: "EvaluationSpec", folder: "ResultFolder", here_url: str | None
) -> "tuple[EvaluationResults, Environment]":
    """Runs an evaluation with measurements of this host in the store at `here_url`, and writes the results."""
    from costmodel.jobs.evaluation.folder import digest_of, this_environment
    from costmodel.jobs.evaluation.run import EvaluationStores, run_evaluation
    from costmodel.runtimes.base import get_runtime

    text = folder.spec_text()
    here = Context(here_url, tools=context.tools)
    stores = EvaluationStores(
        here.store if spec.measure.what else context.store, context.store, context.bundles, context.home.cache
    )
    simulated = context.tools.runtime is not None or context.tools.bench is not None

    def measure(threads: int, level: str) -> "BenchReport":
        # A process fixes its number of threads once, and keeps what it loaded.
        if simulated:
            return _measure(here, text, threads, level)
        return call_in_child_process(_measure_in_child, here_url, text, threads, level)

    runtime = context.tools.runtime or get_runtime()
    with progress_bars() as stage:
        results = run_evaluation(spec, digest_of(text), stores, runtime, measure, progress=stage)
    environment = this_environment()
    folder.write(results, environment)
    return results, environment


def _measure_in_child(store_url: str | None, text: str, threads: int, level: str) -> "BenchReport":
    return _measure(Context(store_url), text, threads, level)


def _measure(context: Context, text: str, threads: int, level: str) -> "BenchReport":
    """Measures what an evaluation needs of this host, and prints on standard error what was measured."""
    from costmodel.jobs.evaluation.measuring import measure_here
    from costmodel.jobs.evaluation.spec import parse_spec

    runtime, system = context.here(None, threads, level=level)
    with progress_bars() as stage:
        report = measure_here(
            parse_spec(text, "the spec"), context.store, system, runtime, context.home.cache, progress=stage,
            bench=context.bench,
        )  # fmt: skip
    note_failures(report)
    note(f"{system.name}: {bench_line(report)}")
    return report


def _verify(context: Context, folder: "ResultFolder") -> "Verification":
    """Runs the evaluation of a result folder again, into a folder in it, and compares the results."""
    from costmodel.jobs.evaluation.spec import parse_spec
    from costmodel.jobs.evaluation.verify import compare_results

    text = folder.spec_text()
    spec = parse_spec(text, str(folder.path / "evaluation.toml"))
    before = folder.results(), folder.environment()
    again = folder.next_verification()
    again.prepare(text)
    after = _run(context, spec, again, again.store_url)
    for what, reason in after[0].failed.items():
        note(f"{what}: {reason}")
    return compare_results(before, after, spec.verify.tolerance)


def _list(*, json: bool) -> None:
    from costmodel.jobs.evaluation.spec import parse_spec, shipped_specs

    specs = [parse_spec(text, name) for name, text in shipped_specs().items()]
    if json:
        print_json([{"name": spec.name, "title": spec.title} for spec in specs])
    else:
        for spec in specs:  # not as a table, which would cut the titles
            say(f"{spec.name:<10}{spec.title}")


def _print(spec: "EvaluationSpec", results: "EvaluationResults") -> None:
    from costmodel.jobs.evaluation.summary import accuracy_rows, comparison_rows

    say(f"{spec.name}: {spec.title}" if spec.title else spec.name, style="bold")
    rows = [
        (
            row.system, row.kind, "" if row.batch is None else str(row.batch), str(row.granularity), str(row.models),
            f"{row.geometric_mean:.3f}", f"{row.within_5pct:.0%}", f"{row.within_10pct:.0%}",
        )
        for row in accuracy_rows(results.cases)
    ]  # fmt: skip
    if rows:
        print_table(("system", "estimate", "batch", "G", "models", "geomean", "in 5%", "in 10%"), rows, left=2)
    else:
        measured = len({(case.model, case.batch, case.system) for case in results.cases if case.measured is not None})
        say(f"  {measured} models are measured; no model is both measured and estimated")
    compared = () if spec.compare is None else tuple(comparison_rows(results.cases, spec.compare))
    if compared:
        say()
        print_table(
            ("measured latency", "models", "geomean", "lowest", "highest"),
            [
                (row.what, str(row.models), f"{row.geometric_mean:.3f}", f"{row.lowest:.3f}", f"{row.highest:.3f}")
                for row in compared
            ],
        )


def _document(spec: "EvaluationSpec", results: "EvaluationResults", folder: Path) -> dict[str, Any]:
    from costmodel.jobs.evaluation.summary import accuracy_rows, comparison_rows

    return {
        "name": spec.name,
        "title": spec.title,
        "folder": str(folder),
        "accuracy": list(accuracy_rows(results.cases)),
        "comparisons": [] if spec.compare is None else list(comparison_rows(results.cases, spec.compare)),
        "cases": list(results.cases),
        "failed": dict(results.failed),
    }


def _print_verification(found: "Verification") -> None:
    from costmodel.units import format_us

    for change in found.changes:
        say(f"  changed: {change}")
    differing = found.beyond_noise
    if differing:
        print_table(
            ("model", "system", "latency", "batch", "G", "before", "again", "change", "machine"),
            [
                (
                    one.case.model, one.case.system, one.kind, "" if one.case.batch is None else str(one.case.batch),
                    str(one.case.granularity), format_us(one.before.latency_us),
                    "-" if one.after is None else format_us(one.after.latency_us),
                    "-" if one.change is None else f"{one.change:+.1%}", "quiet" if one.stable else "busy",
                )
                for one in differing
            ],
            left=3,
        )  # fmt: skip
    verdicts = [one.verdict for one in found.latencies]
    say(
        f"{len(verdicts)} latencies: {verdicts.count('agrees')} agree, {verdicts.count('within tolerance')} differ by "
        f"less than the tolerance, {len(differing)} differ beyond noise"
    )


def _verification_document(found: "Verification") -> dict[str, Any]:
    return {
        "beyond_noise": len(found.beyond_noise),
        "changes": list(found.changes),
        "latencies": [
            {
                "model": one.case.model,
                "system": one.case.system,
                "batch": one.case.batch,
                "granularity": one.case.granularity,
                "kind": one.kind,
                "before": one.before,
                "after": one.after,
                "change": one.change,
                "verdict": one.verdict,
                "stable": one.stable,
            }
            for one in found.latencies
        ],
    }
