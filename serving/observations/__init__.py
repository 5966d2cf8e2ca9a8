"""Stores latencies that users observed, and computes the drift of systems from them.

Each observation belongs to an owner: the token with which it was reported. The drift of a system is how far the
latencies that are observed on it are from those predicted for it.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
