"""The OpenVINO adapter: how OpenVINO's CPU plugin executes models, and how layers are opened to be timed by it.

Models come in as ONNX; what goes out are graphs of ONNX operators, in which the operators that OpenVINO executes as one
primitive are one fused layer. `costmodel.runtimes.ort` folds constants and infers shapes for it.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
