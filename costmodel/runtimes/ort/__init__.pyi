from .adapter import OnnxRuntime as OnnxRuntime
from .session import open_session as open_session
