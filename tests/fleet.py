"""A Dask cluster in simulated time: a scheduler and machines as real processes, each in a process group of its own."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import onnx.parser

from tests.shell import Done

__all__ = ["Fleet", "cluster", "write_models"]

ROOT = Path(__file__).parents[1]
OPERATORS = ("Relu", "Tanh", "Neg", "Abs", "Exp", "Sigmoid")


@dataclass
class Fleet:
    """A scheduler, and the machines that tests start and kill.

    Attributes:
        folder: Folder for the home of the commands, the locks of the machines and their output.
        address: Address of the scheduler.
        machines: Process of each machine by name.
    """

    folder: Path
    address: str
    machines: dict[str, "subprocess.Popen[str]"] = field(default_factory=dict)

    def start(self, name: str, system: str, *options: str, factor: float = 1.0, batch_s: float = 0.0) -> None:
        """Starts a machine without waiting for it.

        Args:
            name: Name of the machine.
            system: System that the machine says it is.
            options: More options of `costmodel worker`.
            factor: Factor of the costs of all layers.
            batch_s: Seconds that a batch takes at least.
        """
        own = self.folder / f"machine-{name}"  # so that each has a measuring lock of its own
        own.mkdir(exist_ok=True)
        command = ["work", factor, batch_s, self.address, "--system", system, "--name", name, *options]
        self.machines[name] = _program(self.folder, *command, TMPDIR=own, OMP_NUM_THREADS=1)

    def joined(self, name: str) -> None:
        """Waits until a machine is in the cluster."""
        stream = self.machines[name].stderr
        assert stream is not None
        line = stream.readline()
        assert f"{name} is in the cluster" in line, line + stream.read()

    def kill(self, name: str) -> None:
        """Kills a machine as a power cut would: the worker and whatever it has started."""
        process = self.machines.pop(name)
        os.killpg(process.pid, signal.SIGKILL)
        _collect(process)

    def start_dask_worker(self, name: str) -> None:
        """Starts a plain worker of Dask, as `dask worker` does."""
        self.machines[name] = _program(self.folder, "dask-worker", self.address)

    def client(self, *arguments: Any) -> "subprocess.Popen[str]":
        """Starts a `costmodel` command on this fleet."""
        return _program(self.folder, "client", *arguments)

    def run(self, *arguments: Any) -> Done:
        """Runs a `costmodel` command on this fleet until it ends."""
        process = self.client(*arguments)
        out, err = process.communicate(timeout=100)
        return Done(process.returncode, out, err)


@contextmanager
def cluster(folder: Path) -> Iterator[Fleet]:
    """Yields a running scheduler, which and whose machines are killed at the end."""
    place = folder / "scheduler.address"
    scheduler = subprocess.Popen(
        [sys.executable, "-m", "tests.fleet_program", "schedule", place], cwd=ROOT, start_new_session=True
    )
    while not place.exists():
        assert scheduler.poll() is None
        time.sleep(0.02)
    fleet = Fleet(folder, place.read_text())
    try:
        yield fleet
    finally:
        for name in list(fleet.machines):
            fleet.kill(name)
        os.killpg(scheduler.pid, signal.SIGKILL)
        scheduler.wait()


def write_models(folder: Path, count: int) -> int:
    """Writes models that have no layer in common; returns how many sequences they have, whole models included."""
    folder.mkdir()
    for number in range(count):
        size = number + 1
        steps = "\n".join(f"v{place + 1} = {name}(v{place})" for place, name in enumerate(OPERATORS))
        text = f"(float[2,{size}] v0) => (float[2,{size}] v{len(OPERATORS)}) {{ {steps} }}"
        model = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : 17]> tiny {text}')
        onnx.save(model, folder / f"model{number:02d}.onnx")
    return count * (len(OPERATORS) + 1)


def _program(folder: Path, *arguments: Any, **environment: Any) -> "subprocess.Popen[str]":
    variables = {"COSTMODEL_HOME": folder / "home", "COLUMNS": 200, **environment}
    return subprocess.Popen(
        [sys.executable, "-m", "tests.fleet_program", *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, **{name: str(value) for name, value in variables.items()}},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def _collect(process: "subprocess.Popen[str]") -> None:
    process.wait()
    for stream in (process.stdout, process.stderr):
        assert stream is not None
        stream.close()
