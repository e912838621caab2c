"""cuscan: prefix scans on the GPU, on any axis, dtype and operator, from any framework."""

from cuscan.api import cummax, cummin, cumprod, cumsum, scan
from cuscan.errors import CompileError, MissingDependencyError, ScanError, ScanTypeError, ScanValueError

__version__ = "0.1.0"

__all__ = [
    "CompileError",
    "MissingDependencyError",
    "ScanError",
    "ScanTypeError",
    "ScanValueError",
    "cummax",
    "cummin",
    "cumprod",
    "cumsum",
    "scan",
]
