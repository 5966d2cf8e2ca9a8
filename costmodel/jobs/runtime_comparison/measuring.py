"""Measures models with two releases in rounds, so that a noisy minute hits both releases alike.

In a round, the releases take turns on each model: one directly after the other, and in the next round in the other
order. Each round has new processes, because what a process is given once, such as the addresses of its memory, makes
layers faster or slower for as long as it lives.
"""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from costmodel.errors import MeasurementError
from costmodel.interruption import raise_if_interrupted
from costmodel.jobs.decomposed_models import DecomposedModel, measurement_groups
from costmodel.jobs.runtime_comparison.pairs import Marks, Pair, turn_of, usable_pairs
from costmodel.jobs.runtime_comparison.release import Release
from costmodel.measure.measurement import now
from costmodel.progress import Progress, no_progress
from costmodel.store.store import Store
from costmodel.systems.system import System, check_same_system

__all__ = ["MeasuredRounds", "Side", "measure_pairs"]

# Pairs that were disturbed are made up for by further ones, until there are this many times as many as were requested.
_MOST_PAIRS = 1.5


@dataclass(frozen=True)
class Side:
    """One of the two releases that are compared.

    Attributes:
        start: Function that starts the release in a new process.
        system: This host with the release, described as a system.
        models: Models as the release executes them, by name.
    """

    start: Callable[[], Release]
    system: System
    models: Mapping[str, DecomposedModel]


@dataclass
class MeasuredRounds:
    """The result of measuring in rounds.

    Attributes:
        pairs: Pairs of turns by name of the model, earlier ones included.
        turns: Number of turns that were measured now.
        left: Number of pairs that were not measured because the budget was spent.
        failed: Reasons why layers and models were not measured, by the signature of a layer or the name of a model.
        seconds: Seconds that measuring took.
    """

    pairs: dict[str, list[Pair]]
    turns: int = 0
    left: int = 0
    failed: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0


def measure_pairs(
    store: Store,
    sides: tuple[Side, Side],
    marks: Marks,
    pairs: dict[str, list[Pair]],
    *,
    rounds: int,
    budget_s: float | None = None,
    progress: Progress | None = None,
    clock_s: Callable[[], float] = time.monotonic,
) -> MeasuredRounds:
    """Measures each model with both releases until there are as many pairs of turns as are requested.

    Args:
        store: Store that has the layers of the models, and receives the measurements.
        sides: The release from which the comparison starts, and the other one.
        marks: Identity of the comparison.
        pairs: Pairs that are in the store already, by name of the model.
        rounds: Number of pairs that each model is to have. Pairs that were disturbed are measured once more, up to half
            as many again.
        budget_s: Seconds after which no further pair is measured; None for no limit.
        progress: Progress callback, called before each pair and at the end.
        clock_s: Function that returns the time of a monotonic clock in seconds.
    """
    begin_s = clock_s()
    found = MeasuredRounds({name: list(pairs.get(name, ())) for name in sides[0].models if name in sides[1].models})
    report = progress or no_progress("")
    tried = dict.fromkeys(found.pairs, 0)
    done = 0

    def missing(name: str) -> int:
        of_model = found.pairs[name]
        quiet = sum(pair.quiet for pair in usable_pairs(of_model))
        most = math.ceil(_MOST_PAIRS * rounds) - max(len(of_model), tried[name])
        return max(0, min(rounds - quiet, most))

    def spent() -> bool:
        return budget_s is not None and clock_s() - begin_s >= budget_s

    while (names := [name for name in found.pairs if missing(name)]) and not spent():
        with sides[0].start() as old, sides[1].start() as new:
            releases = old, new
            for release, side in zip(releases, sides, strict=True):
                store.put_system(release.open(_known(store, side.system)))
            for name in names:
                raise_if_interrupted()
                if spent():
                    break
                report(done, done + sum(map(missing, found.pairs)), name)
                _measure_pair(store, releases, sides, marks, name, found, new_first=len(found.pairs[name]) % 2 == 1)
                tried[name] += 1
                done += 1
            for release in reversed(releases):  # nested, as far as they are in one process
                system = release.close()
                if system is not None:
                    store.put_system(system)
    found.left = sum(map(missing, found.pairs)) if spent() else 0
    report(done, done + found.left, "")
    found.seconds = clock_s() - begin_s
    return found


def _measure_pair(
    store: Store,
    releases: tuple[Release, Release],
    sides: tuple[Side, Side],
    marks: Marks,
    name: str,
    found: MeasuredRounds,
    *,
    new_first: bool,
) -> None:
    """Measures one model with both releases, and stores the measurements."""
    pair = now()
    turns = {}
    for number in (1, 0) if new_first else (0, 1):
        item = sides[number].models[name]
        (group,) = measurement_groups(item, (1,))
        try:
            result = releases[number].measure(group, item.model.path)
        except MeasurementError as error:
            raise MeasurementError(f"{name} was not measured: {error}") from error
        found.failed |= result.failed
        marked = [marks.put(one, name, item.model.digest, pair) for one in result.measurements]
        store.put_measurements(sides[number].system.name, marked)
        turns[number] = turn_of(marked)
        found.turns += 1
    if all(turn.layers_us or turn.whole_us is not None for turn in turns.values()):
        found.pairs[name].append(Pair(turns[0], turns[1]))


def _known(store: Store, system: System) -> System:
    """Returns the system with the capabilities that the store has of it.

    Raises:
        SystemMismatchError: The store has a system of that name with another machine, runtime or settings.
    """
    stored = store.systems().get(system.name)
    if stored is None or stored.extrapolated:
        return system
    check_same_system(stored, system)
    return replace(system, capabilities=stored.capabilities)
