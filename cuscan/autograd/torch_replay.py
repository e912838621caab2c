"""Replays: tapes of backwards on a GPU as launches that only need addresses. Importing this module imports CuPy.

What a tape does for tensors of given strides and alignments, it does for all similar tensors, so each scan repeats the
same launch. A view is no step: a launch takes its address as an offset from the memory that it views. New memory is
aligned. The steps become a Python function (`torch_lines.py`), since iterating over a list takes longer than half of
them.
"""

from __future__ import annotations

from typing import Any

import torch

from cuscan.autograd.tape import Gathering, Step, Tape
from cuscan.autograd.torch_lines import Move, Replay, write
from cuscan.autograd.torch_numbers import with_view
from cuscan.backends import repeats
from cuscan.backends.cuda import CallLaunch, Place
from cuscan.derivatives import Call
from cuscan.interop.torch import LIBRARY
from cuscan.specs import ALIGNMENT

Array = Any
Inputs = tuple[Array, ...]
Results = tuple[Array | None, ...]

_MOST = 4  # replays per tape: its tensors have few combinations of strides and alignments


def run(tape: Tape, inputs: Inputs) -> Results:
    """Return the results of a tape, by a replay if similar tensors came before; derivatives of it are not recorded."""
    for replay in tape.replays:
        results: Results | None = replay(inputs)
        if results is not None:
            return results
    if tape.watched == _MOST or LIBRARY.look(inputs) is None:
        return tape.run(inputs)
    tape.watched += 1
    watcher = _Watcher(tape, inputs)
    results = tape.run(inputs, watcher.watch)
    found = watcher.finish()
    if found is not None:
        tape.replays.append(found)
    return results


class _Watcher:
    """Collects the moves of a replay while a tape runs.

    Attributes:
        places: for each slot, the slot that owns its memory, and the offset from there in bytes.
    """

    def __init__(self, tape: Tape, inputs: Inputs) -> None:
        self._tape, self._moves = tape, list[Move]()
        self._places: list[Place] = [(i, 0) for i in range(len(tape.constants) + len(inputs))]
        self._inputs, self._like = len(inputs), LIBRARY.liken(inputs)
        self._works = self._like is not None and not any(isinstance(each, torch.Tensor) for each in tape.constants)

    def watch(self, step: Step, slots: list[Any]) -> None:
        """Observe a step of the tape; its results are in the last slots."""
        if not self._works:
            return
        made, arguments, call = len(self._places), [slots[i] for i in step.slots], _call_of(step)
        self._places += [(i, 0) for i in range(made, len(slots))]
        move, found = Move(step.function, step.slots, tuple(range(made, len(slots)))), None
        if call is not None:
            found = self._with_launch(move, call, tuple(arguments))
        elif not step.many:
            found = self._as_function(move, arguments, slots[made])
        new = slots[made:] if found is not None and found.view_of is None else []
        self._works = found is not None and all(each.data_ptr() % ALIGNMENT == 0 for each in new)
        self._moves += [found] if found else []

    def _with_launch(self, move: Move, call: Call, arguments: tuple[Any, ...]) -> Move | None:
        arrays = with_view(call, arguments)
        launch = repeats.find(call.flags, call.roles, arrays, call.initial)
        if not isinstance(launch, CallLaunch) or not launch.only_queues:
            return None
        start, numbers = launch.passed(arrays, call.initial)
        sources = [self._places[i] for i in (*move.slots, *move.made)]
        return move._replace(launch=launch, sources=tuple(sources), start=start, numbers=numbers)

    def _as_function(self, move: Move, arguments: list[Any], result: Array) -> Move:
        alike = []
        for i, argument in zip(move.slots, arguments, strict=True):
            if not isinstance(argument, torch.Tensor):
                continue
            if argument.untyped_storage().data_ptr() == result.untyped_storage().data_ptr():
                owner, distance = self._places[i]
                self._places[move.made[0]] = owner, distance + result.data_ptr() - argument.data_ptr()
                return move._replace(view_of=owner)
            facts = ((each.dtype, each.shape, each.stride()) for each in (argument, result))
            alike += [i] if next(facts) == next(facts) else []
        return move._replace(alike=tuple(alike))

    def finish(self) -> Replay | None:
        """Return the replay, or None if there can be none."""
        devices = {move.launch.device for move in self._moves if move.launch is not None}
        if not self._works or self._like is None or len(devices) != 1:
            return None
        return write(self._tape, self._inputs, self._moves, self._like, devices.pop())


def _call_of(step: Step) -> Call | None:
    """Return the call of a step that is a scan, or None."""
    function = step.function
    first = function.before[0] if isinstance(function, Gathering) and function.before else None
    return first if isinstance(first, Call) else None
