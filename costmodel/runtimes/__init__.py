"""Adapters for the runtimes that execute models.

An adapter returns the layers that its runtime executes for a model, and opens models and layer sequences as runners,
which other packages time; it measures nothing itself. `base` holds the protocols that every adapter implements.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
