"""Calls that are kept, launches and NumPy's: a call that is like an earlier one is a lookup."""

from __future__ import annotations

from typing import Any, Protocol

from cuscan.interop import ArrayView, Library, find_library
from cuscan.interop.view import Like
from cuscan.kept import Table, keep
from cuscan.request.call import Flags

Results = tuple[Any, ...]


class Repeatable(Protocol):
    """Everything about a call that the addresses and values of its arguments do not change.

    `like`: what tells its arrays from others, see `Library.liken`, once a like call came.
    """

    like: Like | None

    def run(self, arrays: tuple[Any, ...], outs: tuple[Any, ...], pointers: list[int], initial: Any) -> Results:
        """Run a call on the arrays that it reads and those that it writes, with the addresses of both."""


launches: Table[Any, Repeatable] = Table()  # those of earlier calls on GPUs
calls: Table[Any, Repeatable] = Table()  # the same in NumPy, which look up no addresses
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
    # tell a tracer of JAX, which must reach the framework, from a number.
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
