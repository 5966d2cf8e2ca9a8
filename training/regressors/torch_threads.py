"""The number of threads that torch computes with, which is a setting of the whole process."""

from collections.abc import Iterator
from contextlib import contextmanager

from costmodel.errors import MissingExtraError

try:
    import torch
except ModuleNotFoundError as error:
    raise MissingExtraError("neural networks", "gnn") from error

__all__ = ["torch_threads"]


@contextmanager
def torch_threads(threads: int) -> Iterator[None]:
    """Lets torch compute with `threads` threads in a with block, and with as many as before after it."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)
