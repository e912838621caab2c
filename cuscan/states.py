"""What an operator combines, in NumPy: a number, or a few fields of a structured array."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

Array = np.ndarray[Any, Any]
Parts = tuple[Any, ...]  # numbers or arrays, one a field


class States(Protocol):
    """How elements become states, and states results. The types are those of the operator's functor in C++."""

    def dtype(self, number: Any) -> np.dtype[Any]:
        """The dtype of states over a number type."""

    def lift(self, *values: Array) -> Parts:
        """The state of an element."""

    def start(self, *initial: Any) -> Parts:
        """The user's initial value as a state."""

    def lower(self, states: Array) -> tuple[Array, ...]:
        """The results of states."""


class _Scalar:
    """A number is its own state."""

    def dtype(self, number: Any) -> np.dtype[Any]:
        scalar: np.dtype[Any] = np.dtype(number)
        return scalar

    def lift(self, *values: Array) -> Parts:
        return values

    def start(self, *initial: Any) -> Parts:
        return initial

    def lower(self, states: Array) -> tuple[Array, ...]:
        return (states,)


SCALAR = _Scalar()


class Fields:
    """Named fields: numbers of the operator's type, but for those with a `fixed` dtype."""

    def __init__(
        self,
        names: Sequence[str],
        *,
        fixed: Mapping[str, str] | None = None,
        lift: Callable[..., Parts] | None = None,
        start: Callable[..., Parts] | None = None,
        lower: Callable[[Array], tuple[Array, ...]] | None = None,
    ) -> None:
        self.names = tuple(names)
        self.fixed = dict(fixed or {})
        self._lift = lift or (lambda *values: values)
        self._start = start or self._lift
        self._lower = lower or (lambda states: tuple(states[name] for name in self.names))

    def dtype(self, number: Any) -> np.dtype[Any]:
        return np.dtype([(name, self.fixed.get(name, number)) for name in self.names], align=True)

    def lift(self, *values: Array) -> Parts:
        return self._lift(*values)

    def start(self, *initial: Any) -> Parts:
        return self._start(*initial)

    def lower(self, states: Array) -> tuple[Array, ...]:
        return self._lower(states)


def make_states(dtype: np.dtype[Any], parts: Parts, shape: tuple[int, ...]) -> Array:
    """An array of states from their parts, which broadcast to `shape`."""
    states = np.empty(shape, dtype)
    for name, part in zip(dtype.names or ("",), parts, strict=True):
        # By way of an array: NumPy refuses Python integers that do not fit, where C++ wraps.
        place = states[name] if name else states
        place[...] = np.asarray(part).astype(place.dtype)
    return states
