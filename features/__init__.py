"""Turns layer sequences on a system into numeric features for regressors.

The package contains the feature schema with its version and fingerprint, the encoder, and the analytical bound.
Training and serving call the same functions; nothing in this package is learnt from data.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
