"""Decomposition of models into layer sequences.

Cuts layer graphs into sequences, finds the unique sequences of a corpus and the cover that needs the least benchmarking
time, and writes benchmark suites. The package does not know the cost of a sequence; callers supply it where needed.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
