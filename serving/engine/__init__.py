"""Engines: processes that use measurements and trained regressors to answer requests, each engine one at a time.

An engine receives each request from a web server, and returns the answer as JSON. It handles neither HTTP nor tokens,
and its answer to one client does not depend on the requests of others.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
