"""A function of arrays as the list of its steps, found by running it once.

Derivatives decide by shapes, dtypes and flags alone, so what they do for one call they do for all that are alike, and
most of their time on the host goes into deciding. The list decides nothing, and lets go of each array behind its last
use.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

Array = Any


class Gathering:
    """A function of a tuple, between other arguments, as one of what is in the tuple."""

    def __init__(self, function: Callable[..., Any], before: tuple[Any, ...], behind: tuple[Any, ...]) -> None:
        self.function, self.before, self.behind = function, before, behind

    def __call__(self, *arrays: Array) -> Any:
        return self.function(*self.before, arrays, *self.behind)


class Step(NamedTuple):
    """A function of what is in some slots; whether it returns a tuple of arrays; the slots that nobody reads then."""

    function: Callable[..., Any]
    slots: tuple[int, ...]
    many: bool
    dead: tuple[int, ...]


class Tape:
    """The steps of a function.

    Attributes:
        constants: what is in the first slots; the inputs follow, and then the results of the steps.
        steps: in their order.
        results: the slots of the function's results, None where it returned None.
        replays, watched: faster ways to run it on some inputs, and how often one was looked for.
    """

    def __init__(self, constants: Sequence[Any], steps: Sequence[Step], results: Sequence[int | None]) -> None:
        self.constants, self.steps, self.results = constants, steps, results
        self.replays: list[Any] = []
        self.watched = 0

    def run(
        self, inputs: Sequence[Array], watch: Callable[[Step, list[Any]], None] | None = None
    ) -> tuple[Array | None, ...]:
        """What the function returns for other inputs like those that it was found with.

        `watch` sees each step with the slots behind it, before any are cleared.
        """
        slots = [*self.constants, *inputs]
        for step in self.steps:
            function, places, many, dead = step
            # No name is given to a result: it would live on through the next step.
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
    """An array while steps are listed: it has the array's shape, dtype and operators."""

    __array_ufunc__ = None  # else a NumPy scalar takes it for an array of objects
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
    """A namespace (see `derivatives.Namespace`) that lists what is done in another one."""

    def __init__(self, xp: Any) -> None:
        self._xp = xp
        self._constants: list[Any] = []
        self._steps: list[tuple[Callable[..., Any], list[int], bool, range]] = []  # with the places of its results
        self._count = 0  # of inputs and results

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return functools.partial(self.apply, getattr(self._xp, name))

    def add(self, array: Array) -> Traced:
        """An input, or the result of the last step."""
        self._count += 1
        return Traced(self, self._count - 1, array)

    def apply(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function on arrays, numbers and the like, one of which may be a tuple of them."""
        for i, argument in enumerate(arguments):
            if isinstance(argument, tuple | list) and any(isinstance(each, Traced) for each in argument):
                return self.apply(Gathering(function, arguments[:i], arguments[i + 1 :]), *argument)
        result = function(*map(_value, arguments))
        for argument in arguments:
            if isinstance(argument, Traced) and argument.value is result:
                return argument  # nothing was done
        many = isinstance(result, tuple)
        places = range(self._count, self._count + (len(result) if many else 1))
        self._steps.append((function, [*map(self._place, arguments)], many, places))
        return tuple(map(self.add, result)) if many else self.add(result)

    def _place(self, argument: Any) -> int:
        """Constants have negative places until all are known."""
        if isinstance(argument, Traced):
            return argument.place
        self._constants.append(argument)
        return -len(self._constants)

    def finish(self, results: Sequence[Traced | None]) -> tuple[Tape, tuple[Array | None, ...]]:
        """The steps so far as those of a function with these results; and the results."""
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
