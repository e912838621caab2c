"""Run a request on the buffers that XLA passes while its program runs.

A runner is called with XLA's context, the buffers of the results, of the last states and of the carry, and the buffers
that it reads, in the order of the roles. It does the work or queues it on XLA's stream, and returns None.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from cuscan.backends import host
from cuscan.errors import MissingDependencyError
from cuscan.interop import CUPY_MISSING
from cuscan.request import ScanRequest
from cuscan.request.initial import check_start

Array = np.ndarray[Any, Any]
Runner = Callable[..., None]


def make_runner(device: str, request: ScanRequest, roles: tuple[str, ...], initial: Any, *, validate: bool) -> Runner:
    """Return a runner of a request on "cpu" or "cuda"; `validate`: whether to check offsets on a GPU."""
    if device == "cpu":
        return OnHost(request, roles, initial)
    try:
        from cuscan.backends.xla_gpu import OnGpu
    except MissingDependencyError:  # CuPy has an unsupported version
        raise
    except ImportError as error:
        raise MissingDependencyError(CUPY_MISSING.format(what="x")) from error
    return OnGpu(request, roles, initial, validate)


class OnHost:
    """Runs a request in NumPy."""

    def __init__(self, request: ScanRequest, roles: tuple[str, ...], initial: Any) -> None:
        self._request, self._roles = request, roles
        self._start = check_start(initial, request.op, request.result.dtype)
        self._prepared = host.Prepared(request)

    def __call__(self, context: Any, written: tuple[Any, ...], *read: Any) -> None:
        request = self._request
        inputs = host.inputs_of(request, self._roles, list(map(_as_numpy, read)))
        outs = [_as_numpy(buffer) for buffer in written]
        count = 0 if request.only_carry else len(request.results)
        done = host.evaluate(request, inputs, self._start, outs[:count], self._prepared)
        behind = ([] if request.last is None else [done.last]) + list(done.carry)
        for out, values in zip(outs[count:], behind, strict=True):
            out[...] = values


def _as_numpy(buffer: Any) -> Array:
    array = np.asarray(buffer)
    return array.view(np.uint16) if array.dtype.name == "bfloat16" else array
