"""Stores whose processes are killed, or that several processes write."""

import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from costmodel.store.store import Store
from tests.slow_bench import TOGETHER, sequences

ROOT = Path(__file__).parents[3]
COUNT = 700
KILLS = 10


class Program:
    """A `tests.slow_bench` process that is loaded and waits for its start signal; its output is collected."""

    def __init__(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "tests.slow_bench", *arguments]
        self.process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.lines: list[str] = []
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n"
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        self.lines.extend(line.strip() for line in self.process.stdout if line.endswith("\n"))

    def begin(self) -> None:
        """Send the start signal."""
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def end(self) -> int:
        """Wait for the end of the process and return its exit status."""
        status = self.process.wait()
        self._reader.join()
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            stream.close()
        return status


@pytest.fixture
def killed_store(tmp_path: Path) -> tuple[Path, list[str]]:
    """A store whose benchmark was killed ten times, and the signatures it had reported as stored."""
    path = tmp_path / "store.db"
    chance = random.Random(2019)
    reported: list[str] = []
    for kill in range(KILLS):
        program = Program("bench", f"sqlite:///{path}", str(COUNT))
        program.begin()
        # Half of the kills happen while the store is created and opened, half while it is written.
        if kill % 2:
            while len(program.lines) < chance.randint(1, 20):
                time.sleep(0.001)
        time.sleep(chance.uniform(0.0, 0.05))
        program.process.kill()
        assert program.end() == -signal.SIGKILL
        reported += program.lines
    return path, reported


def test_a_benchmark_killed_ten_times_loses_nothing_and_measures_nothing_twice(
    killed_store: tuple[Path, list[str]],
) -> None:
    """All reported measurements are stored, and the resumed benchmark measures only the rest."""
    path, reported = killed_store
    url = f"sqlite:///{path}"
    assert max(Counter(reported).values()) == 1
    store = Store(url)
    stored = store.latencies_us("fake-1")
    assert set(reported) <= set(stored)
    # A kill between storing and reporting leaves unreported measurements: at most those of one group per kill.
    assert 0 < len(reported) <= len(stored) <= len(reported) + KILLS * TOGETHER

    program = Program("bench", url, str(COUNT))
    program.begin()
    assert program.end() == 0
    assert len(program.lines) == COUNT - len(stored)
    assert not set(program.lines) & set(stored)
    assert {m.signature for m in store.measurements("fake-1")} == {s.signature for s in sequences(COUNT)}
    assert store.repeated_signatures("fake-1") == set()
    store.close()

    with closing(sqlite3.connect(path)) as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert database.execute("PRAGMA foreign_key_check").fetchall() == []
        rows = database.execute("SELECT system, signature, repeat FROM measurements").fetchall()
    assert len(rows) == len(set(rows)) == COUNT


def test_two_processes_that_write_at_once_lose_nothing(tmp_path: Path) -> None:
    """Two processes that each add 100 measurements of the same 50 signatures give 200."""
    url = f"sqlite:///{tmp_path / 'store.db'}"
    programs = [Program("write", url, name) for name in ("one", "other")]
    for program in programs:
        program.begin()
    assert [program.end() for program in programs] == [0, 0]
    store = Store(url)
    found = list(store.measurements("fake-1"))
    assert Counter(m.latency_us for m in found) == {3.0: 100, 5.0: 100}
    assert set(Counter(m.signature for m in found).values()) == {4}
    assert (
        set(store.latencies_us("fake-1")) == store.repeated_signatures("fake-1") == {s.signature for s in sequences(50)}
    )
    store.close()


def test_several_processes_may_make_one_store(tmp_path: Path) -> None:
    """Several processes may create one store at once, and all find it complete."""
    url = f"sqlite:///{tmp_path / 'store.db'}"
    programs = [Program("bench", url, "0") for _ in range(4)]
    for program in programs:
        program.begin()
    assert [program.end() for program in programs] == [0, 0, 0, 0]
    assert set(Store(url).systems()) == {"fake-1"}
