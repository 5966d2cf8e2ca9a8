"""Engines: processes that answer requests from a results store and its regressors, one request at a time.

An engine receives calls from a web server and returns answers as JSON. It handles neither HTTP nor tokens, and each
call is answered independently of other clients.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
