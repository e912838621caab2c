"""A program: a list of NumPy calls, recorded once and then run repeatedly on the same memory.

A run looks up, allocates and decides nothing, and each call has the form that is fastest in NumPy.
"""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided

Array = np.ndarray[Any, Any]

# NumPy's own function, which does not look for arrays of other libraries among its arguments.
copyto: Callable[..., None] = getattr(np.copyto, "__wrapped__", np.copyto)

MOST_APART = 4  # elements of an inner axis, at most, for a copy in as many calls
LOOPS = 32  # loops over an inner axis that take as long as a call
MOST_WORK = 1000  # of NumPy, to find whether arrays overlap or merely interleave; beyond it they count as overlapping


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
        self.note(_copying, *simplified(target, np.asarray(value)), by_element=True)

    def spread(self, array: Array, shape: tuple[int, ...]) -> Array:
        """Return an operand as contiguous memory of a shape: a copy and a flat call take less time than one in 2-D."""
        if array.size == 1 or (array.shape == shape and array.flags.c_contiguous):
            return array
        whole = np.empty(shape, array.dtype)
        self.copy(whole, np.broadcast_to(array, shape))
        return whole

    def decide(self, test: Callable[[Array], bool], array: Array) -> bool:
        """Return the outcome of a test, and record it: a run whose outcome differs stops there."""
        found = test(array)
        self._steps.append(Step(lambda _, array: partial(_expect, test, array, found), None, (array,)))
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
        steps = [part for step in _merged(steps) for part in _taken_apart(_widened(step))]
        self._calls = [step.make(step.written, *_read_by(step)) for step in steps]
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


def _read_by(step: Step) -> list[Any]:
    """Return what a call reads: if it works in place, the very array that it writes, which NumPy recognises at once."""
    written = step.written
    return [written if written is not None and _is_same(array, written) else array for array in step.read]


def _quiet_context() -> contextvars.Context | None:
    """Return a context in which NumPy does not warn; None if NumPy's error state belongs to the thread instead."""
    before, context = np.seterr(all="warn"), contextvars.copy_context()
    context.run(np.seterr, all="ignore")
    is_apart = np.geterr()["invalid"] == "warn"
    np.seterr(**before)
    return context if is_apart else None


def _copying(target: Array, value: Any) -> Callable[[], Any]:
    return partial(target.__setitem__, ..., value)  # half the time of np.copyto


def _separate(steps: list[Step]) -> None:
    """If a call works in place, let the call that wrote there write elsewhere: NumPy is slower in place."""
    for i, step in enumerate(steps):
        written = step.written
        if not step.by_element or written is None or not any(_is_same(array, written) for array in step.read):
            continue
        j = next((j for j in reversed(range(i)) if _touches(steps[j], written)), None)
        if j is None or not (steps[j].by_element and _is_same(steps[j].written, written)):
            continue
        if not any(_overlap(array, written) for array in steps[j].read):
            between = np.empty_like(written)
            steps[j] = steps[j]._replace(written=between)
            read = tuple([between if _is_same(array, written) else array for array in step.read])
            steps[i] = step._replace(read=read)


def _merged(steps: list[Step]) -> list[Step]:
    """Merge copies between equally distant places of the same memory: one more axis takes less time than a call."""
    runs: list[list[Step]] = []
    for step in steps:
        if runs and _extends(runs[-1], step):
            runs[-1].append(step)
        else:
            runs.append([step])
    return [run[0] if len(run) == 1 else _whole(run) for run in runs]


def _extends(run: list[Step], step: Step) -> bool:
    """Return whether a copy goes between the next places in a run of copies, and none reads what another writes."""
    first, target = run[0], step.written
    if first.make is not _copying or step.make is not _copying or target is None:
        return False
    if any(map(_differ, _operands(first), _operands(step))):
        return False
    if any(_touches(before, target) or _overlap(before.written, step.read[0]) for before in run):
        return False
    return len(run) == 1 or _distances(run[-1], step) == _distances(*run[:2])


