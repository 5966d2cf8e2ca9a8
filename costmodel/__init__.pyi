from .api import CostModel as CostModel
from .errors import CostModelError as CostModelError
from .estimate.estimate import Estimate as Estimate
from .onnx_io.model import read_model as read_model
from .serving.latency_table import LatencyTable as LatencyTable
from .synthetic.described_layers import constant as constant
from .synthetic.described_layers import layer as layer
from .synthetic.described_layers import weight as weight
