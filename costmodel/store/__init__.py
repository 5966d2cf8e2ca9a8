"""The results store, in SQLite or PostgreSQL, and its exchange formats.

The package stores and returns systems, sequences, measurements and decompositions of models, and exchanges them as
Parquet and CSV. It predicts nothing.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