def _whole(run: list[Step]) -> Step:
    """Return a run of copies as one."""
    count, (target, value) = len(run), _operands(run[0])
    value = np.broadcast_to(value, target.shape)
    places = zip((target, value), _distances(*run[:2]), strict=True)
    target, value = (as_strided(a, (count, *a.shape), (distance, *a.strides)) for a, distance in places)
    return run[0]._replace(written=target, read=(value,))


def _widened(step: Step) -> Step:
    """Let a copy move neighbours of the last axis as one item if they are few: NumPy runs a loop per row."""
    target = step.written
    if step.make is not _copying or target is None or target.ndim < 2 or target.dtype.hasobject:
        return step
    operands, item = _operands(step), _WIDE.get(target.shape[-1] * target.itemsize)
    if item is None or operands[1].shape != target.shape or operands[1].dtype != target.dtype:
        return step
    for array in operands:
        places = array.ctypes.data, *array.strides[:-1]
        if array.strides[-1] != array.itemsize or any(place % item.alignment for place in places):
            return step
    wide: list[Array] = [array.view(item)[..., 0] for array in operands]
    return step._replace(written=wide[0], read=(wide[1],))


_WIDE = {np.dtype(item).itemsize: np.dtype(item) for item in ("u2", "u4", "u8", "c16")}  # copies keep all bits


def _taken_apart(step: Step) -> list[Step]:
    """Return a copy as one for each index of its inner axis, over which NumPy loops, if that is short."""
    target = step.written
    if step.make is not _copying or target is None or _overlap(target, step.read[0]):
        return [step]
    value = np.broadcast_to(step.read[0], target.shape)
    axes = sorted((i for i in range(target.ndim) if target.shape[i] > 1), key=lambda i: abs(target.strides[i]))
    if len(axes) < 2 or value.strides[axes[0]] == target.strides[axes[0]] == target.itemsize:
        return [step]
    count, loops = target.shape[axes[0]], target.size // target.shape[axes[0]]
    if count > MOST_APART or count >= target.shape[axes[1]] or loops < count * LOOPS:
        return [step]
    parts = [np.moveaxis(array, axes[0], 0) for array in (target, value)]
    return [step._replace(written=parts[0][i, ...], read=(parts[1][i, ...],)) for i in range(count)]


def _operands(copy: Step) -> list[Array]:
    return [copy.written, *copy.read]


def _distances(copy: Step, other: Step) -> list[int]:
    pairs = zip(_operands(copy), _operands(other), strict=True)
    return [array.ctypes.data - before.ctypes.data for before, array in pairs]


def _differ(one: Array, other: Array) -> bool:
    """Return whether two arrays are not views of one memory that differ in place alone."""
    layouts = [(array.shape, array.strides, array.dtype, _owner(array)) for array in (one, other)]
    return layouts[0] != layouts[1]


def _touches(step: Step, memory: Array) -> bool:
    """Return whether a call reads or writes some of this memory."""
    return any(_overlap(array, memory) for array in (step.written, *step.read))


def _overlap(one: Any, other: Any) -> bool:
    if not (isinstance(one, np.ndarray) and isinstance(other, np.ndarray)):
        return False
    # NumPy's stubs allow 0 and -1 alone.
    return _owner(one) == _owner(other) and np.may_share_memory(one, other, MOST_WORK)  # type: ignore[arg-type]


def _is_same(one: Any, other: Array) -> bool:
    """Return whether two arrays are the same view of the same memory."""
    return isinstance(one, np.ndarray) and one.__array_interface__ == other.__array_interface__


class _OtherwiseError(Exception):
    """A decision differs from the recorded one."""


def _expect(test: Callable[[Array], bool], array: Array, found: bool) -> None:
    if test(array) is not found:
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
