"""Engines: processes that answer requests with a store and its regressors, one at a time, apart from the web server.

The web server admits, authenticates and sends bytes; whatever costs more than that happens here, where it can be given
a deadline, a ceiling of memory and a low priority, and be killed.
"""

from costmodel.serving.engine.call import Call, Reply
from costmodel.serving.engine.settings import EngineSettings

__all__ = ["Call", "EngineSettings", "Reply"]
