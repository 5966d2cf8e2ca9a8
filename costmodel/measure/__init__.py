"""The measurement protocol: how networks are timed.

The package takes runners, each of which runs one loaded network, and returns `Measurement`s with their raw times, the
call overhead and the capabilities of the host. It does not know where measurements are stored or what they are used
for.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
