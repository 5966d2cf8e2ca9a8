"""Times the primitives of a compiled model while it runs, with OpenVINO's own counters."""

from collections.abc import Mapping, Sequence

from costmodel.runtimes.base import KernelTime, ProfiledRun
from costmodel.runtimes.openvino.session import OpenVinoRunner
from costmodel.runtimes.timed_run import timed_run

__all__ = ["profiled_runs"]

_PROVIDER = "CPU"
_NOTHING = "none"  # the kernel of a layer that does nothing


def profiled_runs(
    runner: OpenVinoRunner, layers: Sequence[str], layer_of: Mapping[str, str], *, runs: int, warm_up_runs: int
) -> tuple[ProfiledRun, ...]:
    """Runs a network that was compiled with counters and returns the runs after the warm-up.

    OpenVINO's counters are means over all runs, in whole microseconds, and do not say when a primitive began. The
    primitives of each run therefore have their mean time over the returned runs, to one or two microseconds, and are
    placed one after another, as OpenVINO executes them. A layer for which OpenVINO runs no primitive, such as a Reshape
    in place, takes no time. The latency of each run is its own.

    Args:
        runner: The network with its inputs, which has not run yet.
        layers: Names of all layers of the model.
        layer_of: Name of the layer that each primitive executes, by the name of the primitive.
        runs: Number of runs to return.
        warm_up_runs: Number of runs before these.

    Raises:
        MeasurementError: The network fails to run.
    """
    for _ in range(warm_up_runs):
        runner.run()
    before_us = {name: mean_us for name, _, mean_us in runner.mean_times()} if warm_up_runs else {}
    timed = [timed_run(runner) for _ in range(runs)]
    kernels = _kernels(
        [
            (
                layer_of.get(name, ""),
                kernel,
                ((warm_up_runs + runs) * mean_us - warm_up_runs * before_us.get(name, 0.0)) / runs,
            )
            for name, kernel, mean_us in runner.mean_times()
        ]
    )
    ran = {kernel.layer for kernel in kernels}
    kernels += tuple(KernelTime(layer, _NOTHING, _PROVIDER, 0.0, 0.0) for layer in layers if layer not in ran)
    return tuple(ProfiledRun(latency_us, kernels, lost_us) for latency_us, lost_us in timed)


def _kernels(times: Sequence[tuple[str, str, float]]) -> tuple[KernelTime, ...]:
    """Returns the kernels of primitives, which are given as layer, name of the kernel and time in microseconds."""
    kernels, begin_us = [], 0.0
    for layer, kernel, mean_us in times:
        duration_us = max(0.0, mean_us)  # the means are rounded, so that their difference may be negative
        kernels.append(KernelTime(layer, kernel, _PROVIDER, begin_us, duration_us))
        begin_us += duration_us
    return tuple(kernels)
