"""All regressors, baselines included.

A regressor is fitted to features and measured costs of sequences, and predicts the costs of other layers. It does not
depend on families, folds, stores or files.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
