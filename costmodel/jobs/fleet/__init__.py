"""Measures on the machines of a Dask cluster: workers take batches of layer sequences, a client stores the results.

In come groups of sequences and the systems to measure them on; out go measurements in one results store. The workers
know no store, and the client times nothing. See docs/adr/0020.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
