"""Reproduces the DLBricks paper (Li, Xiong, Dakkak, Hwu, 2019).

Computes the figures and numbers of the paper from the stored measurements of a corpus, to compare them with those that
the paper reports. Measures nothing.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
