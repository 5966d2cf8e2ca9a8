"""Reads ONNX models, removes their weights, and exports torch modules as ONNX.

Files, bytes and torch modules become `Model`s without weights and with every input shape fixed. The package knows which
values determine the shapes in a graph; it knows nothing of runtimes and layer sequences.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
