"""Runnable networks made from layer sequences, and samples of sequences.

Layer sequences become ONNX models with synthetic weights and inputs, or variants of other sizes; layers that a program
describes become models. The package knows which argument values an operator needs, but not how long it takes.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
