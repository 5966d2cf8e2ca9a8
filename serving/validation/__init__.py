"""Validates layer sequences from untrusted clients.

The checks accept a parsed sequence, or report what is wrong with it. Code that runs after them may rely on its layers
being valid.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
