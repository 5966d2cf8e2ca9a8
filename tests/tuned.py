"""A host with four CPUs on which a fake runtime's latency depends on the settings, so that the best one is known."""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path

from costmodel.jobs.tuning.trial import SessionSource, slice_times_us
from costmodel.jobs.tuning.tune import Tuner
from costmodel.onnx_io.model import Model, read_model
from costmodel.partition.decomposition import decompose
from costmodel.runtimes.base import Runner, RuntimeSettings
from costmodel.store.store import Store
from costmodel.systems.names import default_name
from costmodel.systems.system import System
from tests.fakes import HOST, FakeRunner, FakeRuntime, fake_system, measured, results

__all__ = ["CPUS", "FOUR_CPUS", "TunedRuntime", "fill_systems", "tuner_of"]

CPUS = 4
FOUR_CPUS = replace(HOST, physical_cores=CPUS, logical_cpus=CPUS, logical_cpus_total=CPUS)


@dataclass
class TunedRuntime(FakeRuntime):
    """A fake runtime in which a run takes as many times as long as alone on one thread as `factors` says.

    Attributes:
        factors: Factor by number of threads; 1 for other numbers.
        no_spinning: Factor without spinning.
        settings: Settings under which models were opened, in order.
    """

    factors: Mapping[int, float] = field(default_factory=lambda: {1: 1.0, 2: 0.6, 3: 0.5, 4: 0.8})
    no_spinning: float = 1.2
    settings: list[RuntimeSettings] = field(default_factory=list)

    def open_model(self, model: Model, settings: RuntimeSettings) -> FakeRunner:
        """Returns a runner whose runs take as long as the settings say, in milliseconds instead of microseconds."""
        self.settings.append(settings)
        runner = super().open_model(model, settings)
        runner.cost_us *= 1000 * self.factor(settings)
        return runner

    def factor(self, settings: RuntimeSettings) -> float:
        """Returns the factor of the settings."""
        return self.factors.get(settings.threads, 1.0) * (1.0 if settings.spinning else self.no_spinning)


def fill_systems(
    store: Store, runtime: TunedRuntime, path: Path, threads: Mapping[int, float], batches: tuple[int, ...] = (1,)
) -> list[System]:
    """Stores systems of the host on which all layers of a model are measured.

    Args:
        store: Store that receives them.
        runtime: Runtime that lowers the model and whose costs are stored.
        path: Path of the model.
        threads: Factor of the costs by number of threads; there is a system for each.
        batches: Batch sizes at which the layers are measured.
    """
    systems = []
    cuts = [decompose("m", runtime.lower(read_model(path, batch=batch), "all")) for batch in batches]
    sequences = {signature: sequence for cut in cuts for signature, sequence in cut.unique.items()}
    for number, factor in threads.items():
        settings = RuntimeSettings(number)
        name = default_name(FOUR_CPUS, runtime.name, runtime.version, settings)
        system = fake_system(
            name, runtime=runtime, host=FOUR_CPUS, settings=settings, capabilities={"gemm_gflops": 80.0}
        )
        times = {one: 1000 * factor * runtime.cost_us(sequence) for one, sequence in sequences.items()}
        store.put_results(
            results(
                system,
                [
                    (sequence, measured(sequence, *[(times[one],) * 5] * 3, kind="layer"))
                    for one, sequence in sequences.items()
                ],
            )
        )
        systems.append(system)
    return systems


@dataclass
class LoadedSession:
    """A `Session` in this process, which runs when its times are asked for.

    Attributes:
        runner: Runner of the model.
        clock_ns: Reads a monotonic clock, in nanoseconds.
    """

    runner: Runner
    clock_ns: Callable[[], int]
    _slice_s: float = 0.0

    def wait(self) -> None:
        """Runs the model once."""
        self.runner.run()

    def start(self, slice_s: float) -> None:
        """Keeps the duration."""
        self._slice_s = slice_s

    def times_us(self) -> list[float]:
        """Runs the model for the duration."""
        return slice_times_us(self.runner, self._slice_s, self.clock_ns)

    def close(self) -> None:
        """Does nothing: the runner ends with its last reference."""


def tuner_of(store: Store, runtime: TunedRuntime, folder: Path) -> Tuner:
    """Returns a tuner that runs models in simulated time on the host with four CPUs."""

    def open_session(source: SessionSource) -> LoadedSession:
        model = read_model(source.path, batch=source.batch, shapes=dict(source.shapes))
        return LoadedSession(runtime.open_model(model, source.settings), runtime.clock)

    return Tuner(
        store, folder / "bundles", folder / "cache", FOUR_CPUS, {runtime.name: runtime}, open_session,
        lock=nullcontext, here=lambda: FOUR_CPUS, clock_s=lambda: runtime.clock() / 1e9,
    )  # fmt: skip
