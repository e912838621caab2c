"""torch: scans under autograd, torch.func, torch.compile and torch.export. Importing this module imports torch.

A call on plain tensors comes here only as part of a derivative. Calls that autograd records take `_Recorded`, the
cheapest way; on a GPU, later similar calls start in `_Launch`. Calls under transforms of torch.func take
`_Transformed`. Traced calls become the operator `cuscan::scan` (`torch_operator.py`), which takes `_Recorded` in turn.
"""

from __future__ import annotations

import functools
import math
import numbers
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.autograd import forward_ad

from cuscan import backends
from cuscan.autograd import torch_operator
from cuscan.autograd.torch_batches import batched, is_grads_batch, over_grads_batch
from cuscan.autograd.torch_numbers import to_number, with_view
from cuscan.autograd.torch_operator import Results, Run
from cuscan.autograd.torch_recording import Recording, find_recording
from cuscan.backends import repeats
from cuscan.backends.repeats import Repeatable
from cuscan.derivatives import Call, pushforward
from cuscan.dtypes import DType
from cuscan.errors import ScanTypeError, ScanValueError
from cuscan.interop.torch import (
    LIBRARY,
    count_forward_levels,
    is_followed,
    is_plain,
    to_torch,
    transforms_are_active,
)
from cuscan.interop.view import ArrayView, Like
from cuscan.kept import keep
from cuscan.linearised import joined
from cuscan.request.call import Flags, Operands, find_operator, one_or_all

Array = Any
_KNOWN = torch.Tensor, torch.nn.Parameter, ArrayView  # no subclasses


def run(flags: Flags, operands: Operands, initial: Any) -> Results:
    """Run a call with at least one tensor under derivatives or transforms; see `backends.run`."""
    initial = _fetched(initial)
    call = Call(flags, operands.roles, initial)
    arrays = tuple([view if view.kind.is_number else view.owner for view in operands.views])
    outs, key = operands.outs, operands.key
    if outs is None:
        operands.key = _unrecorded(key)
        follow = _follow if forward_ad._current_level >= 0 or not _lie_in_memory(operands.views) else _record_alike
        results = follow(call, arrays, lambda *_: _flat(flags, backends.run(flags, operands, initial)), key)
        return _with_carry(flags, results)
    owners = tuple(out.owner for out in outs)
    if _is_recorded(arrays + owners):
        raise ScanTypeError("out= has no derivative: leave it out where an argument requires grad, or detach them all")
    if flags.dtype is None:
        flags = flags._replace(dtype=outs[0].dtype.name)
    results = scan(call._replace(flags=flags), arrays)
    for out, result in zip(owners, results, strict=False):
        if (out.shape, out.dtype) != (result.shape, result.dtype):
            got, needed = (f"shape {tuple(t.shape)} and dtype {t.dtype}" for t in (out, result))
            raise ScanValueError(f"out has {got}; the result has {needed}")
        out.copy_(result)
    return _with_carry(flags, owners + results[len(owners) :])


def _fetched(initial: Any) -> Any:
    """Return an initial value, fetched if it is a tensor."""
    if not isinstance(initial, torch.Tensor):
        return initial
    if initial.requires_grad:
        raise ScanTypeError("initial requires grad, and a scan fetches its value: pass initial.detach()")
    return initial.item()


def _flat(flags: Flags, results: tuple[Any, ...]) -> Results:
    """Return the results of a backend with the fields of the carry one by one."""
    if not flags.return_carry:
        return results
    *others, carry = results
    return (*others, *(carry if isinstance(carry, tuple) else (carry,)))


def _with_carry(flags: Flags, results: Results) -> tuple[Any, ...]:
    """Return the results with the carry as a backend returns it."""
    if not flags.return_carry:
        return results
    op = find_operator(flags.op)
    others = (0 if flags.only_carry else len(op.dtypes) or 1 + op.indexed) + flags.return_last
    return (*results[:others], one_or_all(results[others:]))


def scan(call: Call, arrays: tuple[Array, ...]) -> Results:
    """Return the results of a call in the way that its tensors need; a decay may be a number."""
    flags, roles, initial = call
    arrays = with_view(call, arrays)
    key = None
    if type(arrays[0]) in _KNOWN:  # torch.compile guards the table of libraries, which its own tensors must not enter
        key, results = repeats.repeat(flags, roles, arrays, None, initial)
        if results is not None:
            return _flat(flags, results)
    return _follow(call, arrays, functools.partial(_run_plain, key=_unrecorded(key)), key)


