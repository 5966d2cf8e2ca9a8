"""Implements `costmodel train`, which trains a regressor, and `costmodel evaluate`, which compares predictors."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from costmodel.cli import app
from costmodel.cli.context import Context
from costmodel.cli.evaluation_tables import print_across, print_evaluation
from costmodel.cli.options import JsonOption, RuntimeOption, StoreOption, SystemOption, ThreadsOption
from costmodel.cli.output import note, print_json, progress_bars, say
from costmodel.systems.host import usable_cpus

if TYPE_CHECKING:
    from costmodel.training.regressors.learner import Regressor
    from costmodel.training.search import Search

__all__ = ["evaluate", "train"]

_Seeds = Annotated[int, typer.Option("--seeds", min=1, help="Number of seeds to average over.")]
_Predictors = Annotated[
    str | None,
    typer.Option(
        "--predictors", metavar="A,B,...", help="Evaluate only these predictors; by default all.", show_default=False
    ),
]
# Number of groups in which lineages are held out while systems are evaluated, which takes minutes for each.
_FOLDS = 4


@app.command()
def train(
    command: typer.Context,
    system: SystemOption = None,
    threads: ThreadsOption = 1,
    runtime: RuntimeOption = "onnxruntime",
    seeds: _Seeds = 1,
    search: Annotated[
        int,
        typer.Option(
            "--search", min=0, metavar="N", help="First search N sets of LightGBM's hyperparameters; Ctrl-C ends that."
        ),
    ] = 0,
    chosen: _Predictors = None,
    tracking: Annotated[bool, typer.Option(help="Record the run in MLflow.")] = True,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Train a system's regressor and make it the champion.

    The regressor is evaluated on held-out lineages, and the run is recorded in MLflow: in `mlruns/`, or at
    MLFLOW_TRACKING_URI. With --search, hyperparameters are searched first, and each trial is recorded as a child run;
    the best hyperparameters are used if they do better than the defaults on lineages that took no part in the search.

    On a large data set, all regressors take long; with --predictors, only some are trained and evaluated, and the best
    of these is the champion: lightgbm takes the least time.
    """
    from costmodel.training.regressors.registry import BASELINES, LEARNERS
    from costmodel.training.train import SEARCHED, train_system

    predictors = _chosen_predictors(chosen)
    learners = {name: make for name, make in LEARNERS.items() if name in predictors}
    if not learners:
        raise typer.BadParameter(
            f"baselines are only evaluated: add one of {', '.join(LEARNERS)}", param_hint="--predictors"
        )
    if search and SEARCHED not in learners:
        raise typer.BadParameter(f"--search is about {SEARCHED}: add it", param_hint="--predictors")
    context = Context(store, reads=True, tools=command.obj, runtime_name=runtime)
    name = context.learnt_system(system, threads)
    with progress_bars() as stage:
        report = train_system(
            context.store,
            name,
            context.bundles,
            tracking=context.home.tracking if tracking else None,
            seeds=range(seeds),
            learners=learners,
            baselines={name: make for name, make in BASELINES.items() if name in predictors},
            jobs=usable_cpus(),
            trials=search,
            searching=stage("searching"),
            progress=stage("evaluating"),
        )
    for warning in report.warnings:
        note(warning)
    if report.run_id is not None:
        from costmodel.training.tracking import where_to_look

        note(where_to_look(context.home.tracking))
    if json:
        print_json(report.to_dict())
        return
    print_evaluation(report.evaluation)
    if report.search is not None:
        _print_search(report.search)
    say(f"{report.system}: {report.version} answers now, trained on {report.rows} sequences.")


def _print_search(found: "Search") -> None:
    """Prints the result of a hyperparameter search, with the errors on lineages that took no part in the search."""
    say(
        f"search: {len(found.trials)} trials, {found.pruned} pruned; on {len(found.confirming)} "
        f"lineages that took no part, the error of a {found.judged} is {found.found_error:.1%} with the best and "
        f"{found.defaults_error:.1%} with the default hyperparameters: "
        + ("the best are used" if found.adopted else "the defaults are used")
    )


