"""Reading and lowering models that nobody vouches for, in processes that may die of it.

An ONNX file is a program for the reader, the shape inference and the optimiser that take it apart, all of them written
in C++. Here that happens in worker processes with limits on memory, processor time, wall time and size: a file that
brings one down costs itself an error, and nobody else anything.
"""

from costmodel.isolation.limits import Limits
from costmodel.isolation.pool import Pool, Task

__all__ = ["Limits", "Pool", "Task"]
