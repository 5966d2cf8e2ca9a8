"""The job of `costmodel tune`: finds the settings under which a model runs best."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from costmodel.errors import CostModelError, TuningError, UnknownSystemError
from costmodel.estimate.estimate import Estimate
from costmodel.jobs.tuning.measuring import measure_in_rounds
from costmodel.jobs.tuning.model_files import ModelFiles
from costmodel.jobs.tuning.session_process import ProcessSession
from costmodel.jobs.tuning.trial import OpenSession, Session, SessionSource
from costmodel.measure.lock import measuring_lock
from costmodel.measure.measurement import now
from costmodel.partition.decomposition import Decomposition, decompose
from costmodel.progress import Progress, Stages, no_progress
from costmodel.runtimes.base import Runtime, get_runtime, installed_runtimes
from costmodel.runtimes.lowering_cache import lower_cached
from costmodel.serving.predictor import Predictor
from costmodel.serving.tuning.answer import MeasuringConditions, TuneAnswer
from costmodel.serving.tuning.conclusion import Measured, conclude
from costmodel.serving.tuning.nearest import systems_of_host
from costmodel.serving.tuning.pricing import Estimator, Prices, price_settings
from costmodel.serving.tuning.question import TuneQuestion
from costmodel.serving.tuning.ranking import finalists
from costmodel.serving.tuning.settings import Setting, Space, default_setting
from costmodel.store.store import Store
from costmodel.systems.host import Host, probe_host
from costmodel.systems.system import System, same_hardware

__all__ = ["BUDGET_S", "Tuner"]

BUDGET_S = 60.0
# A setting to measure for each of so many seconds, within bounds.
_SECONDS_A_SETTING, _FEWEST, _MOST = 2.5, 3, 16
# Share of the free memory that sessions may fill, and what a session is taken to need if that is not predicted.
_MEMORY_SHARE, _SESSION_BYTES, _BYTES_PER_FILE_BYTE = 0.6, 200 << 20, 3


@dataclass
class Tuner:
    """Finds the settings under which models run best on one host.

    Attributes:
        store: Results store with the systems of the host.
        bundles: Folder of trained regressors.
        cache: Folder in which lowered graphs are cached.
        host: Host on which the model is to run.
        runtimes: Runtimes that lower models here, by name; those of settings that are measured.
        open_session: Function that begins to load a session.
        lock: Function that returns a context in which nothing else measures on this host.
        here: Function that returns the host on which this process runs.
        clock_s: Reads a monotonic clock, in seconds.
    """

    store: Store
    bundles: Path
    cache: Path
    host: Host
    runtimes: Mapping[str, Runtime]
    open_session: OpenSession = ProcessSession
    lock: Callable[[], AbstractContextManager[None]] = measuring_lock
    here: Callable[[], Host] = probe_host
    clock_s: Callable[[], float] = time.monotonic
    _predictors: dict[str, Predictor] = field(default_factory=dict)

    @classmethod
    def of(
        cls, store: Store, bundles: Path, cache: Path, system: str | None = None, *, runtime: Runtime | None = None
    ) -> "Tuner":
        """Returns the tuner for the host of a system.

        Args:
            store: Results store.
            bundles: Folder of trained regressors.
            cache: Folder in which lowered graphs are cached.
            system: Name of a system of the host; None for this host.
            runtime: The only runtime to consider; None for all that are installed.

        Raises:
            UnknownSystemError: The system is not in the store, or nothing is known about its hardware.
        """
        host = probe_host() if system is None else store.system(system).host
        if host is None:
            raise UnknownSystemError(
                f"nothing is known about the hardware of {system}, only latencies that were imported: name a measured "
                "system of that machine"
            )
        if runtime is not None:
            return cls(store, bundles, cache, host, {runtime.name: runtime})
        return cls(store, bundles, cache, host, {name: get_runtime(name) for name in installed_runtimes()})

    def tune(
        self,
        files: ModelFiles,
        question: TuneQuestion,
        *,
        measure: bool = True,
        budget_s: float = BUDGET_S,
        progress: Stages | None = None,
    ) -> TuneAnswer:
        """Returns how a model should run.

        Args:
            files: Files of the model.
            question: What the settings are chosen for.
            measure: Whether the best settings are run on this host; otherwise the answer is from predictions alone.
            budget_s: Time for measuring, in seconds.
            progress: Function that takes the name of a stage of the job and returns its progress callback.

        Raises:
            TuningError: Settings are to be measured and the host is another one, or no setting is known or runs.
            HostBusyError: Another process is measuring on this host.
            ModelError: The model cannot be read.
        """
        stage = progress or no_progress
        if measure and not same_hardware(self.here(), self.host):
            raise TuningError(
                f"settings of {self.host.model_name or 'another machine'} cannot be measured on this host: add "
                "--no-measure to choose by prediction, or leave out the system"
            )
        warnings = list(files.warnings)
        space = Space(
            tuple(self.runtimes), self.host.effective_cpus, tuple(files.paths),
            question.batches if files.has_free_batch else (1,), question.side_by_side,
        )  # fmt: skip
        if question.side_by_side and not files.has_free_batch and question.max_batch > 1:
            warnings.append("the file fixes the size of the batch, so that no other is considered: export it symbolic")
        systems = systems_of_host(self.store.systems().values(), self.host)
        if not systems and not measure:
            raise UnknownSystemError(
                f"no system of {self.host.model_name or 'this host'} is measured: run `costmodel bench` on it, or "
                "tune on that machine without --no-measure"
            )
        if not systems:
            warnings.append("no system of this host is measured, so that nothing is predicted and few settings are run")
        measured = None
        with ExitStack() as stack:
            open_session, free_bytes = self.open_session, psutil.virtual_memory().available
            if measure:
                stack.enter_context(self.lock())
                default = _source(default_setting(space), files)
                open_session = stack.enter_context(_opened_ahead(default, open_session))
            report = stage("predicting")
            prices = price_settings(space, systems, _reporting(self._estimator(files), report), question)
            report(1, 1, "")
            if measure:
                measured = self._measure(files, space, question, prices, budget_s, free_bytes, open_session, stage)
        return conclude(
            files.name, self.host, space, question, prices, paths=files.shown, measured=measured, warnings=warnings
        )

    def _estimator(self, files: ModelFiles) -> Estimator:
        """Returns the function that estimates the model on a system."""
        cuts: dict[tuple[str, str, str, int], Decomposition] = {}

        def estimate(system: System, level: str, precision: str, batch: int) -> tuple[Estimate, Decomposition]:
            if system.name not in self._predictors:
                self._predictors[system.name] = Predictor.load(self.store, self.bundles, system.name)
            model = files.read(precision, batch)
            key = system.runtime, level, precision, batch
            if key not in cuts:
                graph = lower_cached(self.runtimes[system.runtime], model, level, self.cache)
                cuts[key] = decompose(files.name, graph)
            return self._predictors[system.name].estimate(cuts[key], warnings=model.warnings), cuts[key]

        return estimate

    def _measure(
        self, files: ModelFiles, space: Space, question: TuneQuestion, prices: Prices, budget_s: float,
        free_bytes: int, open_session: OpenSession, stage: Stages,
    ) -> Measured:  # fmt: skip
        default = default_setting(space)
        most = min(_MOST, max(_FEWEST, int(budget_s / _SECONDS_A_SETTING)))
        promising = finalists(prices, space, question, default, most)
        chosen = self._fitting(promising, files, prices, free_bytes)
        sources = {setting: _source(setting, files) for setting in chosen}
        measured_at, begin_s = now(), self.clock_s()
        rounds = measure_in_rounds(
            sources, question, prices.slo_factors, budget_s=budget_s, kept=default, open_session=open_session,
            at_once=space.cpus, clock_s=self.clock_s, progress=stage("measuring"),
        )  # fmt: skip
        conditions = MeasuringConditions(
            host=self.host.model_name,
            measured_at=measured_at,
            seconds=self.clock_s() - begin_s,
            settings=len(rounds.performances),
            rounds=max(one.rounds for one in rounds.performances.values()),
        )
        skipped = [setting for setting in promising if setting not in chosen or setting in rounds.skipped]
        return Measured(rounds.performances, rounds.failed, conditions, skipped)

    def _fitting(
        self, settings: Sequence[Setting], files: ModelFiles, prices: Prices, free_bytes: int
    ) -> list[Setting]:
        """Returns as many of the settings, from the first on, as fit into the free memory at the same time.

        The last one is the default setting, which always stays.
        """
        free = _MEMORY_SHARE * free_bytes
        kept: list[Setting] = []
        for setting in (settings[-1], *settings[:-1]):
            typical = _SESSION_BYTES + _BYTES_PER_FILE_BYTE * files.paths[setting.precision].stat().st_size
            free -= setting.sessions * prices.peak_bytes.get(setting, typical)
            if kept and free < 0:
                break
            kept.append(setting)
        return kept


def _source(setting: Setting, files: ModelFiles) -> SessionSource:
    """Returns what the sessions of a setting are opened from."""
    return SessionSource(
        setting.runtime, setting.runtime_settings, files.paths[setting.precision],
        setting.batch if files.has_free_batch else None, tuple(files.shapes_of(setting.batch).items()),
        tuple(files.values.items()),
    )  # fmt: skip


@contextmanager
def _opened_ahead(source: SessionSource, open_session: OpenSession) -> Iterator[OpenSession]:
    """Begins to load a session, and yields a function that returns it when it is asked for, and opens all others.

    So the model is loaded under the setting that is measured in any case while the others are priced.
    """
    ahead: list[Session] = []
    with suppress(CostModelError):  # it is opened again when it is asked for, and the reason reported then
        ahead.append(open_session(source))

    def opened(asked: SessionSource) -> Session:
        return ahead.pop() if ahead and asked == source else open_session(asked)

    try:
        yield opened
    finally:
        for session in ahead:
            session.close()


def _reporting(estimate: Estimator, report: Progress) -> Estimator:
    """Returns a function that reports each estimate before it is made."""

    def reported(system: System, level: str, precision: str, batch: int) -> tuple[Estimate, Decomposition]:
        report(0, 1, f"{system.name}, level {level}, {precision}, batch {batch}")
        return estimate(system, level, precision, batch)

    return reported
