"""Runs evaluations that are described in files, and verifies their results by running them again.

A spec comes in; a folder goes out with the spec, the results, and what is needed to repeat them.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
