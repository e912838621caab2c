"""Write the moves of a replay as a Python function; see `torch_replay.py`."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from cuscan.autograd.tape import Tape
from cuscan.backends import cuda, workspace
from cuscan.backends.cuda import CallLaunch, Place
from cuscan.interop.torch import LIBRARY
from cuscan.interop.view import Device, Like

Replay = Callable[[tuple[Any, ...]], tuple[Any, ...] | None]  # returns None if the inputs do not match

_IN_PLACE = {operator.mul: operator.imul, operator.add: operator.iadd}  # for these, either argument may hold the result


class Move(NamedTuple):
    """A step of a tape: a launch if it is a scan, otherwise its function.

    Attributes:
        function: the function of the step.
        slots: the slots of its arguments.
        made: the slots of its results.
        view_of: the slot whose memory the result views, or None.
        alike: the slots of arguments whose memory the result could reuse.
        launch, sources, start, numbers: the launch and its arguments; see `Launch.queue`.
    """

    function: Callable[..., Any]
    slots: tuple[int, ...]
    made: tuple[int, ...]
    view_of: int | None = None
    alike: tuple[int, ...] = ()
    launch: CallLaunch | None = None
    sources: tuple[Place, ...] = ()
    start: bytes = b""
    numbers: tuple[bytes, ...] = ()


class _Lines:
    """The text of a function, and the values that it uses by name; functions of many shapes have the same text."""

    def __init__(self) -> None:
        self.text: list[str] = []
        self.values: list[Any] = []

    def name(self, value: Any) -> str:
        """Add a value and return its name."""
        self.values.append(value)
        return f"v{len(self.values) - 1}"


def write(tape: Tape, inputs: int, moves: Sequence[Move], like: Like, device: Device) -> Replay:
    """Return a function that runs a tape's moves on a device, for inputs that match `like` (see `Library.liken`)."""
    lines, first = _Lines(), len(tape.constants)
    names = {i: lines.name(constant) for i, constant in enumerate(tape.constants)}
    names |= {i: f"t{i}" for i in (*range(first, first + inputs), *(i for move in moves for i in move.made))}
    kept = _with_dead(tape, moves)
    _begin(lines, range(first, first + inputs), like, device, [move.launch for move, _ in kept if move.launch])
    views = {move.view_of for move, _ in kept}
    own = {i for move, _ in kept if move.view_of is None for i in move.made} - views
    read = {i for move, _ in kept for i, _ in move.sources}
    for move, dead in kept:
        if move.launch is None:
            _call(lines, names, move, dead & own)
        else:
            _queue(lines, move, move.launch, first)
        lines.text += [f"p{i} = t{i}.data_ptr()" for i in move.made if i in read and move.launch is None]
        gone = [names[i] for i in sorted(dead) if i >= first + inputs]  # the caller holds the inputs
        lines.text += [f"del {', '.join(gone)}"] if gone else []
    results = "".join("None, " if i is None else f"{names[i]}, " for i in tape.results)
    lines.text.append(f"return ({results})")
    made: Replay = _compiled("\n  ".join(lines.text), len(lines.values))(*lines.values)
    return made


@functools.lru_cache(1024)
def _compiled(text: str, count: int) -> Callable[..., Any]:
    values = ", ".join(f"v{i}" for i in range(count))
    space: dict[str, Any] = {}
    exec(f"def bind({values}):\n def run(inputs):\n  {text}\n return run", space)
    bind: Callable[..., Any] = space["bind"]
    return bind


def _begin(lines: _Lines, inputs: Sequence[int], like: Like, device: Device, launches: Sequence[CallLaunch]) -> None:
    """Write code that checks the inputs, makes their device current, and finds its stream and a workspace."""
    where, ordinal = lines.name(device), device.ordinal
    lines.text += [f"pointers = {lines.name(like)}(inputs)", "if pointers is None:", " return None"]
    lines.text += [f"if {lines.name(cuda.current_device)}() != {ordinal}:"]
    lines.text += [f" return {lines.name(cuda.within)}({ordinal}, run, inputs)"]
    for kind, given in (("t", "inputs"), ("p", "pointers")):
        lines.text.append(f"{''.join(f'{kind}{i}, ' for i in inputs)} = {given}")
    lines.text += [f"stream = {lines.name(LIBRARY.stream)}({where})", f"{lines.name(cuda.want_context)}({ordinal})"]
    nbytes = max([launch.workspace_bytes for launch in launches], default=0)
    if nbytes:  # held until all launches are queued
        found = f"{lines.name(workspace.find)}({lines.name(nbytes)}, {lines.name(LIBRARY)}, {where}, stream)"
        lines.text.append(f"states = {found}")


def _with_dead(tape: Tape, moves: Sequence[Move]) -> list[tuple[Move, set[int]]]:
    """Return the necessary moves, each with the slots that no later move reads."""
    used = {i for i in tape.results if i is not None}
    found: list[tuple[Move, set[int]]] = []
    for move in reversed(moves):
        if move.view_of is not None and not used.intersection(move.made):
            continue  # launches compute addresses of views
        touched = {*move.made, *(move.slots if move.launch is None else [i for i, _ in move.sources])}
        dead = {i for i in touched if i >= len(tape.constants)} - used
        used |= dead
        found.append((move, dead))
    return found[::-1]


def _queue(lines: _Lines, move: Move, launch: CallLaunch, first: int) -> None:
    """Write code that allocates the results and queues the launch."""
    for i, make in zip(move.made, launch.makers, strict=True):
        lines.text += [f"t{i} = {lines.name(make)}()", f"p{i} = t{i}.data_ptr()"]
    sources = launch.place(move.sources)
    given = [f"p{i} + {lines.name(far)}" if far else f"p{i}" for i, far in sources]
    given = [text if i >= first else "0" for text, (i, _) in zip(given, sources, strict=True)]  # numbers have none
    if launch.preparations:
        passed = f"{lines.name(move.start)}, {lines.name(move.numbers)}"
        lines.text.append(f"{lines.name(launch.queue)}(stream, [{', '.join(given)}], {passed})")
        return
    for place, number in zip(launch.numbers, move.numbers, strict=True):
        given[place] = lines.name(number)
    given += ["states.pointer" if launch.workspace_bytes else "0", lines.name(move.start)]
    queue = launch.kernel.bind(launch.grid, launch.geometry)
    lines.text.append(f"{lines.name(queue)}(stream, {', '.join(given)})")


def _call(lines: _Lines, names: dict[int, str], move: Move, free: set[int]) -> None:
    """Write code that calls a function; the result may reuse the memory of an argument that no later move reads."""
    function, arguments, [made] = move.function, [names[i] for i in move.slots], move.made
    places = [names[i] for i in move.alike if i in free]
    if places and function in _IN_PLACE:
        function = _IN_PLACE[function]
        arguments.remove(places[0])
        arguments.insert(0, places[0])
    lines.text.append(f"t{made} = {lines.name(function)}({', '.join(arguments)})")
