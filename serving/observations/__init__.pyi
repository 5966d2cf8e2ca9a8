from .drift import LEAST_OBSERVATIONS as LEAST_OBSERVATIONS
from .drift import Drift as Drift
from .drift import Observation as Observation
from .drift import StoredObservation as StoredObservation
from .observations import Observations as Observations
