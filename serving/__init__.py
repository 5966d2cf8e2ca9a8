"""Answers: from a model to an estimate.

In come models, a store and trained regressors; out go estimates, one or thousands at a time, in process or over HTTP.
It trains and measures nothing.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
