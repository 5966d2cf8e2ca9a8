from .bench import FleetReport as FleetReport
from .bench import bench_on_cluster as bench_on_cluster
from .measuring_process import PROGRAM as PROGRAM
from .measuring_process import MeasuringProcess as MeasuringProcess
from .worker import Machine as Machine
from .worker import serve_machine as serve_machine
