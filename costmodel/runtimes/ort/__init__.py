"""ONNX Runtime on CPUs.

The package takes models and layer sequences and returns the layers of ONNX Runtime's optimised graph, with logical
shapes, and sessions that are ready to run. Nothing else in costmodel imports onnxruntime, except the quantiser of the
modern corpus.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
