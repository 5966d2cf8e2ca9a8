"""The measuring lock, held by real processes."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from costmodel.errors import HostBusyError
from costmodel.measure.lock import measuring_lock

HOLD = """
import sys
from pathlib import Path
from costmodel.measure.lock import measuring_lock
sys.argv[0] = "/usr/bin/costmodel"
with measuring_lock(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def holding(path: Path) -> Iterator[subprocess.Popen[str]]:
    """Starts another process that holds the lock until its standard input closes."""
    command = [sys.executable, "-c", HOLD, str(path), "--budget", "10m"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "held\n"
            yield process
        finally:
            process.kill()


def test_a_second_process_learns_who_is_measuring_until_that_one_dies(tmp_path: Path) -> None:
    """The error names process and command of the holder; `kill -9` releases the lock."""
    path = tmp_path / "measuring.lock"
    with holding(path) as process:
        with pytest.raises(HostBusyError) as caught, measuring_lock(path):
            pass
        assert f"process {process.pid} (costmodel {path} --budget 10m, since 20" in str(caught.value)
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert path.with_suffix(".holder").exists()
        with measuring_lock(path):
            pass


def test_a_process_that_ends_leaves_the_host_free(tmp_path: Path) -> None:
    """A process that has ended is not named as the holder."""
    path = tmp_path / "measuring.lock"
    with holding(path) as process:
        process.communicate()
        assert process.returncode == 0
        assert not path.with_suffix(".holder").exists()
        with measuring_lock(path):
            pass


def test_the_lock_is_given_back_after_an_error(tmp_path: Path) -> None:
    """An exception, such as Ctrl-C, releases the lock."""
    path = tmp_path / "measuring.lock"
    with pytest.raises(KeyboardInterrupt), measuring_lock(path):
        raise KeyboardInterrupt
    with measuring_lock(path):
        pass


def test_one_process_does_not_measure_twice_at_once_either(tmp_path: Path) -> None:
    """Two benches in one process exclude each other too."""
    path = tmp_path / "measuring.lock"
    with measuring_lock(path):
        with pytest.raises(HostBusyError), measuring_lock(path):
            pass
        with pytest.raises(HostBusyError), measuring_lock(path):
            pass


@pytest.mark.parametrize("note", ["", "not json", "[]", '"text"', '{"pid": 1}'])
def test_a_holder_that_left_no_readable_note_is_another_process(tmp_path: Path, note: str) -> None:
    """The lock holds even if the note about its holder cannot be read."""
    path = tmp_path / "measuring.lock"
    with measuring_lock(path):
        path.with_suffix(".holder").write_text(note)
        with pytest.raises(HostBusyError, match="another process is measuring"), measuring_lock(path):
            pass


def test_a_note_that_cannot_be_written_does_not_stop_a_measurement(tmp_path: Path) -> None:
    """A note that cannot be written, such as over another user's, does not prevent measuring."""
    path = tmp_path / "measuring.lock"
    path.with_suffix(".holder").mkdir()
    with measuring_lock(path):
        pass


def test_a_lock_that_cannot_be_made_is_an_error_that_says_so(tmp_path: Path) -> None:
    """A lock file that cannot be created is an error."""
    (tmp_path / "file").write_text("")
    path = tmp_path / "file" / "measuring.lock"
    with pytest.raises(HostBusyError, match=re.escape(str(path))), measuring_lock(path):
        pass


def test_the_whole_host_has_one_lock(tmp_path: Path) -> None:
    """The default lock lies in the system's temporary folder, shared by all processes of the host."""
    code = (
        "from costmodel.measure.lock import measuring_lock\nwith measuring_lock(): print('held', flush=True); input()"
    )
    here = Path(__file__).parents[3]
    command = [sys.executable, "-c", code]
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, cwd=here, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        assert [path.suffix for path in sorted(tmp_path.iterdir())] == [".holder", ".lock"]
        second = subprocess.run(command, env=environment, cwd=here, capture_output=True, text=True, check=False)
        assert "HostBusyError" in second.stderr
        holder.communicate("\n")
