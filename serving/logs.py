"""Logging of the service: one line of JSON for each record, on standard error."""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any

__all__ = ["JsonLines", "set_up_logging"]


class JsonLines(logging.Formatter):
    """Formatter that writes a log record as one line of JSON; entries of the record's `fields` become its members."""

    def format(self, record: logging.LogRecord) -> str:
        """Returns a log record as one line of JSON."""
        line: dict[str, Any] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= getattr(record, "fields", {})
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def set_up_logging() -> None:
    """Configures logging to standard error, with one line of JSON for each record."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)
