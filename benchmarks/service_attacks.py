"""Attacks a running service; measures the cost of each attack and its effect on another tenant, the neighbour.

    costmodel import data/amd-epyc-zen5-2c-ort1.31-1t-training.parquet      # then costmodel train
    python benchmarks/service_attacks.py amd-epyc-zen5-2c-ort1.31-1t [--seconds 10] [--only "long list of strides" ...]

Starts `costmodel serve --workers 2` with tokens on a copy of the home folder. For each attack (benchmarks/attacks.py,
at the limits that the service states) it measures

* health: the slowest answer of `/healthz`, requested every 20 ms on a connection to each worker (bar: 250 ms);
* ratio: the 99th percentile of a neighbour's cached predictions, 100 a second, divided by that without an attack,
  measured immediately before (bar: 3);
* CPU: processor seconds of all processes of the service for a single request of the attack (bar: 1 s);
* memory: maximum memory of all processes of the service during the attack, in MiB (bar: the stated ceiling, 14 GiB).

All processes share this machine's processors; the attacker's process has a low priority, because it stands for another
machine. Exits with 1 if a bar is missed or a status is wrong.
"""

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from attacks import ATTACKS, Attack, once
from service_load import announced, copied_home

from costmodel.paths import Home
from costmodel.serving.http.openapi import EXAMPLE_GRAPH
from costmodel.serving.http.tokens import add_token

HEALTH_BAR_MS, RATIO_BAR, CPU_BAR_S = 250.0, 3.0, 1.0
# Two workers, each with 1 GiB of its own and two engines of 1 GiB, each with a reader of 2 GiB.
MEMORY_BAR_MIB = 2 * (2 * (1024 + 2048) + 1024)
HEALTH_EVERY_S, ASKED_A_SECOND = 0.02, 100


@dataclass
class Service:
    """A running service.

    Attributes:
        host: Address of the service.
        port: Port of the service.
        process: Main process of the service.
        tokens: Tokens by name of the token owner.
    """

    host: str
    port: int
    process: psutil.Process
    tokens: dict[str, str]

    def workers(self) -> list[psutil.Process]:
        """Worker processes, which listen on the port."""
        return [child for child in self.process.children() if "spawn_main" in " ".join(_command(child))]

    def family(self) -> list[psutil.Process]:
        """All processes of the service."""
        with suppress(psutil.Error):
            return [self.process, *self.process.children(recursive=True)]
        return []

    def cpu_s(self) -> float:
        """Processor seconds of all processes of the service, including ended children."""
        total = 0.0
        for process in self.family():
            with suppress(psutil.Error):
                times = process.cpu_times()
                total += times.user + times.system + times.children_user + times.children_system
        return total

    def memory_mib(self) -> float:
        """Proportional set size of all processes in MiB: shared memory is counted once."""
        total = 0
        for process in self.family():
            with suppress(psutil.Error):
                total += process.memory_full_info().pss
        return total / (1 << 20)


@dataclass
class Row:
    """The measurements of one attack."""

    name: str
    health_ms: float = 0.0
    alone_ms: float = 0.0
    during_ms: float = 0.0
    cpu_s: float | None = None
    memory_mib: float = 0.0
    once: str = ""
    statuses: dict[str, int] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    @property
    def ratio(self) -> float:
        """Factor by which the attack slows the neighbour down."""
        return self.during_ms / self.alone_ms

    @property
    def missed(self) -> bool:
        """Whether a bar is missed."""
        return bool(
            self.health_ms > HEALTH_BAR_MS
            or self.memory_mib > MEMORY_BAR_MIB
            or self.ratio > RATIO_BAR
            or (self.cpu_s or 0) > CPU_BAR_S
            or self.wrong
        )


@contextmanager
def service(home: Home) -> Iterator[Service]:
    """Starts a service with two workers, and tokens for a neighbour and an attacker."""
    tokens = {name: add_token(home.root / "tokens.txt", name) for name in ("neighbour", "attacker")}
    command = [
        sys.executable, "-m", "costmodel", "serve", "--port", "0", "--json", "--workers", "2", "--tokens",
        str(home.root / "tokens.txt"),
    ]  # fmt: skip
    with (home.root / "log").open("wb") as log:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=log, text=True, env={**os.environ, "COSTMODEL_HOME": str(home.root)}
        )
        host, port = announced(process)
        try:
            yield Service(host, port, psutil.Process(process.pid), tokens)
        finally:
            process.terminate()
            process.wait()


