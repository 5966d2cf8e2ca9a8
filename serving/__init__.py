"""Estimates the latency of models, in process or over HTTP.

Its inputs are models, a results store and trained regressors; its outputs are estimates, one or thousands at a time.
Nothing is trained and nothing is measured here.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
