from .host import Host as Host
from .host import probe_environment as probe_environment
from .host import usable_cpus as usable_cpus
from .system import System as System
from .system import catalogue as catalogue
from .system import check_same_system as check_same_system
from .system import this_system as this_system
from .system import validate_name as validate_name
