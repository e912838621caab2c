"""cuscan: prefix scans on the GPU, on any axis, dtype and operator, from any framework."""

from cuscan.api import linear_recurrence, scan, total
from cuscan.chunks import scan_chunks
from cuscan.custom import Operator
from cuscan.errors import CompileError, MissingDependencyError, ScanError, ScanTypeError, ScanValueError
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

__version__ = "0.1.0"

__all__ = [
    "CompileError",
    "MissingDependencyError",
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
    "linear_recurrence",
    "logcumsumexp",
    "nancumprod",
    "nancumsum",
    "scan",
    "scan_chunks",
    "total",
]
