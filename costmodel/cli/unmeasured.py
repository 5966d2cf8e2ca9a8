"""What commands do before they answer for a system that has not been measured."""

from functools import partial
from typing import TYPE_CHECKING

from costmodel.cli.context import Context
from costmodel.cli.output import note, progress_bars
from costmodel.errors import UnknownSystemError

if TYPE_CHECKING:
    from costmodel.systems.system import System

__all__ = ["extrapolate_if_unknown", "probe_this_host", "unmeasured_machine"]

_PROBING_S = 30.0


def probe_this_host(context: Context, system: str | None, threads: int, inter_threads: int) -> None:
    """Measures layers on this host for half a minute, and adapts the costs of all comparable systems to it.

    Args:
        context: Store and folders of the command.
        system: Name of this host as a system; None for its default name.
        threads: Number of threads of a layer.
        inter_threads: Number of layers that run in parallel.
    """
    from costmodel.jobs.adaptation import adapt

    runtime, here = context.here(system, threads, inter_threads=inter_threads)
    bases = context.bases(here)
    with progress_bars() as stage:
        report = adapt(
            context.store, here, runtime, bases, context.bundles, budget_s=_PROBING_S, progress=stage,
            bench=context.bench,
        )  # fmt: skip
    note(f"{report.curve[-1].measured} layers are measured here, the others adapted from {', '.join(report.bases)}")


def unmeasured_machine(context: Context, name: str, threads: int | None, inter_threads: int) -> "System | None":
    """Returns a machine type of the catalogue as a system that has to be extrapolated before it can be asked about.

    It is None for other names, and for a machine that is measured or was extrapolated already.

    Args:
        context: Store and folders of the command.
        name: Name of the system.
        threads: Number of threads of a layer; None for that with which the machine was extrapolated, or else one.
        inter_threads: Number of layers that run in parallel.

    Raises:
        UnknownSystemError: The machine has fewer CPUs, or the catalogue has other machines of the series that is named.
    """
    from costmodel.systems.catalogue import catalogue

    machines = catalogue()
    series = [other for other in machines if other.split(".")[0] == name.split(".")[0]]
    if not series:
        return None  # without a look into the store, which may not be there
    machine, known = machines.get(name), context.store.systems().get(name)
    if machine is None:
        if known is None:
            raise UnknownSystemError(f"the catalogue has no {name}: name one of {', '.join(series)}")
        return None
    if known is not None and not known.extrapolated:
        return None
    from costmodel.jobs.base_systems import same_threads
    from costmodel.jobs.extrapolation import described_system
    from costmodel.runtimes.base import RuntimeSettings
    from costmodel.training.artefact import champion_of

    if known is not None and threads is None:
        threads = known.settings.threads
    settings = RuntimeSettings(threads or 1, inter_threads=inter_threads)
    described = described_system(machine, context.runtime, settings)
    if known is not None and same_threads(known, described) and champion_of(context.bundles, name) is not None:
        return None
    if settings.threads > machine.vcpus:
        raise UnknownSystemError(f"{name} has {machine.vcpus} CPUs: give at most {machine.vcpus} --threads")
    return described


def extrapolate_if_unknown(context: Context, name: str, threads: int | None, inter_threads: int) -> None:
    """Trains a regressor for an `unmeasured_machine`, which has the same arguments and errors.

    Raises:
        UnknownSystemError: No system of a known processor is measured.
    """
    described = unmeasured_machine(context, name, threads, inter_threads)
    if described is None:
        return
    from costmodel.jobs.extrapolation import extrapolate
    from costmodel.training.extrapolation import extrapolation_bases  # this and what follows needs the extra `train`

    bases = context.bases(described, partial(extrapolation_bases, described))
    note(f"nobody has measured {name}: a regressor is made for it from the measurements of other systems, in minutes")
    with progress_bars() as stage:
        extrapolate(context.store, described, bases, context.bundles, progress=stage("training"))
