"""The jobs behind the commands, callable from a program.

A job takes a store, a system and models, and returns a report. Jobs combine the other packages; they print nothing
and parse no arguments.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
