"""Stores latencies that users observed, and computes the drift of systems from them.

Each observation belongs to an owner. The drift of a system is how far observed latencies are from its predictions.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
