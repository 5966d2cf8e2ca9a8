from .call import Call as Call
from .call import Reply as Reply
from .pool import EnginePool as EnginePool
from .pool import Engines as Engines
from .settings import EngineSettings as EngineSettings
