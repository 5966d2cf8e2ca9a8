"""Composes the costs of layer sequences into the estimated latency of a model.

The package takes costs with intervals and returns `Estimate`s, by a composition rule and a context correction. It knows
only from the name of a cost's source whether the cost was measured or predicted.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
