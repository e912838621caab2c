"""Where a request runs: on the array's GPU, or in NumPy for arrays on the CPU."""

from __future__ import annotations

from typing import Any

from cuscan.errors import MissingDependencyError
from cuscan.interop import CUPY_MISSING
from cuscan.interop.view import ArrayView


def run(value: ArrayView, **call: Any) -> Any:
    """Run one call on the device of its array; `call` holds the keywords of `api.scan`."""
    if value.device.type == "cpu":
        from cuscan.backends import host

        return host.run(value, **call)
    try:
        from cuscan.backends import cuda
    except ImportError as error:
        raise MissingDependencyError(CUPY_MISSING.format(what="x")) from error
    return cuda.run(value, **call)
