"""What a call can raise. Each error is also the built-in that NumPy users would catch."""

from __future__ import annotations

from types import TracebackType

_PUBLIC = {  # the modules of the functions that users call, or one function of a module; and where users find them
    "cuscan.api": "cuscan",
    "cuscan.functions": "cuscan",
    "cuscan.chunks": "cuscan",
    "cuscan.distributed": "cuscan.distributed",
    "cuscan.dask": "cuscan.dask",
    "cuscan.warming.warm": "cuscan",
    "cuscan.explaining.explain": "cuscan",
    "cuscan.custom.__init__": "cuscan.Operator",
    "cuscan.custom.compile": "cuscan.Operator",
    "cuscan.custom.check": "cuscan.Operator",
}


class ScanError(Exception):
    """Base of every error that cuscan raises; the message ends with the function that the user called."""

    def __str__(self) -> str:
        function = _called(self.__traceback__)
        return f"{super().__str__()} ({function})" if function else super().__str__()


class ScanValueError(ScanError, ValueError):
    """An argument has the right type and a value that does not fit: a shape, an axis, an overlap."""


class ScanTypeError(ScanError, TypeError):
    """An argument has a type, dtype, library or device that is not accepted."""


class MissingDependencyError(ScanError, ImportError):
    """A package is needed that is not installed; the message holds the command that installs it."""


class CompileError(ScanError, RuntimeError):
    """A kernel did not compile; the message holds the compiler's log."""

    __str__ = Exception.__str__  # the log speaks of lines


class MissingKernelError(CompileError):
    """The cache has no kernel for a call, and none may be compiled; the message holds the command that adds it."""


def _called(trace: TracebackType | None) -> str:
    """The first public function on the way to an error: found when it is printed, so that calls do not pay for it."""
    while trace is not None:
        frame = trace.tb_frame
        module, name = frame.f_globals.get("__name__", ""), frame.f_code.co_name
        package = _PUBLIC.get(module) or _PUBLIC.get(f"{module}.{name}")
        if package:
            return f"{package}.{name}".removesuffix(".__init__")
        trace = trace.tb_next
    return ""
