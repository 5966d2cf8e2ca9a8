"""Runnable networks made from layer sequences, and samples of sequences.

The package makes ONNX models with synthetic weights and inputs from layer sequences, varies the sizes of sequences, and
makes models of layers that a Python program describes. It knows which argument values an operator needs, but not how
long the operator takes.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
