"""Compares the choices of `costmodel tune` with the best of all settings, every one of which is measured.

    python benchmarks/tune.py CORPUS_OR_FOLDER --out tune.jsonl [--objective latency] [--models 30] [--budget 20]
    python benchmarks/tune.py CORPUS_OR_FOLDER --out new.jsonl --truth tune.jsonl    # chooses again
    python benchmarks/tune.py --out tune.jsonl          # prints the summary of what is there already

`unseen_models.py` writes a folder of models for this; of a larger one, models are drawn at random, the same each time.
Each model is tuned with and without measuring, and then all its settings are run: in groups that take turns in rounds,
each with the default setting, by which the groups are brought to one scale. A line of JSON is written for each model;
models that have a line are skipped, so that the program can be stopped at any time. Predictions come from the results
store and the regressors of this installation, which must not have been trained on these models if they are to count as
unseen. Prints how far the choices are from the best setting, and the time of a choice as a share of that of all
measurements.
"""

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from random import Random
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from costmodel.jobs.tuning.measuring import MOST_ROUNDS, measure_in_rounds
from costmodel.jobs.tuning.model_files import ModelFiles, open_files
from costmodel.jobs.tuning.session_process import ProcessSession
from costmodel.jobs.tuning.trial import SessionSource
from costmodel.jobs.tuning.tune import Tuner
from costmodel.paths import find_home
from costmodel.serving.tuning.question import OBJECTIVES, TuneQuestion
from costmodel.serving.tuning.settings import Setting, Space, default_setting, settings_of
from costmodel.store.store import Store
from costmodel.training.corpus import corpus_models

GROUP = 6
# A group is timed until all its rounds are done; this only bounds a model that takes seconds for a run.
LONGEST_GROUP_S = 240.0
MEASURED_WITHIN, PREDICTED_WITHIN = 0.03, 0.08


def all_settings(space: Space) -> list[Setting]:
    """Returns every setting of a space."""
    return list(
        chain.from_iterable(
            settings_of(space, runtime, precision, level, batch)
            for runtime in space.runtimes
            for precision in space.precisions
            for level in space.levels_of(runtime)
            for batch in space.batches
        )
    )


def true_worths(
    files: ModelFiles, space: Space, question: TuneQuestion, rounds: int
) -> tuple[dict[str, float], dict[str, str]]:
    """Measures every setting of a model.

    Returns:
        The score of each setting, in microseconds a run or a sample, and the reasons why others could not be run.
    """
    default = default_setting(space)
    others = [setting for setting in all_settings(space) if setting != default]
    worths: dict[Setting, float] = {}
    failed: dict[str, str] = {}
    references: list[float] = []
    for first in range(0, len(others), GROUP):
        group = others[first : first + GROUP]
        sources = {
            setting: SessionSource(
                setting.runtime, setting.runtime_settings, files.paths[setting.precision],
                setting.batch if files.has_free_batch else None, tuple(files.shapes_of(setting.batch).items()),
            )
            for setting in (default, *group)
        }  # fmt: skip
        found = measure_in_rounds(
            sources, question, {}, budget_s=LONGEST_GROUP_S, kept=default, open_session=ProcessSession,
            at_once=space.cpus, leaving=False, most_rounds=rounds,
        )  # fmt: skip
        failed |= {str(setting): reason for setting, reason in found.failed.items()}
        scores = {setting: question.score(setting, one.latency_us) for setting, one in found.performances.items()}
        references.append(scores.pop(default))
        worths |= {setting: score / references[-1] for setting, score in scores.items()}
    typical_us = median(references)
    return {str(default): typical_us} | {str(setting): typical_us * worth for setting, worth in worths.items()}, failed


def choices(tuner: Tuner, path: Path, question: TuneQuestion, budget_s: float) -> dict[str, Any]:
    """Returns the choices with and without measuring, and the time that each took in seconds.

    Each reads the model anew and lowers it into a cache of its own, so that its time is what a user waits for.
    """
    found: dict[str, Any] = {}
    for kind, measure in (("tuned", True), ("predicted", False)):
        with TemporaryDirectory() as cache:
            began = time.monotonic()
            with open_files(path) as files:
                answer = replace(tuner, cache=Path(cache)).tune(files, question, measure=measure, budget_s=budget_s)
            found |= {kind: answer.best.description, f"{kind}_s": time.monotonic() - began}
    return found


