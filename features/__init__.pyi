from .analytical_bound import bound_us as bound_us
from .row import footprint_features as footprint_features
from .schema import FEATURE_GROUPS as FEATURE_GROUPS
from .schema import OPERATORS as OPERATORS
from .schema import SCHEMA as SCHEMA
from .tabular import Encoded as Encoded
from .tabular import Encoder as Encoder
from .tabular import encode_all as encode_all
