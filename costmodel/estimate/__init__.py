"""From the costs of sequences to the latency of a model.

In come costs with intervals; out go `Estimate`s, by a composition rule and a context correction. It does not know
whether a cost was measured or predicted, beyond the name of its source.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
