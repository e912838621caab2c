"""What autograd stores for a call: the tensors that its derivatives read, and data shared by similar calls."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from cuscan.autograd.tape import Recorder, Tape
from cuscan.autograd.torch_numbers import to_number
from cuscan.derivatives import Call, check_differentiable, kept, pullback, reads_result
from cuscan.dtypes import INEXACT, DType
from cuscan.interop.torch import from_torch, is_followed
from cuscan.kept import Table, keep
from cuscan.request.call import BESIDE, find_dtype, find_operator

Array = Any
Results = tuple[Array, ...]

RESULT_BYTES = 64 << 20  # of an array; eager derivatives of smaller ones scan again, which costs the host less


class _StandIn(NamedTuple):
    """The facts about an unsaved tensor that a backward needs."""

    shape: tuple[int, ...]
    dtype: Any


class Recording:
    """What similar recorded calls share: calls that differ only in addresses, strides and numbers.

    Args:
        call: one of the calls; others may have another number as `initial`.
        arrays: its tensors, and a view in place of a number.
        needs: which arrays need gradients; by default those that require grad.
        may_read_result: whether derivatives may read the first result in place of scanning again.

    Attributes:
        has_tapes: whether tapes of derivatives are stored for similar calls.
        reads_result: whether derivatives read the first result; known from the first results on.
        dtype: the dtype of the scan's result, known from the first results on.
        exact: the indices of results without derivatives.
        count: the number of results; 0 until known.
        replays: of the tape for calls without numbers whose results all have cotangents; see `tape.Tape`.
    """

    has_tapes = False
    reads_result = False
    dtype: DType
    exact: tuple[int, ...]
    count = 0
    replays: Sequence[Callable[[tuple[Array, ...]], tuple[Array | None, ...] | None]] = ()

    def __init__(
        self,
        call: Call,
        arrays: Sequence[Array],
        needs: Sequence[bool] | None = None,
        *,
        may_read_result: bool = True,
    ) -> None:
        if needs is None:
            needs = [isinstance(array, torch.Tensor) and array.requires_grad for array in arrays]
        self.call, self.needs = call, tuple(needs)
        self.tensors = [i for i, array in enumerate(arrays) if isinstance(array, torch.Tensor)]
        self.numbers = [i for i in range(len(arrays)) if i not in self.tensors]
        self._may_read_result = may_read_result
        self._stand_ins = [_StandIn(a.shape, a.dtype) if isinstance(a, torch.Tensor) else None for a in arrays]

    def remember(self, ctx: Any, initial: Any, arrays: tuple[Array, ...], results: Results) -> None:
        """Store what the backward of a call needs."""
        if not self.count:
            self._learn(arrays, results)
        memory = _NO_NUMBERS
        if initial is not None or self.numbers:
            memory = initial, tuple([to_number(arrays[i]) for i in self.numbers])
        ctx.memory = self, memory  # one attribute, since setting each takes long
        if self.saved:
            ctx.save_for_backward(*[arrays[i] for i in self.saved], *results[: self.reads_result])
        if self.exact:
            ctx.mark_non_differentiable(*[results[i] for i in self.exact])
        ctx.set_materialize_grads(False)

    def _learn(self, arrays: tuple[Array, ...], results: Results) -> None:
        flags, roles = self.call.flags, self.call.roles
        if not flags.only_carry:
            self.dtype = from_torch(results[0].dtype)
        elif flags.dtype is not None:
            self.dtype = find_dtype(flags.dtype)
        else:
            self.dtype = from_torch([arrays[i] for i in self.tensors if roles[i] not in BESIDE][-1].dtype)
        if self.is_differentiable and True in self.needs:
            check_differentiable(flags.op)
        may_read = self._may_read_result and self.is_differentiable
        self.reads_result = may_read and reads_result(self.call, self.needs, self.dtype)
        is_kept = kept(self.call, self.needs, with_result=self.reads_result)
        self.saved = [i for i, is_read in enumerate(is_kept) if is_read and i in self.tensors]
        self._reads_initial = any(roles[i] not in BESIDE for i in self.saved)
        exact = [i for i, result in enumerate(results) if from_torch(result.dtype).kind not in INEXACT]
        if flags.return_carry and "keys" in roles:
            exact.append(len(results) - 1)
        self.exact, self.count = tuple(exact), len(results)

    @property
    def is_differentiable(self) -> bool:
        return self.dtype.kind in INEXACT

    def fill(self, places: Sequence[int], tensors: Sequence[Array], numbers: Sequence[Any]) -> tuple[Any, ...]:
        """Return the arrays of a call: the given tensors and numbers, and stand-ins for the others."""
        arrays: list[Any] = [*self._stand_ins]
        for i, array in zip([*places, *self.numbers], [*tensors, *numbers], strict=True):
            arrays[i] = array
        return tuple(arrays)

    def pull(
        self,
        memory: tuple[Any, tuple[complex, ...]],
        tensors: Sequence[Array],
        cotangents: Sequence[Array | None],
        xp: Any,
    ) -> tuple[Array | None, ...]:
        """Return the cotangents of the arrays of a call; see `derivatives.pullback`.

        `memory` holds its `initial`, and the numbers that stand in for arrays; `tensors` are the saved ones, and the
        result if derivatives read it.
        """
        initial, numbers = memory
        result = None
        if self.reads_result:
            *tensors, result = tensors
        arrays = self.fill(self.saved, tensors, numbers)
        call = self.call._replace(initial=initial)
        return pullback(call, arrays, cotangents, self.needs, self.dtype, xp, result=result)

    def replay(
        self, memory: tuple[Any, tuple[complex, ...]], tensors: tuple[Array, ...], cotangents: tuple[Array | None, ...]
    ) -> tuple[Array | None, ...] | None:
        """Return the cotangents by a replay of the tape, or None if there is none for such tensors."""
        if memory is _NO_NUMBERS and not is_followed():
            inputs = tensors + cotangents
            for replay in self.replays:
                results: tuple[Array | None, ...] | None = replay(inputs)
                if results is not None:
                    return results
        return None

    def pull_by_tape(
        self,
        memory: tuple[Any, tuple[complex, ...]],
        tensors: Sequence[Array],
        cotangents: Sequence[Array | None],
        xp: Any,
    ) -> tuple[Array | None, ...]:
        """Return the cotangents by a tape, which the second similar call records. `xp` must be the same every time."""
        inputs = (*tensors, *cotangents)
        key: Any = self
        if len(cotangents) > 1 or cotangents[0] is None:
            key = key, *[each is None for each in cotangents]
            inputs = tuple([each for each in inputs if each is not None])
        constants = memory if self._reads_initial else memory[1]
        if constants not in _NOTHING:
            key = key, constants, str(constants)  # 0.0 equals -0.0
        try:
            tape = _tapes[key]
        except KeyError:  # recording takes longer than running, and shapes may never recur
            keep(_tapes, key, None)
            return self.pull(memory, tensors, cotangents, xp)
        except TypeError:  # an unhashable initial
            return self.pull(memory, tensors, cotangents, xp)
        if tape is not None:
            if not inputs or not inputs[0].is_cuda or is_followed():
                return tape.run(inputs)
            return _runner()(tape, inputs)
        recorder = Recorder(xp)
        traced = [recorder.add(tensor) for tensor in tensors]
        others = [None if each is None else recorder.add(each) for each in cotangents]
        tape, results = recorder.finish(self.pull(memory, traced, others, recorder))
        keep(_tapes, key, tape)
        if key is self:
            self.replays = tape.replays
        return results


@functools.cache
def _runner() -> Callable[[Tape, tuple[Array, ...]], tuple[Array | None, ...]]:
    from cuscan.autograd.torch_replay import run

    return run


_NO_NUMBERS: tuple[Any, tuple[complex, ...]] = None, ()
_NOTHING = (), _NO_NUMBERS  # empty `constants`
_tapes: Table[Any, Tape | None] = Table()  # None after the first call


def find_recording(call: Call, arrays: Sequence[Array]) -> Recording:
    """Return what similar calls share, stored for the next one."""
    facts: list[Any] = []
    for array in arrays:
        facts += (array.dtype, array.shape, array.requires_grad) if isinstance(array, torch.Tensor) else (None,)
    key = call.flags, call.roles, *facts
    try:
        found = _recordings.get(key)
    except TypeError:  # an unhashable argument
        return Recording(call, arrays)
    if found is None:
        nbytes = max(array.nbytes for array in arrays if isinstance(array, torch.Tensor))
        found = keep(_recordings, key, Recording(call, arrays, may_read_result=nbytes >= RESULT_BYTES))
        found.has_tapes = not find_operator(call.flags.op).source  # a user's function may depend on values
    return found


_recordings: Table[Any, Recording] = Table()
