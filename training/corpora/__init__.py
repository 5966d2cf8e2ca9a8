"""Corpora of ONNX models that are made by recipes.

A recipe makes the same ONNX file on every machine: an architecture with random weights. Recipes use neither the
lowering of models into layers nor measurements.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
