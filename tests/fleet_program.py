"""Programs of a fleet in simulated time, which tests start and kill.

python -m tests.fleet_program schedule FILE               a Dask scheduler, which writes its address to a file
python -m tests.fleet_program work FACTOR SECONDS ...     `costmodel worker` with these arguments
python -m tests.fleet_program measure FACTOR SECONDS      the process that measures one batch on such a machine
python -m tests.fleet_program dask-worker ADDRESS         a plain worker of Dask, with one thread
python -m tests.fleet_program client ...                  any `costmodel` command with these arguments

On a machine every layer costs FACTOR times as much as the fake runtime says, and a batch takes SECONDS besides. Each
program imports only what it needs, because tests start dozens of them.
"""

import asyncio
import sys
import time
from collections.abc import Sequence
from pathlib import Path

__all__ = ["main"]


async def _schedule(path: Path) -> None:
    from distributed import Scheduler

    async with Scheduler(host="127.0.0.1", port=0, dashboard=False) as scheduler:
        partial = path.with_suffix(".partial")
        partial.write_text(scheduler.address)
        partial.rename(path)
        await scheduler.finished()


def _measure(factor: float, seconds: float) -> None:
    from costmodel.ir.sequence import LayerSequence
    from costmodel.jobs.fleet.measuring_process import measure
    from tests.fakes import FakeRuntime, fake_sessions

    class SlowRuntime(FakeRuntime):
        def cost_us(self, sequence: LayerSequence) -> float:
            return factor * super().cost_us(sequence)

    time.sleep(seconds)
    runtime = SlowRuntime()
    measure(runtime, fake_sessions(runtime))


def _command(arguments: Sequence[str], program: Sequence[str] | None = None) -> None:
    from costmodel.cli import main as run_command
    from costmodel.cli.context import Tools
    from tests.fakes import FakeRuntime

    run_command(arguments, tools=Tools(FakeRuntime(), measuring_program=program))


def main(arguments: Sequence[str]) -> None:
    """Does what the arguments say."""
    what, *rest = arguments
    if what == "schedule":
        asyncio.run(_schedule(Path(rest[0])))
    elif what == "dask-worker":
        from distributed.cli.dask_worker import main as run_worker

        run_worker([rest[0], "--nthreads", "1", "--no-nanny", "--no-dashboard"])
    elif what == "measure":
        _measure(float(rest[0]), float(rest[1]))
    elif what == "work":
        _command(["worker", *rest[2:]], (sys.executable, "-m", "tests.fleet_program", "measure", *rest[:2]))
    else:
        _command(rest)


if __name__ == "__main__":
    main(sys.argv[1:])
