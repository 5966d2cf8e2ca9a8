"""Bring a store to one schema: python -m costmodel.migrations URL [REVISION].

Opening a store upgrades it, so that this is needed before an older costmodel is to use a store again, and where the
upgrade of a large one is to happen before a service starts.
"""

import argparse
import sys

from sqlalchemy.exc import SQLAlchemyError

from costmodel import migrations
from costmodel.engine import open_engine
from costmodel.errors import CostModelError
from costmodel.store_url import parse_store_url


def main(arguments: list[str] | None = None) -> int:
    """Parse, migrate, and say what became of it; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m costmodel.migrations", description="Bring a store to one schema.")
    parser.add_argument("url", help="URL of the store, such as sqlite:///results.db")
    parser.add_argument("revision", nargs="?", default=migrations.REVISIONS[-1], choices=migrations.REVISIONS)
    given = parser.parse_args(arguments)
    try:
        url = parse_store_url(given.url)
        place = url.render_as_string(hide_password=True)
        engine = open_engine(url, wait_s=60.0)
        try:
            with engine.connect().execution_options(writing=True) as connection, connection.begin():
                migrations.migrate(connection, place, given.revision)
        finally:
            engine.dispose()
    except (CostModelError, SQLAlchemyError) as error:
        sys.stderr.write(f"{' '.join(str(error).split())}\n")
        return 1
    sys.stderr.write(f"{place} has schema {given.revision}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
