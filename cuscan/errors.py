"""What a call can raise. Each error is also the built-in that NumPy users would catch."""


class ScanError(Exception):
    """Base of every error that cuscan raises."""


class ScanValueError(ScanError, ValueError):
    """An argument has the right type and a value that does not fit: a shape, an axis, an overlap."""


class ScanTypeError(ScanError, TypeError):
    """An argument has a type, dtype, library or device that is not accepted."""


class MissingDependencyError(ScanError, ImportError):
    """A package is needed that is not installed; the message holds the command that installs it."""


class CompileError(ScanError, RuntimeError):
    """A kernel did not compile; the message holds the compiler's log."""
