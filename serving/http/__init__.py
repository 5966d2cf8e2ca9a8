"""The web server: admits HTTP requests of untrusted clients, passes them to an engine and returns the answers.

The web server itself parses no model and loads no regressor.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
