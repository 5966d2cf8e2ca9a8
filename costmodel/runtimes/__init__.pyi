from .base import DEFAULT_RUNTIME as DEFAULT_RUNTIME
from .base import LEVELS as LEVELS
from .base import Runner as Runner
from .base import Runtime as Runtime
from .base import RuntimeSettings as RuntimeSettings
from .base import get_runtime as get_runtime
from .base import lowering_key as lowering_key
from .lowering_cache import lower_cached as lower_cached
