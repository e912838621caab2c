"""A program: a list of NumPy calls, recorded once and then run repeatedly on the same memory.

A run looks up, allocates and decides nothing, and each call has the form that is fastest in NumPy.
"""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, Any]


class Step(NamedTuple):
    """A recorded call. `make(written, *read)` returns it without arguments; a decision writes nothing.

    `by_element`: each element that it writes depends only on elements at the same index.
    """

    make: Callable[..., Callable[[], Any]]
    written: Array | None
    read: tuple[Any, ...]
    by_element: bool = False


class Program:
    """Recorded calls in order, and the decisions on values between them."""

    def __init__(self) -> None:
        self._steps: list[Step] = []
        self._calls: list[Callable[[], Any]] = []
        self.quiet = _quiet_context()  # None if calls may read the context

    def note(self, make: Callable[..., Any], written: Array, *read: Any, by_element: bool = False) -> None:
        """Record a call."""
        self._steps.append(Step(make, written, read, by_element))

    def copy(self, target: Array, value: Any) -> None:
        """Record a copy."""
        self.note(_copying, *simplified(target, value), by_element=True)

    def decide(self, flag: Array) -> bool:
        """Return the truth of a flag, and record it: a run whose flag differs stops there."""
        found = bool(flag)
        self._steps.append(Step(lambda _, flag: partial(_expect, flag.item, found), None, (flag,)))
        return found

    def finish(self, results: Iterable[Array]) -> None:
        """End the recording, and drop calls that affect neither decisions nor results."""
        needed: dict[int, list[Array]] = {}
        steps: list[Step] = []

        def need(arrays: Iterable[Any]) -> None:
            for array in arrays:
                if isinstance(array, np.ndarray):
                    needed.setdefault(_owner(array), []).append(array)

        need(results)
        for step in reversed(self._steps):
            written = step.written
            if written is None or any(np.may_share_memory(written, a) for a in needed.get(_owner(written), ())):
                steps.append(step)
                need(step.read)
        steps.reverse()
        _separate(steps)
        self._calls = [step.make(step.written, *step.read) for step in steps]
        self._steps = []

    def run(self) -> bool:
        """Repeat all calls; return False as soon as a flag differs."""
        try:
            if self.quiet is None:
                with np.errstate(all="ignore"):
                    self._make_calls()
            else:
                self.quiet.run(self._make_calls)
        except _OtherwiseError:
            return False
        return True

    def _make_calls(self) -> None:
        for call in self._calls:
            call()


def _quiet_context() -> contextvars.Context | None:
    """Return a context in which NumPy does not warn; None if NumPy's error state belongs to the thread instead."""
    before, context = np.seterr(all="warn"), contextvars.copy_context()
    context.run(np.seterr, all="ignore")
    is_apart = np.geterr()["invalid"] == "warn"
    np.seterr(**before)
    return context if is_apart else None


def _copying(target: Array, value: Any) -> Callable[[], Any]:
    return partial(np.copyto, target, value, "unsafe")


def _separate(steps: list[Step]) -> None:
    """If a call works in place, let the previous call write elsewhere: NumPy is slower in place."""
    for i in range(1, len(steps)):
        before, step = steps[i - 1], steps[i]
        written = step.written
        if not (step.by_element and before.by_element and written is not None and _is_same(before.written, written)):
            continue
        if any(_is_same(array, written) for array in step.read) and not any(_is_same(a, written) for a in before.read):
            between = np.empty_like(written)
            steps[i - 1] = before._replace(written=between)
            read = tuple([between if _is_same(array, written) else array for array in step.read])
            steps[i] = step._replace(read=read)


def _is_same(one: Any, other: Array) -> bool:
    """Return whether two arrays are the same view of the same memory."""
    return isinstance(one, np.ndarray) and one.__array_interface__ == other.__array_interface__


class _OtherwiseError(Exception):
    """A decision differs from the recorded one."""


def _expect(flag: Callable[[], bool], found: bool) -> None:
    if flag() is not found:
        raise _OtherwiseError


def _owner(array: Array) -> int:
    while isinstance(array.base, np.ndarray):
        array = array.base
    return id(array)


def simplified(*arrays: Any) -> tuple[Any, ...]:
    """Return the operands of an elementwise call, the written one first, without axes that make NumPy slower."""
    shape = arrays[0].shape
    numbers = [not isinstance(array, np.ndarray) or (array.size == 1 and array.shape != shape) for array in arrays]
    if any(not number and array.shape != shape for array, number in zip(arrays, numbers, strict=True)):
        return arrays
    is_flat = all(number or array.flags.c_contiguous for array, number in zip(arrays, numbers, strict=True))

    def simple(array: Any, is_number: bool) -> Any:
        if is_number:
            return array.reshape(()) if isinstance(array, np.ndarray) else array
        return array.reshape(-1) if is_flat else array.squeeze()

    return tuple(map(simple, arrays, numbers))