def _follow(call: Call, arrays: tuple[Array, ...], run: Run, key: Any) -> Results:
    """Run a call that is no repetition; `key` stores it for similar calls, unless it is None.

    `run` runs it on plain tensors.
    """
    if torch.compiler.is_compiling() or not all(is_plain(array) for array in arrays):
        _refuse_dtensors(call, arrays)
        return torch_operator.apply(call, _with_numbers(arrays))
    if any(map(is_grads_batch, arrays)):
        return over_grads_batch(scan, call, _with_numbers(arrays))
    results: Results
    if transforms_are_active():
        if count_forward_levels() > 1:
            raise ScanTypeError(
                "torch has no forward derivatives of forward derivatives here; take jacrev or grad for one"
            )
        results = _Transformed.apply(call, *_with_numbers(arrays))
        return results
    if not _is_recorded(arrays):
        return run(call, arrays)
    if forward_ad._current_level >= 0:
        return _record(run, call, arrays)
    return _record_alike(call, arrays, run, key, _Recorded.apply)  # handles tensors of finished transforms


def _refuse_dtensors(call: Call, arrays: tuple[Array, ...]) -> None:
    """Raise `ScanTypeError` for DTensors, unless the compiler traces the call."""
    module = None if torch.compiler.is_compiling() else sys.modules.get("torch.distributed.tensor")
    if module is None:
        return
    for role, array in zip(call.roles, arrays, strict=True):
        if isinstance(array, module.DTensor):
            raise ScanTypeError(
                f"{role} is a DTensor: call the function of the same name in cuscan.distributed, which scans across "
                f"ranks, or pass {role}.to_local()"
            )


def _record_alike(
    call: Call, arrays: tuple[Array, ...], run: Run, key: Any, apply: Callable[..., Results] | None = None
) -> Results:
    """Run a call that autograd records, and store what similar calls share."""
    recording = find_recording(call, arrays)
    results = (apply or _apply)(recording, functools.partial(run, call), call.initial, *arrays)
    launch = repeats.launches.get(_unrecorded(key))
    if launch is not None:
        keep(repeats.launches, key, _Launch(recording, launch))
    return results


def _record(run: Run, call: Call, arrays: tuple[Array, ...]) -> Results:
    """Run a call, recorded if necessary; store nothing for similar calls."""
    if not _is_recorded(arrays):
        return run(call, arrays)
    results: Results = _Recorded.apply(Recording(call, arrays), functools.partial(run, call), call.initial, *arrays)
    return results


def _lie_in_memory(views: Sequence[ArrayView]) -> bool:
    """Return whether all arrays are ordinary tensors with memory; tensors without elements are not."""
    return all([view.pointer or view.kind.is_number for view in views])


def _is_recorded(arrays: Sequence[Array]) -> bool:
    """Return whether autograd records a call on some arrays, for backward or forward derivatives."""
    if forward_ad._current_level >= 0:
        return True
    return torch.is_grad_enabled() and any(isinstance(a, torch.Tensor) and a.requires_grad for a in arrays)


def _run_plain(call: Call, arrays: tuple[Array, ...], key: Any = None) -> Results:
    """Run a call on tensors as plain memory."""
    flags, roles, initial = call
    arrays = with_view(call, arrays)
    views = tuple(
        [a if isinstance(a, ArrayView) else LIBRARY.view(a, role) for role, a in zip(roles, arrays, strict=True)]
    )
    return _flat(flags, backends.run(flags, Operands(views, roles, None, key), initial))


def _unrecorded(key: Any) -> Any:
    """Return the key of `repeats.repeat` for the same call if autograd records nothing (see `TorchLibrary.look`)."""
    return key and (*key[:-1], 0)


def _with_numbers(arrays: tuple[Array, ...]) -> tuple[Array, ...]:
    """Replace array views by the numbers that they hold."""
    return tuple([to_number(array) if isinstance(array, ArrayView) else array for array in arrays])


# ---- the operations of torch that derivatives need -------------------------------------------------------------------


class TorchNamespace:
    """See `derivatives.Namespace`."""

    where = staticmethod(torch.where)
    exp = staticmethod(torch.exp)
    isnan = staticmethod(torch.isnan)
    logical_and = staticmethod(torch.logical_and)
    zeros_like = staticmethod(torch.zeros_like)
    ones_like = staticmethod(torch.ones_like)
    full_like = staticmethod(torch.full_like)
    concat = staticmethod(torch.cat)
    expand_dims = staticmethod(torch.unsqueeze)
    broadcast_to = staticmethod(torch.Tensor.expand)
    conj = staticmethod(torch.conj)
    scan = staticmethod(scan)

    @staticmethod
    def cast(x: Array, dtype: DType) -> Array:
        kind = to_torch(dtype)
        return (x.real if x.is_complex() and not kind.is_complex else x).to(kind)

    @staticmethod
    def sum_to(x: Array, shape: tuple[int, ...]) -> Array:
        return x.sum_to_size(shape)

    @staticmethod
    def positions(x: Array, axis: int) -> Array:
        return torch.arange(x.shape[axis], device=x.device).reshape(-1, *(1,) * (-axis - 1))

    @staticmethod
    def times_shifted(x: Array, states: Array, first: Array | complex, reverse: bool, axis: int) -> Array:
        parts = x, states, first
        if not x.numel() or is_followed() or transforms_are_active() or not all(map(_has_memory, parts)):
            return x * joined(states, first, reverse, axis, TorchNamespace)
        product = torch.empty_like(x)
        if x.is_contiguous() and states.is_contiguous():  # in one dimension torch is twice as fast
            by = math.prod(x.shape[axis:][1:])
            _multiply_shifted(x.view(-1), states.view(-1), product.view(-1), by, reverse, 0)
        else:
            _multiply_shifted(x, states, product, 1, reverse, axis)
        place = x.shape[axis] - 1 if reverse else 0
        torch.mul(x.narrow(axis, place, 1), first, out=product.narrow(axis, place, 1))
        return product


