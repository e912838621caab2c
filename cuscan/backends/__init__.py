"""Where a request runs: on the array's GPU, or in NumPy for arrays on the CPU."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from cuscan.errors import MissingDependencyError
from cuscan.interop import CUPY_MISSING, hand_back
from cuscan.request.call import Flags, Operands, find_dtype

Results = tuple[Any, ...]


def release_memory() -> int:
    """Give the GPU memory back that is kept from call to call; returns how many bytes.

    It goes to CUDA's allocator, in the order of the streams that used it. Calls that are still at work keep theirs, and
    so do calls that were captured into graphs. The next call allocates anew: 1 MiB a stream, or as much as it needs.
    """
    workspace = sys.modules.get("cuscan.backends.workspace")  # which is not there before the first call on a GPU
    released: int = workspace.release() if workspace else 0
    return released


def run(flags: Flags, operands: Operands, initial: Any) -> Results:
    """Run one call on the device of its arrays; returns the results, and the last states if they are asked for."""
    device = operands.views[0].kind.device.type
    backend = _backends.get(device) or _load(device)
    for view in operands.views:
        if view.lender is not None:
            return _run_on_lent(backend, flags, operands, initial)
    return backend(flags, operands, initial)


def _run_on_lent(backend: Callable[..., Results], flags: Flags, operands: Operands, initial: Any) -> Results:
    """The same on arrays of other libraries; their dtypes stand in no table, as some warn where they are compared."""
    if flags.dtype is not None:
        flags = flags._replace(dtype=find_dtype(flags.dtype))
    return _handed_back(backend(flags, operands, initial), operands)


def _handed_back(results: Results, operands: Operands) -> Results:
    """The results as arrays of the library that lent the values; those of `outs` are the user's own already."""
    lender, given = operands.values[-1].lender, len(operands.outs or ())
    return results if lender is None else results[:given] + hand_back(results[given:], lender)


_backends: dict[str, Callable[..., Results]] = {}  # by device type, those that were needed so far


def _load(device_type: str) -> Callable[..., Results]:
    backend: Callable[..., Results]
    if device_type == "cpu":
        from cuscan.backends.host import run as backend
    else:
        try:
            from cuscan.backends.cuda import run as backend
        except MissingDependencyError:  # of another version
            raise
        except ImportError as error:
            raise MissingDependencyError(CUPY_MISSING.format(what="x")) from error
    _backends[device_type] = backend
    return backend
