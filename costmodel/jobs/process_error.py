"""Says why a process that this one started has ended."""

from typing import IO

from costmodel.errors import MeasurementError

__all__ = ["failed_process"]


def failed_process(what: str, status: int, messages: IO[bytes]) -> MeasurementError:
    """Returns an error with the exit status of a process and the last line that it wrote to standard error.

    Args:
        what: The process, for the message.
        status: Exit status of the process.
        messages: File to which its standard error was directed.
    """
    messages.seek(0)
    lines = messages.read().decode(errors="replace").strip().splitlines()
    return MeasurementError(f"{what} ended with status {status}{f': {lines[-1]}' if lines else ''}")
