"""A PostgreSQL server for tests: the one in COSTMODEL_TEST_POSTGRES, or a temporary one."""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import create_engine, text

__all__ = ["NoServerError", "emptied", "running_server"]

_PLACES = Path("/usr/lib/postgresql")


class NoServerError(Exception):
    """COSTMODEL_TEST_POSTGRES is not set, and PostgreSQL's programs are not installed."""


@contextmanager
def running_server() -> Iterator[str]:
    """Yields the URL of a database that tests may change in any way.

    Raises:
        NoServerError: No server is configured, and none can be started.
    """
    given = os.environ.get("COSTMODEL_TEST_POSTGRES")
    if given:
        yield given
        return
    initdb = _program("initdb")
    # The path is short because that of a socket must be. PostgreSQL refuses to run as root, hence another user.
    folder = Path(tempfile.mkdtemp(prefix="cm-pg-"))
    user = "postgres" if os.geteuid() == 0 else None
    try:
        if user:
            shutil.chown(folder, user)
        with (folder / "log").open("wb") as log:
            subprocess.run(
                [initdb, "-D", folder / "data", "-U", "costmodel", "-A", "trust", "--no-sync"],
                user=user, stdout=log, stderr=log, check=True, cwd=folder,
            )  # fmt: skip
            server = subprocess.Popen(
                [_program("postgres"), "-D", folder / "data", "-k", folder, "-c", "listen_addresses=", "-F"],
                user=user, stdout=log, stderr=log, cwd=folder,
            )  # fmt: skip
        try:
            ready = [_program("pg_isready"), "-h", folder, "-t", "1"]
            while subprocess.run(ready, stdout=subprocess.DEVNULL, check=False).returncode:
                if server.poll() is not None:
                    raise NoServerError(f"PostgreSQL does not start: {(folder / 'log').read_text()}")
                time.sleep(0.05)
            yield f"postgresql://costmodel@/postgres?host={folder}"
        finally:
            server.send_signal(signal.SIGINT)  # unlike SIGTERM, SIGINT does not wait for clients
            server.wait()
    finally:
        shutil.rmtree(folder)


def emptied(url: str) -> str:
    """Drops all tables of the database and returns its URL."""
    engine = create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    with engine.begin() as connection:
        connection.execute(text("DROP SCHEMA public CASCADE"))
        connection.execute(text("CREATE SCHEMA public"))
    engine.dispose()
    return url


def _program(name: str) -> str:
    newest = sorted(_PLACES.glob(f"*/bin/{name}"), key=lambda path: int(path.parts[-3].partition(".")[0]))
    found = shutil.which(name) or (str(newest[-1]) if newest else None)
    if found is None:
        raise NoServerError("no PostgreSQL: install it, or set COSTMODEL_TEST_POSTGRES to the URL of a database")
    return found
