"""Compares two releases of a runtime: which operators and models became slower or faster.

In come two releases and models; out go measurements in the results store, one system for each release, and a report of
the changes that are beyond noise. Each release runs in processes of an environment of its own. See docs/adr/0028.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