async def open_to_each(service: Service) -> list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Opens a connection to each worker."""
    found: dict[int, tuple[asyncio.StreamReader, asyncio.StreamWriter]] = {}
    while len(found) < 2:
        stream = await asyncio.open_connection(service.host, service.port)
        await asked(stream, health())
        mine = stream[1].get_extra_info("sockname")[1]
        owner = next(
            worker.pid for worker in service.workers()
            if any(c.raddr and c.raddr.port == mine for c in worker.net_connections())
        )  # fmt: skip
        if owner in found:
            stream[1].close()
        else:
            found[owner] = stream
    return list(found.values())


async def asked(stream: tuple[asyncio.StreamReader, asyncio.StreamWriter], request: bytes) -> tuple[int, bytes]:
    """Sends a request; returns status and body of the answer."""
    stream[1].write(request)
    await stream[1].drain()
    head = await stream[0].readuntil(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
    return int(head[9:12]), await stream[0].readexactly(length)


def health() -> bytes:
    """Returns a request of `/healthz`."""
    return b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"


def prediction(service: Service, system: str) -> bytes:
    """Returns a request for a prediction, which the service caches."""
    body = json.dumps({"graph": EXAMPLE_GRAPH, "system": system}).encode()
    head = (
        f"POST /v1/predict HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {service.tokens['neighbour']}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def paced(service: Service, request: bytes, seconds: float, every_s: float) -> list[float]:
    """Sends a request to each worker at a steady pace; returns milliseconds from the due times to the answers."""
    times_ms: list[float] = []

    async def ask(stream: tuple[asyncio.StreamReader, asyncio.StreamWriter], offset: float) -> None:
        start = time.perf_counter() + offset
        number = 0
        while (due := start + number * every_s) < start + seconds:
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            status, _ = await asked(stream, request)
            if status != 200:
                raise SystemExit(f"a neighbour's question is answered with {status}")
            times_ms.append(1e3 * (time.perf_counter() - due))
            number += 1

    streams = await open_to_each(service)
    await asyncio.gather(*(ask(stream, place * every_s / 2) for place, stream in enumerate(streams)))
    for stream in streams:
        stream[1].close()
    return times_ms


def p99(times_ms: list[float]) -> float:
    """Returns the 99th percentile."""
    return statistics.quantiles(times_ms, n=100)[98]


async def measured(service: Service, attack: Attack, system: str, seconds: float) -> Row:
    """Measures one row of the table."""
    row = Row(attack.name)
    cached = prediction(service, system)
    every_s = 2 / ASKED_A_SECOND
    await paced(service, cached, 0.2, every_s)  # fills the caches of both workers
    await rest(service)
    if attack.body is not None:
        body = attack.body()
        before = service.cpu_s()
        row.once = await once(service.host, service.port, service.tokens["attacker"], attack, body)
        await rest(service)
        row.cpu_s = service.cpu_s() - before
    row.alone_ms = p99(await paced(service, cached, seconds, every_s))
    attacker = await asyncio.create_subprocess_exec(
        sys.executable, str(Path(__file__).with_name("attacks.py")), service.host, str(service.port),
        service.tokens["attacker"], attack.name, str(seconds + 2), stdout=subprocess.PIPE,
    )  # fmt: skip
    await asyncio.sleep(3.0)  # until the attack runs
    watching = asyncio.create_task(asyncio.to_thread(_most_memory, service, seconds))
    during, lives = await asyncio.gather(
        paced(service, cached, seconds, every_s), paced(service, health(), seconds, HEALTH_EVERY_S)
    )
    row.during_ms, row.health_ms = p99(during), max(lives)
    row.memory_mib = await watching
    output, _ = await attacker.communicate()
    row.statuses = json.loads(output)
    row.wrong = sorted({row.once, *row.statuses} - {*attack.expected, "closed", ""})
    return row


async def warm(service: Service, system: str) -> None:
    """Starts all engines by concurrent requests, because the service starts engines on demand."""

    async def ask(owner: str, number: int) -> None:
        body = json.dumps({"graph": EXAMPLE_GRAPH, "system": system, "name": f"warm {number}"}).encode()
        token = service.tokens[owner]
        await once(service.host, service.port, token, Attack("warm", kind="application/json"), body)

    for start in range(0, 48, 16):
        await asyncio.gather(*(ask(owner, start + n) for n in range(8) for owner in ("neighbour", "attacker")))
    await rest(service)


async def rest(service: Service) -> None:
    """Waits until the service is idle."""
    while True:
        before = service.cpu_s()
        await asyncio.sleep(0.5)
        if service.cpu_s() - before < 0.1:
            return


def _most_memory(service: Service, seconds: float) -> float:
    until = time.monotonic() + seconds
    most = 0.0
    while time.monotonic() < until:
        most = max(most, service.memory_mib())
        time.sleep(0.5)
    return most


def _command(process: psutil.Process) -> list[str]:
    with suppress(psutil.Error):
        return process.cmdline()
    return []


def main() -> None:
    """Prints a row for each attack."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("system")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--only", nargs="+", default=list(ATTACKS), choices=list(ATTACKS))
    given = parser.parse_args()
    missed = []
    print(
        f"{'attack':<30} {'health':>8} {'alone p99':>10} {'during':>8} {'ratio':>6} {'CPU':>7} {'memory':>9}  statuses"
    )
    with tempfile.TemporaryDirectory() as folder:
        home = copied_home(Path(folder))
        with service(home) as running:
            asyncio.run(warm(running, given.system))
            for name in given.only:
                row = asyncio.run(measured(running, ATTACKS[name], given.system, given.seconds))
                cpu = "" if row.cpu_s is None else f"{row.cpu_s:.2f} s"
                statuses = ", ".join(f"{status} {count}" for status, count in sorted(row.statuses.items()))
                print(
                    f"{name:<30} {row.health_ms:>5.0f} ms {row.alone_ms:>7.1f} ms {row.during_ms:>5.1f} ms "
                    f"{row.ratio:>6.1f} {cpu:>7} {row.memory_mib:>5.0f} MiB  {statuses}"
                    f"{'  MISSED' if row.missed else ''}",
                    flush=True,
                )
                if row.missed:
                    missed.append(name)
    print(f"missed: {', '.join(missed) or 'none'}")
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
