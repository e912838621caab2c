"""Where a request runs: on the array's GPU, or in NumPy for arrays on the CPU. A like call is a lookup."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Protocol

from cuscan.call import Flags, Operands
from cuscan.errors import MissingDependencyError
from cuscan.interop import CUPY_MISSING, ArrayView, Library, find_library, hand_back
from cuscan.interop.view import Like
from cuscan.kept import Table, keep

Results = tuple[Any, ...]


class Repeatable(Protocol):
    """Everything about a call that the addresses and values of its arguments do not change.

    `like`: what tells its arrays from others, see `Library.liken`, once a like call came.
    """

    like: Like | None

    def run(self, arrays: tuple[Any, ...], outs: tuple[Any, ...], pointers: list[int], initial: Any) -> Results:
        """Run a call on the arrays that it reads and those that it writes, with the addresses of both."""


launches: Table[Any, Repeatable] = Table()  # those of earlier calls on GPUs
calls: Table[Any, Repeatable] = Table()  # the same in NumPy, which tells no addresses
latest: Table[Any, tuple[Like, Repeatable]] = Table()  # of those that differ in little, the one that ran last


def repeat(
    flags: Flags, roles: tuple[str, ...], arrays: tuple[Any, ...], outs: tuple[Any, ...] | None, initial: Any
) -> tuple[Any, Results | None]:
    """Run a call if a like one ran before; else what like calls are to be kept by, None where they are not."""
    first = arrays[0]
    every = arrays if outs is None else arrays + outs
    library = first.library if type(first) is ArrayView else find_library(first, roles[0])
    if library is None:
        return None, None
    short, before = None, None
    mode = library.mode(first)
    if mode is not None:
        short = flags, roles, initial is None, len(every), first.shape, first.dtype, mode
        try:
            before = latest.get(short)
        except TypeError:  # an argument that cannot be hashed
            return None, None
        if before is not None:
            pointers = before[0](every)
            if pointers is not None:
                return None, before[1].run(arrays, outs or (), pointers, initial)
    found = library.look(every)
    if found is None:
        return None, None
    facts, pointers = found
    # Flat, as facts are: a tuple that is kept in a key costs the garbage collector time. The types of initial values
    # tell those that a framework has to see: a tracer of JAX, beside NumPy arrays.
    key = *flags, roles, _types_of(initial), outs is None, *facts
    try:
        launch = (launches if pointers else calls).get(key)
    except TypeError:  # an argument that cannot be hashed
        return None, None
    if launch is None:
        return key, None
    if short is not None:
        _put_first(launch, library, every, short, before)
    return key, launch.run(arrays, outs or (), pointers, initial)


def _types_of(initial: Any) -> Any:
    return tuple(map(type, initial)) if type(initial) is tuple else type(initial)


def find(flags: Flags, roles: tuple[str, ...], arrays: tuple[Any, ...], initial: Any) -> Repeatable | None:
    """What is kept of calls like one without `out`, on arrays of a library that keeps them."""
    library = find_library(arrays[-1], roles[-1])
    found = library.look(arrays) if library else None
    return None if found is None else launches.get((*flags, roles, _types_of(initial), True, *found[0]))


def _put_first(launch: Repeatable, library: Library, arrays: tuple[Any, ...], short: Any, before: Any) -> None:
    """Have `latest` show the launch of a call that is found by its facts."""
    if launch.like is None or (before is not None and launch.like is before[0]):  # that is of other modes
        launch.like = library.liken(arrays)
    if launch.like is not None:
        keep(latest, short, (launch.like, launch))


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
    results = backend(flags, operands, initial)
    for view in operands.views:
        if view.lender is not None:
            return _handed_back(results, operands)
    return results


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