@app.command()
def evaluate(
    command: typer.Context,
    system: SystemOption = None,
    threads: ThreadsOption = 1,
    runtime: RuntimeOption = "onnxruntime",
    seeds: _Seeds = 3,
    folds: Annotated[
        int | None,
        typer.Option(
            "--folds", min=2, help="Groups in which lineages are held out; by default each alone.", show_default=False
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="DIR", help="Folder for evaluation.json, tables and figures.", show_default=False
        ),
    ] = None,
    chosen: _Predictors = None,
    across: Annotated[
        str | None,
        typer.Option(
            "--systems",
            metavar="A,B,...",
            help="Instead predict each of these systems from the others, as if it were new.",
            show_default=False,
        ),
    ] = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Evaluate the predictors on held-out lineages.

    A lineage is a group of families of models that are made of the same kinds of layers.

    Every predictor, baselines included, is judged on the same measured sequences. All of them take long on a large data
    set; with --predictors, only some are evaluated. With --out, the learning curve of the champion is computed as well,
    and figures are drawn.

    With --systems, each named system is predicted from those of other microarchitectures, by facts about its processor
    alone and after some minutes of measuring; on models that it has measured, that only the others have measured, and
    that none has.
    """
    if across is not None:
        if system is not None or out is not None or chosen is not None:
            raise typer.BadParameter(
                "leave out --system, --out and --predictors, which are about one system", param_hint="--systems"
            )
        names = [name.strip() for name in across.split(",")]
        _evaluate_across(Context(store, reads=True, tools=command.obj), names, folds or _FOLDS, json=json)
        return
    from costmodel.plotting import check_installed
    from costmodel.training.dataset import load_dataset
    from costmodel.training.evaluation.evaluation import evaluate as evaluate_dataset
    from costmodel.training.fewer_threads import with_fewer_threads

    if out is not None:
        check_installed()
    predictors = _chosen_predictors(chosen)
    context = Context(store, reads=True, tools=command.obj, runtime_name=runtime)
    dataset = load_dataset(context.store, context.learnt_system(system, threads))
    dataset = with_fewer_threads(dataset, context.store)
    with progress_bars() as stage:
        evaluation = evaluate_dataset(
            dataset,
            seeds=range(seeds),
            folds=folds,
            predictors=predictors,
            jobs=usable_cpus(),
            progress=stage("evaluating"),
        )
        report = evaluation.report
        document = report.to_dict()
        if out is not None:
            from costmodel.training.evaluation.report import full_report, write_report

            full = full_report(evaluation, jobs=usable_cpus(), progress=stage("learning curve"))
            write_report(out, full)
            document = full.to_dict()
    if json:
        print_json(document)
        return
    print_evaluation(report)
    if out is not None:
        say(f"Figures, tables and evaluation.json are in {out}.")


def _chosen_predictors(names: str | None) -> "Mapping[str, Callable[[int], Regressor]]":
    """Returns the predictors that a list of names chooses; all of them for None.

    Raises:
        typer.BadParameter: There is no predictor of one of the names.
    """
    from costmodel.training.regressors.registry import REGRESSORS

    if names is None:
        return REGRESSORS
    given = [name.strip() for name in names.split(",")]
    for name in given:
        if name not in REGRESSORS:
            raise typer.BadParameter(
                f"there is no predictor {name!r}: choose from {', '.join(REGRESSORS)}", param_hint="--predictors"
            )
    return {name: REGRESSORS[name] for name in given}


def _evaluate_across(context: Context, names: list[str], folds: int, *, json: bool) -> None:
    """Evaluates predictions of each system from the others, and prints the errors."""
    from costmodel.jobs.base_systems import comparable_systems
    from costmodel.training.evaluation.across_systems import evaluate_across

    for name in names:
        context.import_if_shipped(name)
    systems = {name: context.store.system(name) for name in names}
    results = []
    for system in systems.values():
        bases = comparable_systems(systems.values(), system)
        with progress_bars() as stage:
            result = evaluate_across(
                context.store, system, bases, folds=folds, jobs=usable_cpus(), progress=stage("evaluating")
            )
        results.append(result)
        if not json:
            print_across(result, folds)
    if json:
        print_json({"systems": [result.to_dict() for result in results]})
        return
    say(
        "lineages known: measured on the system; unmeasured: only on the others; unseen: on none. Errors are of models "
        "end to end; expected: what `costmodel adapt` would have said",
        style="dim",
    )
