"""Stored calls, on GPUs and in NumPy: a call that is similar to an earlier one costs one lookup."""

from __future__ import annotations

from typing import Any, Protocol

from cuscan.interop import ArrayView, Library, find_library
from cuscan.interop.view import Like
from cuscan.kept import Table, keep
from cuscan.request.call import Flags

Results = tuple[Any, ...]


class Repeatable(Protocol):
    """A call, with everything that addresses and values of its arguments do not change.

    `like`: the function that recognises its arrays (see `Library.liken`), set once a similar call has run.
    """

    like: Like | None

    def run(self, arrays: tuple[Any, ...], outs: tuple[Any, ...], pointers: list[int], initial: Any) -> Results:
        """Run a call on the arrays that it reads and those that it writes, with the addresses of both."""


launches: Table[Any, Repeatable] = Table()  # of earlier calls on GPUs
calls: Table[Any, Repeatable] = Table()  # of earlier calls in NumPy, which need no addresses
latest: Table[Any, tuple[Like, Repeatable]] = Table()  # the last launch for each short key


def repeat(
    flags: Flags, roles: tuple[str, ...], arrays: tuple[Any, ...], outs: tuple[Any, ...] | None, initial: Any
) -> tuple[Any, Results | None]:
    """Run a call if a similar one ran before; otherwise return the key for storing it, or None if it is not stored."""
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
        except TypeError:  # an unhashable argument
            return None, None
        if before is not None:
            pointers = before[0](every)
            if pointers is not None:
                return None, before[1].run(arrays, outs or (), pointers, initial)
    found = library.look(every)
    if found is None:
        return None, None
    facts, pointers = found
    # Flat, as facts are: a tuple inside a stored key costs the garbage collector time. The types of initial values
    # distinguish a tracer of JAX, which must reach the framework, from a number.
    key = *flags, roles, _types_of(initial), outs is None, *facts
    try:
        launch = (launches if pointers else calls).get(key)
    except TypeError:  # an unhashable argument
        return None, None
    if launch is None:
        return key, None
    if short is not None:
        _put_first(launch, library, every, short, before)
    return key, launch.run(arrays, outs or (), pointers, initial)


def _types_of(initial: Any) -> Any:
    return tuple(map(type, initial)) if type(initial) is tuple else type(initial)


def find(flags: Flags, roles: tuple[str, ...], arrays: tuple[Any, ...], initial: Any) -> Repeatable | None:
    """Return the stored launch of calls similar to this one without `out`, or None."""
    library = find_library(arrays[-1], roles[-1])
    found = library.look(arrays) if library else None
    return None if found is None else launches.get((*flags, roles, _types_of(initial), True, *found[0]))


def _put_first(launch: Repeatable, library: Library, arrays: tuple[Any, ...], short: Any, before: Any) -> None:
    """Store a launch, which was found by its facts, in `latest`."""
    if launch.like is None or (before is not None and launch.like is before[0]):  # `like` is for other modes
        launch.like = library.liken(arrays)
    if launch.like is not None:
        keep(latest, short, (launch.like, launch))
