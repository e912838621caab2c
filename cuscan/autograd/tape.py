"""A tape: the steps of a function of arrays, recorded by running it once.

The derivatives of a call depend only on shapes, dtypes and flags, so similar calls have the same steps. Most of their
time on the host is spent on decisions. A tape decides nothing, and releases each array after its last use.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

Array = Any


class Gathering:
    """A function with one tuple argument, as a function of the elements of the tuple."""

    def __init__(self, function: Callable[..., Any], before: tuple[Any, ...], behind: tuple[Any, ...]) -> None:
        self.function, self.before, self.behind = function, before, behind

    def __call__(self, *arrays: Array) -> Any:
        return self.function(*self.before, arrays, *self.behind)


class Step(NamedTuple):
    """A function of the arrays in some slots, whether it returns a tuple, and the slots that no later step reads."""

    function: Callable[..., Any]
    slots: tuple[int, ...]
    many: bool
    dead: tuple[int, ...]


class Tape:
    """The steps of a function.

    Attributes:
        constants: the contents of the first slots; the inputs follow, then the results of the steps.
        steps: the steps, in order.
        results: the slots of the function's results; None if it returned None.
        replays, watched: faster ways to run it on some inputs, and the number of attempts to find one.
    """

    def __init__(self, constants: Sequence[Any], steps: Sequence[Step], results: Sequence[int | None]) -> None:
        self.constants, self.steps, self.results = constants, steps, results
        self.replays: list[Any] = []
        self.watched = 0

    def run(
        self, inputs: Sequence[Array], watch: Callable[[Step, list[Any]], None] | None = None
    ) -> tuple[Array | None, ...]:
        """Return the function's results for inputs similar to the recorded ones.

        `watch` receives each step and all slots after it, before dead slots are cleared.
        """
        slots = [*self.constants, *inputs]
        for step in self.steps:
            function, places, many, dead = step
            # Do not bind results to names: they would stay alive during the next step.
            if many:
                slots += function(*[slots[i] for i in places])
            else:
                slots.append(function(*[slots[i] for i in places]))
            if watch is not None:
                watch(step, slots)
            for i in dead:
                slots[i] = None
        return tuple([None if i is None else slots[i] for i in self.results])


class Traced:
    """An array during recording, with the array's shape, dtype and operators."""

    __array_ufunc__ = None  # otherwise a NumPy scalar treats it as an array of objects
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, recorder: Recorder, place: int, value: Array) -> None:
        self.recorder, self.place, self.value = recorder, place, value
        self.shape, self.dtype = value.shape, value.dtype


def _add_operator(name: str) -> None:
    function = getattr(operator, name)
    setattr(Traced, f"__{name}__", lambda self, *others: self.recorder.apply(function, self, *others))
    if name in ("add", "mul", "sub", "truediv"):
        setattr(Traced, f"__r{name}__", lambda self, other: self.recorder.apply(function, other, self))


for _name in ("add", "mul", "sub", "truediv", "eq", "ne", "lt", "le", "gt", "ge", "neg", "invert", "getitem"):
    _add_operator(_name)


class Recorder:
    """A namespace (see `derivatives.Namespace`) that records calls of another one."""

    def __init__(self, xp: Any) -> None:
        self._xp = xp
        self._constants: list[Any] = []
        self._steps: list[tuple[Callable[..., Any], list[int], bool, range]] = []  # each with the places of its results
        self._count = 0  # number of inputs and results

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return functools.partial(self.apply, getattr(self._xp, name))

    def add(self, array: Array) -> Traced:
        """Add an input, or a result of the last step."""
        self._count += 1
        return Traced(self, self._count - 1, array)

    def apply(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function on arrays, constants, or tuples of these, and record the step."""
        for i, argument in enumerate(arguments):
            if isinstance(argument, tuple | list) and any(isinstance(each, Traced) for each in argument):
                return self.apply(Gathering(function, arguments[:i], arguments[i + 1 :]), *argument)
        result = function(*map(_value, arguments))
        for argument in arguments:
            if isinstance(argument, Traced) and argument.value is result:
                return argument  # a no-op, not recorded
        many = isinstance(result, tuple)
        places = range(self._count, self._count + (len(result) if many else 1))
        self._steps.append((function, [*map(self._place, arguments)], many, places))
        return tuple(map(self.add, result)) if many else self.add(result)

    def _place(self, argument: Any) -> int:
        """Return the place of an argument; constants have negative places until all are known."""
        if isinstance(argument, Traced):
            return argument.place
        self._constants.append(argument)
        return -len(self._constants)

    def finish(self, results: Sequence[Traced | None]) -> tuple[Tape, tuple[Array | None, ...]]:
        """Return the tape of the recorded steps for these results, and the values of the results."""
        shown = [None if result is None else result.place for result in results]
        used = set(shown)
        steps: list[Step] = []
        for function, places, many, made in reversed(self._steps):
            dead = {place for place in (*places, *made) if place >= 0} - used
            used |= dead
            steps.append(Step(function, tuple(map(self._slot, places)), many, tuple(map(self._slot, sorted(dead)))))
        slots = [None if place is None else self._slot(place) for place in shown]
        return Tape(self._constants, steps[::-1], slots), tuple(map(_value, results))

    def _slot(self, place: int) -> int:
        return len(self._constants) + place if place >= 0 else -1 - place


def _value(argument: Any) -> Any:
    return argument.value if isinstance(argument, Traced) else argument
