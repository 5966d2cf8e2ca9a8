"""ONNX Runtime on CPUs.

The package returns the layers, with logical shapes, of the graph into which ONNX Runtime optimises a model, and opens
models and layer sequences as sessions that are ready to run. Nothing else in costmodel imports onnxruntime, except the
module that quantises models of a training corpus.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
