"""Reproduces the DLBricks paper (Li, Xiong, Dakkak, Hwu, 2019).

Turns the stored measurements of a corpus into the paper's figures, and its numbers beside ours. Measures nothing.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
