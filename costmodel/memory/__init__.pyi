from .session import MemoryDemand as MemoryDemand
from .session import memory_demand as memory_demand
