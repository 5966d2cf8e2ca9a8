"""Validates layer sequences that untrusted clients send.

The checks take a sequence that was parsed already, and raise an error or return what is wrong with it. Code that runs
after them may rely on the layers of the sequence being valid.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
