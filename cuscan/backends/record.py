"""Arrays that record the calls made on them, so that the calls can be repeated.

A small scan spends most of its time deciding which NumPy calls to make. `Noted` arrays pass through the code of any
scan and leave a `Program` behind.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from cuscan.backends.program import Array, Program, copyto, simplified


class NotNotedError(Exception):
    """A call on an array that no list of calls can express."""


def zeros(program: Program, shape: tuple[int, ...], dtype: Any) -> Noted:
    """Return zeroed memory of a program; its contents may differ from run to run."""
    return wrap(program, np.zeros(shape, dtype))


def wrap(program: Program, array: Any) -> Noted:
    """Return an array as part of a program."""
    noted = np.asarray(array).view(Noted)
    noted.program = program
    return noted


def plain(thing: Any) -> Any:
    """Return an array without its program, or a list or tuple of such arrays."""
    if isinstance(thing, Noted):
        return thing.view(np.ndarray)
    return type(thing)(map(plain, thing)) if type(thing) in (list, tuple) else thing


def opaque(function: Callable[..., Array]) -> Callable[..., Array]:
    """Return a function of arrays as one that is recorded as a single call, since it may do anything.

    The result has memory of its own, which is `out` if that is there and the call is recorded.
    """

    def call(*arrays: Array, out: Array | None = None) -> Array:
        program = next((array.program for array in arrays if isinstance(array, Noted)), None)
        if program is None:
            return np.array(function(*arrays))
        program.quiet = None  # the function may read the context
        given = plain(arrays)
        result = np.array(function(*given))
        if out is not None:
            np.copyto(plain(out), result)
            result = plain(out)
        program.note(lambda out, *read: lambda: out.__setitem__(..., function(*read)), result, *given)
        return wrap(program, result) if out is None else out

    return call


def decision(function: Callable[[Array], bool]) -> Callable[[Array], bool]:
    """Return a test of an array as one that is recorded as a single call."""

    def call(array: Array) -> bool:
        return array.program.decide(function, plain(array)) if isinstance(array, Noted) else function(array)

    return call


def alike(arrays: tuple[Array, ...]) -> tuple[Array, ...]:
    """Return all arrays as parts of one program if any of them is: the others have the same contents in all runs."""
    program = next((array.program for array in arrays if isinstance(array, Noted)), None)
    if program is None:
        return arrays
    return tuple([array if isinstance(array, Noted) else wrap(program, array.copy()) for array in arrays])


class Noted(np.ndarray[Any, Any]):
    """An array of a program. Views of it, and results of recorded calls on it, are such arrays, too."""

    program: Program

    def __array_finalize__(self, of: Any) -> None:
        if of is not None:
            self.program = getattr(of, "program", None)  # type: ignore[assignment]

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, out: Any = None, **keywords: Any) -> Any:
        program = next(a.program for a in (*inputs, *(out or ())) if isinstance(a, Noted))
        if method == "reduce" and keywords.get("axis", 0) is None and inputs[0].flags.c_contiguous:
            return ufunc.reduce(inputs[0].reshape(-1))  # equivalent, and faster
        function = getattr(ufunc, method)
        given = [plain(thing) for thing in inputs]
        if any(isinstance(thing, list | tuple) for thing in given):
            raise NotNotedError("lists of arrays")
        if out is None or out[0] is None:
            result = np.asarray(function(*given, **keywords))
            made: Any = wrap(program, result)
        else:
            made, result = out[0], plain(out[0])
            function(*given, out=result, **keywords)
        if method == "__call__" and not keywords:
            result, *given = simplified(result, *[_as_array(thing, given) for thing in given])
            if result.ndim > 1 and result.flags.c_contiguous:
                result, *given = simplified(result, *[program.spread(thing, result.shape) for thing in given])
            function = ufunc
        # A keyword costs NumPy as much time as a hundred elements, but these two ufuncs require it.
        if function is ufunc and ufunc not in (np.maximum, np.minimum):
            program.note(lambda out, *read: partial(ufunc, *read, out), result, *given, by_element=True)
        elif method == "reduce" and not keywords:
            program.note(lambda out, array: partial(function, array, 0, None, out), result, *given)
        else:
            program.note(lambda out, *read: partial(function, *read, out=out, **keywords), result, *given)
        return made

    def __array_function__(self, function: Any, types: Any, arguments: Any, keywords: Any) -> Any:
        if function in _COPIES:
            return _COPIES[function](self.program, *arguments, **keywords)
        if function in _VIEWS:
            result = function(*plain(arguments), **keywords)
            return wrap(self.program, result) if isinstance(result, np.ndarray) else result
        raise NotNotedError(function)

    def _copied(self, result: Array) -> Noted:
        """Return a new array with the elements of this one, in the same order."""
        self.program.copy(result.reshape(self.shape), plain(self))
        return wrap(self.program, result)

    def astype(self, dtype: Any, *_: Any, copy: bool = True, **__: Any) -> Any:  # type: ignore[override]
        if not copy and self.dtype == dtype:
            return self
        return self._copied(plain(self).astype(dtype, order="C"))

    def copy(self, order: Any = "C") -> Any:
        return self._copied(plain(self).copy("C"))

    def reshape(self, *shape: Any, **keywords: Any) -> Any:
        result = plain(self).reshape(*shape, **keywords)
        return wrap(self.program, result) if np.may_share_memory(self, result) else self._copied(result)

    def __getitem__(self, key: Any) -> Any:
        return super().__getitem__(_place(key))

    def __setitem__(self, key: Any, value: Any) -> None:
        target, value = plain(self)[_place(key)], plain(value)
        target[...] = value
        self.program.copy(target, value)

    def __bool__(self) -> bool:
        return self.program.decide(bool, plain(self))

    def item(self, *_: Any) -> Any:
        raise NotNotedError("item")

    __int__ = __float__ = __index__ = item


def _as_array(thing: Any, others: list[Any]) -> Any:
    """Return a number as an array of the dtype that it has in a call with the others."""
    arrays = [other for other in others if isinstance(other, np.ndarray)]
    return thing if isinstance(thing, np.ndarray) else np.asarray(thing, np.result_type(thing, *arrays))


def _place(key: Any) -> Any:
    """Return an index that gives a view even if the result has no dimensions."""
    keys = key if isinstance(key, tuple) else (key,)
    if any(isinstance(part, np.ndarray | list) for part in keys):
        raise NotNotedError("places that depend on values")
    return key if isinstance(key, str) or any(part is ... for part in keys) else (*keys, ...)


def _choose(program: Program, condition: Any, yes: Any, no: Any) -> Noted:
    chosen = np.asarray(np.where(plain(condition), plain(yes), plain(no)))
    program.copy(chosen, plain(no))
    _put_where(program, chosen, yes, plain(condition))
    return wrap(program, chosen)


def _put_where(program: Program, target: Array, value: Any, where: Array) -> None:
    def make(target: Array, value: Any, where: Array, _: Array) -> Callable[[], Any]:
        return partial(copyto, target, value, "unsafe", where)

    target, value, where = simplified(target, plain(value), where)
    program.note(make, target, value, where, target)  # elements elsewhere keep their values


def _copy(program: Program, target: Any, value: Any, casting: str = "same_kind", where: Any = None) -> None:
    np.copyto(plain(target), plain(value), where=True if where is None else plain(where))
    if where is None:
        program.copy(plain(target), plain(value))
    else:
        _put_where(program, plain(target), value, plain(where))


def _concatenate(program: Program, parts: Any) -> Noted:
    """Concatenate along the first axis."""
    given = [plain(part) for part in parts]
    whole, first = np.concatenate(given), 0
    for part in given:
        program.copy(whole[first : first + len(part)], part)
        first += len(part)
    return wrap(program, whole)


def _stack(program: Program, parts: Any) -> Noted:
    return _concatenate(program, [plain(part)[None] for part in parts])


def _repeat(program: Program, array: Any, count: int) -> Noted:
    """Repeat elements of a one-dimensional array."""
    repeated = np.repeat(plain(array), count)
    program.copy(repeated.reshape(-1, count), plain(array)[:, None])
    return wrap(program, repeated)


def _empty_like(program: Program, array: Any, dtype: Any = None, order: str = "K", shape: Any = None) -> Noted:
    return zeros(program, array.shape if shape is None else shape, dtype or array.dtype)


_COPIES: dict[Any, Callable[..., Any]] = {
    np.where: _choose,
    np.copyto: _copy,
    np.concatenate: _concatenate,
    np.stack: _stack,
    np.repeat: _repeat,
    np.empty_like: _empty_like,
    np.zeros_like: _empty_like,
}
_VIEWS = {np.broadcast_to, np.moveaxis, np.flip, np.may_share_memory, np.shares_memory}