def truth(tuner: Tuner, files: ModelFiles, question: TuneQuestion, rounds: int) -> dict[str, Any]:
    """Returns what each setting takes in microseconds, and the time that measuring them took in seconds."""
    space = Space(
        tuple(tuner.runtimes), tuner.host.effective_cpus, tuple(files.paths),
        question.batches if files.has_free_batch else (1,), question.side_by_side,
    )  # fmt: skip
    began = time.monotonic()
    truth_us, failed = true_worths(files, space, question, rounds)
    return {"truth_us": truth_us, "truth_s": time.monotonic() - began, "failed": failed}


def summary(lines: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Yields the lines of the summary."""
    yield f"{len(lines)} models, {median(len(one['truth_us']) for one in lines):.0f} settings each"
    for kind, within in (("tuned", MEASURED_WITHIN), ("predicted", PREDICTED_WITHIN)):
        losses = [one["truth_us"][one[kind]] / min(one["truth_us"].values()) - 1 for one in lines]
        shares = [one[f"{kind}_s"] / one["truth_s"] for one in lines]
        close = sum(loss <= within for loss in losses) / len(lines)
        yield (
            f"{kind:10} within {within:.0%} of the best setting in {close:.0%}, {max(losses):.1%} at worst; takes "
            f"{sum(one[f'{kind}_s'] for one in lines) / sum(one['truth_s'] for one in lines):.1%} of the time of all "
            f"settings ({max(shares):.0%} at most)"
        )
    default = [next(iter(one["truth_us"].values())) / min(one["truth_us"].values()) for one in lines]
    yield f"the default setting takes {median(default):.2f} times as long as the best one, {max(default):.2f} at most"
    for one in lines:
        best = min(one["truth_us"], key=one["truth_us"].__getitem__)
        losses = [f"{one['truth_us'][one[kind]] / one['truth_us'][best] - 1:6.1%}" for kind in ("tuned", "predicted")]
        yield f"  {one['model']:32} {losses[0]} {losses[1]}  best: {best}; tuned: {one['tuned']}"


def read(path: Path) -> list[dict[str, Any]]:
    """Returns the lines of a file of results; a last line that was not written to its end is left out."""
    lines = []
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            lines.append(json.loads(line))
        except ValueError:
            continue
    return lines


def main() -> None:
    """Measures what the file lacks, then prints the summary."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("corpus", nargs="?", help="name of a corpus, a folder of models or a model")
    parser.add_argument("--out", type=Path, required=True, help="file with a line of JSON for each model")
    parser.add_argument("--objective", choices=OBJECTIVES[:2], default="latency")
    parser.add_argument("--truth", type=Path, help="file with the truth about the models, from an earlier run")
    parser.add_argument("--models", type=int, default=30, help="largest number of models")
    parser.add_argument("--max-batch", type=int, default=8)
    parser.add_argument("--budget", type=float, default=20.0, help="seconds for measuring in a choice")
    parser.add_argument("--rounds", type=int, default=MOST_ROUNDS, help="rounds in which each setting is measured")
    arguments = parser.parse_args()
    if arguments.corpus:
        home = find_home()
        tuner = Tuner.of(Store(home.store_url), home.bundles, home.cache)
        question = TuneQuestion(arguments.objective, max_batch=arguments.max_batch)
        done = {(one["model"], one["objective"]) for one in read(arguments.out)}
        known = {(one["model"], one["objective"]): one for one in read(arguments.truth or arguments.out)}
        items = corpus_models(arguments.corpus)
        for item in Random(0).sample(items, min(len(items), arguments.models)):
            key = item.name, arguments.objective
            if key in done or (arguments.truth and key not in known):
                continue
            line = {"model": item.name, "objective": arguments.objective}
            line |= choices(tuner, item.path, question, arguments.budget)
            if key in known:
                line |= {name: known[key][name] for name in ("truth_us", "truth_s", "failed")}
            else:
                with open_files(item.path) as files:
                    line |= truth(tuner, files, question, arguments.rounds)
            with arguments.out.open("a") as file:
                file.write(json.dumps(line) + "\n")
            print(f"{item.name}: {line['tuned']}, {line['tuned_s']:.1f} s of {line['truth_s']:.0f} s", flush=True)
    lines = [one for one in read(arguments.out) if one["objective"] == arguments.objective]
    print("\n".join(summary(lines)) if lines else "no model was measured yet")


if __name__ == "__main__":
    main()
