"""Systems: a host, a runtime and its settings, under a name.

The package reads the kernel's files in /proc and /sys and the catalogue, and returns `Host`s and `System`s. It measures
nothing and does not know about layers.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
