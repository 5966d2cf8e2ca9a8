"""Simulates the memory that a session of ONNX Runtime allocates while it loads a model and runs it.

The simulation takes a layer graph and follows the rules of the runtime and of the C library: the order of execution,
the planner of buffers, the arena and the heap. The package runs no model; what a process takes besides, and how far the
simulation is off, is known to `costmodel.estimate.peak_memory`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
