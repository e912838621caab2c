"""The states that operators combine, in NumPy: numbers, or structured arrays of a few fields."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

Array = np.ndarray[Any, Any]
Parts = tuple[Any, ...]  # numbers or arrays, one per field


class States(Protocol):
    """Conversions of elements to states, and of states to results; types match the operator's C++ functor."""

    def dtype(self, number: Any) -> np.dtype[Any]:
        """Return the dtype of states over a number type."""

    def lift(self, *values: Array) -> Parts:
        """Return the state of an element."""

    def start(self, *initial: Any) -> Parts:
        """Return the user's initial value as a state."""

    def lower(self, states: Array) -> tuple[Array, ...]:
        """Return the results of states."""


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
    """States of named fields: numbers of the operator's type, except for those with a `fixed` dtype."""

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
    """Return an array of states made of parts that broadcast to `shape`."""
    states = np.empty(shape, dtype)
    for name, part in zip(dtype.names or ("",), parts, strict=True):
        # Convert through an array: NumPy rejects Python integers that do not fit, whereas C++ wraps.
        place = states[name] if name else states
        place[...] = np.asarray(part).astype(place.dtype)
    return states
