"""Intermediate representation: layer graphs, layer sequences and their signatures.

A `LayerGraph` holds the layers of a model: operators, attributes, shapes and the values of small constants. A
`LayerSequence` is a part of it; sequences that do the same work have the same `signature`. The package reads no ONNX
file, runs nothing and measures nothing.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
