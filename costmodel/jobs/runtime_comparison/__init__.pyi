from .changes import Change as Change
from .changes import LayerOccurrence as LayerOccurrence
from .comparison import RuntimeComparison as RuntimeComparison
from .comparison import compare_runtimes as compare_runtimes
from .comparison import installed_release as installed_release
from .environments import parse_release as parse_release
from .release import Release as Release
