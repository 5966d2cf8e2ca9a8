"""The runtimes that execute models.

A runtime takes models and layer sequences and returns the layers that it executes and runners that can be timed. `base`
holds the protocols that every runtime implements. Runtimes do not know about measuring.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
