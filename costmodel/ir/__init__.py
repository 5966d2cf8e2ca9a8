"""Intermediate representation: layer graphs, layer sequences and their signatures.

Operators, attributes, shapes and the values of small constants become a `LayerGraph` and `LayerSequence`s; sequences
that cost the same have the same `signature`. The package reads no ONNX file, runs nothing and measures nothing.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
