"""Reads and lowers untrusted models in isolated processes, which may crash without harm to the service.

The processes receive model files and limits, and return decompositions or errors. A process that reads models can open
no other file and no connection, and can start no process.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
