"""JSON documents of the HTTP API: requests, answers, and problem details, which report errors.

This package defines data only; it does not depend on the web server or the engines.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
