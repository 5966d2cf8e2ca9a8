"""Finds the settings under which a model runs best on a host: predicts all, and measures the best few.

In come a model file and the systems of a host; out comes an answer with the best setting, what it was measured at, what
it saves and lines of Python that apply it. The predictions are those of `costmodel.serving.tuning`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
