"""Reads and lowers untrusted models in isolated processes, which may crash without harm to the service.

The processes, called readers, receive model files and limits, and return decompositions (the layer sequences of models)
or errors. A reader can open no file except its model, the libraries of Python and the files in a folder of its own; it
can open no connection and start no process.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
