"""Trains a regressor for a machine type of the catalogue that nobody has measured, from facts about its processor."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from costmodel.progress import Progress
from costmodel.runtimes.base import Runtime, RuntimeSettings
from costmodel.store.store import Store
from costmodel.systems.catalogue import MachineType
from costmodel.systems.system import System

__all__ = ["described_system", "extrapolate"]


def described_system(machine: MachineType, runtime: Runtime, settings: RuntimeSettings) -> System:
    """Returns a machine type that nobody has measured as a system, without capabilities."""
    return System(machine.name, machine.host, runtime.name, runtime.version, settings, extrapolated=True)


def extrapolate(
    store: Store, system: System, bases: Sequence[str], bundles: Path, *, progress: Progress | None = None
) -> None:
    """Trains a regressor for a system that nobody has measured, makes it the champion, and stores the system.

    Args:
        store: Store with the models and the measurements on the base systems; it receives the system.
        system: The system, as `described_system` describes it.
        bases: Names of the measured systems from whose costs those of the system are guessed; see
            `costmodel.training.extrapolation.extrapolation_bases`.
        bundles: Folder of trained regressors.
        progress: Called with (trainings done, trainings in total, name of the next predictor), as by `evaluate`.

    Raises:
        TrainingError: There are too few sequences to learn from.
    """
    from costmodel.training.adaptation import load_adaptation
    from costmodel.training.extrapolation import (
        extrapolated_half_width,
        extrapolated_state,
        guess_capabilities,
    )
    from costmodel.training.regressors.registry import LEARNERS
    from costmodel.training.train import train_on

    host = system.host
    assert host is not None
    similar, threads = [store.system(base) for base in bases], system.settings.threads
    system = replace(system, capabilities=guess_capabilities(host, similar, threads))
    adaptation = load_adaptation(store, bases, system)
    sequences = store.sequences(set(adaptation.dataset.signatures) - store.whole_model_signatures())
    train_on(
        adaptation.adapted(extrapolated_state(adaptation, similar, sequences)),
        bundles,
        learners={"lightgbm": LEARNERS["lightgbm"]},
        baselines={},
        widened=extrapolated_half_width(host, similar, threads),
        facts={
            "extrapolated_from": list(adaptation.bases),
            "threads_extrapolated": all(base.settings.threads != threads for base in similar),
        },
        progress=progress,
    )
    store.put_system(system)
