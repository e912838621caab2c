"""Backends: run a request on the GPU of its arrays, or in NumPy for arrays on the CPU."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from cuscan.errors import MissingDependencyError
from cuscan.interop import CUPY_MISSING, hand_back
from cuscan.request.call import Flags, Operands, find_dtype

Results = tuple[Any, ...]


def release_memory() -> int:
    """Free the GPU memory that cuscan keeps between calls, and return its size in bytes.

    The memory goes to CUDA's allocator, in the order of the streams that used it. Calls that still run and calls
    captured into graphs keep theirs. The next call allocates again: 1 MiB per stream, or more if it needs more.
    """
    workspace = sys.modules.get("cuscan.backends.workspace")  # absent before the first call on a GPU
    released: int = workspace.release() if workspace else 0
    return released


def run(flags: Flags, operands: Operands, initial: Any) -> Results:
    """Run one call on the device of its arrays; return the results, and the last states if the call requests them."""
    device = operands.views[0].kind.device.type
    backend = _backends.get(device) or _load(device)
    for view in operands.views:
        if view.lender is not None:
            return _run_on_lent(backend, flags, operands, initial)
    return backend(flags, operands, initial)


def _run_on_lent(backend: Callable[..., Results], flags: Flags, operands: Operands, initial: Any) -> Results:
    """Run a call on arrays of other libraries. Convert the dtype here: some of theirs warn when a key compares them."""
    if flags.dtype is not None:
        flags = flags._replace(dtype=find_dtype(flags.dtype))
    return _handed_back(backend(flags, operands, initial), operands)


def _handed_back(results: Results, operands: Operands) -> Results:
    """Return the results as arrays of the library that lent the values; those of `outs` are the user's own already."""
    lender, given = operands.values[-1].lender, len(operands.outs or ())
    return results if lender is None else results[:given] + hand_back(results[given:], lender)


_backends: dict[str, Callable[..., Results]] = {}  # by device type, loaded on first use


def _load(device_type: str) -> Callable[..., Results]:
    backend: Callable[..., Results]
    if device_type == "cpu":
        from cuscan.backends.host import run as backend
    else:
        try:
            from cuscan.backends.cuda import run as backend
        except MissingDependencyError:  # CuPy has an unsupported version
            raise
        except ImportError as error:
            raise MissingDependencyError(CUPY_MISSING.format(what="x")) from error
    _backends[device_type] = backend
    return backend
