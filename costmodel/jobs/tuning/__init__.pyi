from .model_files import WITHIN as WITHIN
from .model_files import Within as Within
from .model_files import open_files as open_files
from .tune import Tuner as Tuner
