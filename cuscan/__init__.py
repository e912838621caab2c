"""cuscan: prefix scans on the GPU, on any axis, dtype and operator, from any framework."""

from cuscan.api import linear_recurrence, scan, total
from cuscan.backends import release_memory
from cuscan.chunks import scan_chunks
from cuscan.custom import Operator
from cuscan.errors import (
    CompileError,
    MissingDependencyError,
    MissingKernelError,
    ScanError,
    ScanTypeError,
    ScanValueError,
)
from cuscan.explaining import explain
from cuscan.functions import (
    cummax,
    cummin,
    cumprod,
    cumsum,
    cumulative_prod,
    cumulative_sum,
    logcumsumexp,
    nancumprod,
    nancumsum,
)
from cuscan.warming import warm

__version__ = "0.1.0"

__all__ = [
    "CompileError",
    "MissingDependencyError",
    "MissingKernelError",
    "Operator",
    "ScanError",
    "ScanTypeError",
    "ScanValueError",
    "cummax",
    "cummin",
    "cumprod",
    "cumsum",
    "cumulative_prod",
    "cumulative_sum",
    "explain",
    "linear_recurrence",
    "logcumsumexp",
    "nancumprod",
    "nancumsum",
    "release_memory",
    "scan",
    "scan_chunks",
    "total",
    "warm",
]
