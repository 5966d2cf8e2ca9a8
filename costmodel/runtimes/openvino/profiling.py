"""Times the primitives of a compiled model while it runs, with OpenVINO's own counters."""

from collections.abc import Mapping

from costmodel.runtimes.base import KernelTime, ProfiledRun
from costmodel.runtimes.openvino.session import OpenVinoRunner
from costmodel.runtimes.timed_run import timed_run

__all__ = ["profiled_runs"]

_PROVIDER = "CPU"


def profiled_runs(
    runner: OpenVinoRunner, layers: Mapping[str, str], *, runs: int, warm_up_runs: int
) -> tuple[ProfiledRun, ...]:
    """Runs a network that was compiled with counters and returns the runs after the warm-up.

    OpenVINO reports how long each primitive took, and not when it began: primitives are placed one after another, as it
    executes them.

    Args:
        runner: The network with its inputs.
        layers: Name of the layer that each primitive executes, by the name of the primitive.
        runs: Number of runs to return.
        warm_up_runs: Number of runs before these.

    Raises:
        MeasurementError: The network fails to run.
    """
    for _ in range(warm_up_runs):
        runner.run()
    return tuple(_profiled_run(runner, layers) for _ in range(runs))


def _profiled_run(runner: OpenVinoRunner, layers: Mapping[str, str]) -> ProfiledRun:
    latency_us, lost_us = timed_run(runner)
    kernels, begin_us = [], 0.0
    for primitive, kernel, duration_us in runner.times():
        kernels.append(KernelTime(layers.get(primitive, ""), kernel, _PROVIDER, begin_us, duration_us))
        begin_us += duration_us
    return ProfiledRun(latency_us, tuple(kernels), lost_us)
