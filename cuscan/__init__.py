"""cuscan: prefix scans on the GPU, on any axis, dtype and operator, from any framework."""

from __future__ import annotations

from typing import TYPE_CHECKING

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

if TYPE_CHECKING:
    from cuscan.explaining import explain
    from cuscan.warming import warm
else:

    def __getattr__(name):
        """What plans kernels is imported when it is used: scans of arrays on the CPU never need it."""
        if name == "explain":
            from cuscan.explaining import explain as found
        elif name == "warm":
            from cuscan.warming import warm as found
        else:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = found
        return found

    def __dir__():
        return sorted({*globals(), *__all__})


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
