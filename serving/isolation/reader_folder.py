"""The folder of a reader process: the model file that it is to read, and the file that it leaves behind."""

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from stat import S_ISREG
from typing import Any

from costmodel.errors import BusyError, ModelReadError
from costmodel.serving.isolation.child import ChildError

__all__ = ["IN", "KEPT", "WORK", "kept_file", "prepared_task"]

# In the folder of a reader: the folder that it may read, the one that it may write, and the file in which it leaves a
# model without weights.
IN, WORK, KEPT = "in", "work", "kept.onnx"


@contextmanager
def prepared_task(task: Mapping[str, Any], folder: Path) -> Iterator[Mapping[str, Any]]:
    """Puts the model file of a task into the input folder of a reader while the `with` block runs.

    Args:
        task: The task, which may have no model file.
        folder: Folder of the reader; its input folder is otherwise empty.

    Yields:
        The task, in which the paths of files are replaced by paths in the folder of the reader.

    Raises:
        ModelReadError: The model file does not exist.
        BusyError: There is no room for a copy of it.
    """
    if "path" not in task:
        yield task
        return
    linked = folder / IN / "model.onnx"
    prepared = {**task, "path": str(linked)}
    if "keep" in task:
        prepared["keep"] = str(folder / WORK / KEPT)
    try:
        _link(task["path"], linked, task["name"])
        yield prepared
    finally:
        with suppress(OSError):
            linked.unlink()


def _link(path: str, linked: Path, name: str) -> None:
    """Links a file to another place, or copies it there if that is on another file system.

    Raises:
        ModelReadError: The file does not exist.
        BusyError: There is no room for a copy.
    """
    try:
        try:
            os.link(path, linked)
        except OSError:
            shutil.copyfile(path, linked)
    except FileNotFoundError as error:
        raise ModelReadError(f"{name} does not exist: send its file again") from error
    except OSError as error:
        raise BusyError(f"{name} cannot be copied for a reader process ({error.strerror}): ask again") from error


def kept_file(folder: Path, most_bytes: int) -> bytes:
    """Returns the content of the file in which a reader stored a model without weights, and deletes the file.

    A model may have taken over the reader, so the file is checked before it is read.

    Args:
        folder: Folder of the reader.
        most_bytes: Maximum size of the file in bytes.

    Raises:
        ChildError: The file cannot be opened, is not a regular file, or is too large.
    """
    path = folder / WORK / KEPT
    try:
        # Following a link would expose files that the reader itself cannot open.
        number = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(number, "rb") as file:
            stat = os.fstat(number)
            if not S_ISREG(stat.st_mode) or stat.st_nlink != 1 or stat.st_size > most_bytes:
                raise ChildError("the answer is malformed")
            return file.read(most_bytes)
    except OSError as error:
        raise ChildError("the answer is malformed") from error
    finally:
        with suppress(OSError):
            path.unlink()
