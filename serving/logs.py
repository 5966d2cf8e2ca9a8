"""The log of the service: one line of JSON for each record, on standard error."""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any

__all__ = ["JsonLines", "set_up_logging"]


class JsonLines(logging.Formatter):
    """Writes a record as one line of JSON; what is in its `told` becomes members."""

    def format(self, record: logging.LogRecord) -> str:
        """The line of a record."""
        told: dict[str, Any] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        told |= getattr(record, "told", {})
        if record.exc_info:
            told["exception"] = self.formatException(record.exc_info)
        return json.dumps(told, default=str)


def set_up_logging(level: int = logging.INFO) -> None:
    """Log to standard error, one line of JSON for each record."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
