"""Corpora of ONNX models that are generated from recipes.

A recipe gives the same ONNX file on every machine: an architecture with random weights. Recipes do not depend on layers
or measurements.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
