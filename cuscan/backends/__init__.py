"""Where a request runs: on the array's GPU, or in NumPy for arrays on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cuscan.errors import MissingDependencyError
from cuscan.interop import CUPY_MISSING
from cuscan.interop.view import ArrayView


def run(value: ArrayView, **call: Any) -> Any:
    """Run one call on the device of its array; `call` holds the keywords of `api.scan`."""
    backend = _backends.get(value.device.type) or _load(value.device.type)
    return backend(value, **call)


_backends: dict[str, Callable[..., Any]] = {}  # by device type, those that were needed so far


def _load(device_type: str) -> Callable[..., Any]:
    backend: Callable[..., Any]
    if device_type == "cpu":
        from cuscan.backends.host import run as backend
    else:
        try:
            from cuscan.backends.cuda import run as backend
        except ImportError as error:
            raise MissingDependencyError(CUPY_MISSING.format(what="x")) from error
    _backends[device_type] = backend
    return backend
