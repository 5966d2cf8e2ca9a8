"""Migrates a store to a schema revision: python -m costmodel.store.migrations URL [REVISION].

Opening a store upgrades it automatically. This command is needed to downgrade a store for an older costmodel, and to
upgrade a large store before a service starts.
"""

import argparse
import sys

from sqlalchemy.exc import SQLAlchemyError

from costmodel.errors import CostModelError
from costmodel.store import migrations
from costmodel.store.engine import open_engine
from costmodel.store_url import parse_store_url


def main(arguments: list[str] | None = None) -> int:
    """Parses the command-line arguments, migrates the store and reports the result; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m costmodel.store.migrations", description="Upgrade or downgrade a store to a schema revision."
    )
    parser.add_argument("url", help="URL of the store, such as sqlite:///results.db")
    parser.add_argument("revision", nargs="?", default=migrations.REVISIONS[-1], choices=migrations.REVISIONS)
    options = parser.parse_args(arguments)
    try:
        url = parse_store_url(options.url)
        place = url.render_as_string(hide_password=True)
        engine = open_engine(url, wait_s=60.0)
        try:
            with engine.connect().execution_options(writing=True) as connection, connection.begin():
                migrations.migrate(connection, place, options.revision)
        finally:
            engine.dispose()
    except (CostModelError, SQLAlchemyError) as error:
        sys.stderr.write(f"{' '.join(str(error).split())}\n")
        return 1
    sys.stderr.write(f"{place} has schema {options.revision}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