def _multiply_shifted(x: Array, states: Array, product: Array, by: int, reverse: bool, axis: int) -> None:
    """Write x[t] * states[t - by], or x[t] * states[t + by] in reverse, for each t that has both."""
    count, (at, of) = x.shape[axis] - by, (0, by) if reverse else (by, 0)
    torch.mul(x.narrow(axis, at, count), states.narrow(axis, of, count), out=product.narrow(axis, at, count))


def _has_memory(x: Array | complex) -> bool:
    """Return whether x is a number, or a tensor whose parts can be written."""
    return isinstance(x, numbers.Number) or (is_plain(x) and not is_grads_batch(x))


# ---- autograd functions ----------------------------------------------------------------------------------------------


def _jvp(ctx: Any, *tangents: Array) -> tuple[Array | None, ...]:
    recording: Recording
    recording, (initial, numbers) = ctx.memory
    if not recording.is_differentiable:
        return (None,) * recording.count
    call, arrays = recording.call, recording.fill(recording.tensors, ctx.saved_tensors, numbers)
    moving = tangents[-len(arrays) :]
    return pushforward(call._replace(initial=initial), arrays, moving, recording.dtype, TorchNamespace)


class _Recorded(torch.autograd.Function):  # type: ignore[misc]
    """A call that autograd records."""

    @staticmethod
    def forward(
        ctx: Any, recording: Recording, run: Callable[[tuple[Array, ...]], Results], initial: Any, *arrays: Array
    ) -> Results:
        results = run(arrays)
        recording.remember(ctx, initial, arrays, results)
        if forward_ad._current_level >= 0:  # otherwise it would keep them alive
            ctx.save_for_forward(*[arrays[i] for i in recording.tensors])
        return results

    @staticmethod
    def backward(ctx: Any, *cotangents: Array) -> tuple[Array | None, ...]:
        recording, memory = ctx.memory
        tensors = ctx.saved_tensors if recording.saved else ()
        if recording.replays:
            results = recording.replay(memory, tensors, cotangents)
            if results is not None:
                return None, None, None, *results
        pull = recording.pull_by_tape if recording.has_tapes else recording.pull
        return None, None, None, *pull(memory, tensors, cotangents, TorchNamespace)

    jvp = staticmethod(_jvp)


# torch.autograd.Function.apply without its handling of transforms, of which none is active here.
_apply = super(torch.autograd.Function, _Recorded).apply


class _Launch:
    """Similar calls on a GPU that autograd records (see `repeats.Repeatable`). `launch` runs them without autograd."""

    like: Like | None = None

    def __init__(self, recording: Recording, launch: Repeatable) -> None:
        self._recording, self._launch, self._flags = recording, launch, recording.call.flags

    def run(self, arrays: tuple[Array, ...], outs: tuple[Array, ...], pointers: list[int], initial: Any) -> Results:
        launch, flags, initial = self._launch, self._flags, _fetched(initial)

        def run(arrays: tuple[Array, ...]) -> Results:
            return _flat(flags, launch.run(arrays, (), pointers, initial))

        results: Results = _apply(self._recording, run, initial, *arrays)
        return _with_carry(flags, results)


class _Transformed(torch.autograd.Function):  # type: ignore[misc]
    """A call under transforms of torch.func."""

    @staticmethod
    def forward(call: Call, *arrays: Array) -> Results:
        return _run_plain(call, arrays)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Results) -> None:
        call, *arrays = inputs
        # Under transforms, a product with shifted states copies the states, which takes longer than another scan.
        recording = Recording(call, arrays, ctx.needs_input_grad[1:], may_read_result=False)
        recording.remember(ctx, call.initial, tuple(arrays), output)
        ctx.save_for_forward(*[arrays[i] for i in recording.tensors])

    @staticmethod
    def backward(ctx: Any, *cotangents: Array) -> tuple[Array | None, ...]:
        recording, memory = ctx.memory
        return (None, *recording.pull(memory, ctx.saved_tensors, cotangents, TorchNamespace))

    jvp = staticmethod(_jvp)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], call: Call, *arrays: Array) -> tuple[Results, tuple[int, ...]]:
        results = scan(*batched(call, arrays, in_dims[1:], info.batch_size))
        return results, (0,) * len(results)


torch_operator.implement(_run_plain, _record)
