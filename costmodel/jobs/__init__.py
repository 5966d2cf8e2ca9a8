"""The jobs behind the commands of the command line, as functions that any program can call.

A job takes a store, a system and models, and returns a report. Jobs combine the other packages; they print nothing and
do not parse command lines.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
