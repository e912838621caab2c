"""The errors that calls raise. Each is also the built-in exception that NumPy users would catch."""

from __future__ import annotations

from types import TracebackType

_PUBLIC = {  # modules of public functions, or one function of a module, and the packages that export them
    "cuscan.api": "cuscan",
    "cuscan.functions": "cuscan",
    "cuscan.chunks": "cuscan",
    "cuscan.distributed": "cuscan.distributed",
    "cuscan.distributed.dtensors.wrapped": "cuscan.distributed",
    "cuscan.dask": "cuscan.dask",
    "cuscan.warming.warm": "cuscan",
    "cuscan.explaining.explain": "cuscan",
    "cuscan.custom.__init__": "cuscan.Operator",
    "cuscan.custom.compile": "cuscan.Operator",
    "cuscan.custom.check": "cuscan.Operator",
}


class ScanError(Exception):
    """Base of all cuscan errors; the message ends with the function that the user called."""

    def __str__(self) -> str:
        function = _called(self.__traceback__)
        return f"{super().__str__()} ({function})" if function else super().__str__()


class ScanValueError(ScanError, ValueError):
    """An argument has the right type but an invalid value: a shape, an axis, an overlap."""


class ScanTypeError(ScanError, TypeError):
    """An argument has a type, dtype, library or device that is not accepted."""


class MissingDependencyError(ScanError, ImportError):
    """A required package is not installed; the message has the command that installs it."""


class CompileError(ScanError, RuntimeError):
    """A kernel did not compile; the message has the compiler's log."""

    __str__ = Exception.__str__  # nothing is appended to the compiler's log


class MissingKernelError(CompileError):
    """The cache has no kernel for a call, and none may be compiled; the message has the command that adds it."""


def _called(trace: TracebackType | None) -> str:
    """Return the outermost public function of a traceback; only printing an error pays for the search."""
    while trace is not None:
        frame = trace.tb_frame
        module, name = frame.f_globals.get("__name__", ""), frame.f_code.co_name
        package = _PUBLIC.get(module) or _PUBLIC.get(f"{module}.{name}")
        if package:
            name = frame.f_locals["function"].__name__ if name == "wrapped" else name
            return f"{package}.{name}".removesuffix(".__init__")
        trace = trace.tb_next
    return ""
