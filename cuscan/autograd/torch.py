"""torch: scans under autograd, torch.func, torch.compile and torch.export. Importing this module imports torch.

A call that nothing follows never comes here. Of the others, those that autograd records take `_Recorded`, the cheapest
way; those under transforms of torch.func take `_Transformed`; those that are traced become the operator `cuscan::scan`
(`torch_operator.py`), which takes `_Recorded` in its turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch.autograd import forward_ad

from cuscan import backends
from cuscan.autograd import torch_operator
from cuscan.autograd.torch_batches import batched, is_grads_batch, over_grads_batch
from cuscan.autograd.torch_operator import Results, Run
from cuscan.call import BESIDE, Flags, Operands, find_dtype, find_operator, one_or_all
from cuscan.derivatives import Call, check_differentiable, kept, pullback, pushforward, transposed
from cuscan.dtypes import DTYPES, INEXACT, DType
from cuscan.errors import ScanTypeError, ScanValueError
from cuscan.interop.torch import LIBRARY, count_forward_levels, from_torch, is_plain, to_torch, transforms_are_active
from cuscan.interop.view import ArrayView, number_like
from cuscan.kept import Table, keep

Array = Any


def run(flags: Flags, operands: Operands, initial: Any) -> Results:
    """Run a call one of whose tensors is followed; see `backends.run`."""
    if operands.outs is None and forward_ad._current_level < 0 and not isinstance(initial, torch.Tensor):
        backward = _find_backward(flags, operands)
        if backward is not None:
            return (_record_sum((flags, operands, initial, backward), *[view.owner for view in operands.views]),)
    arrays = tuple(view.owner.item() if view.kind.is_number else view.owner for view in operands.views)
    if isinstance(initial, torch.Tensor):
        if initial.requires_grad:
            raise ScanTypeError("initial requires grad, and a scan fetches its value: pass initial.detach()")
        initial = initial.item()
    outs = operands.outs
    if outs is None:
        results = scan(
            Call(flags, operands.roles, initial),
            arrays,
            lambda call, arrays: _flat(flags, backends.run(flags, operands, initial)),
        )
        return _with_carry(flags, results)
    owners = tuple(out.owner for out in outs)
    if _is_recorded(arrays + owners):
        raise ScanTypeError("out= has no derivative: leave it out where an argument requires grad, or detach them all")
    if flags.dtype is None:
        flags = flags._replace(dtype=outs[0].dtype.name)
    results = scan(Call(flags, operands.roles, initial), arrays)
    for out, result in zip(owners, results, strict=False):
        if (out.shape, out.dtype) != (result.shape, result.dtype):
            got, needed = (f"shape {tuple(t.shape)} and dtype {t.dtype}" for t in (out, result))
            raise ScanValueError(f"out has {got}; the result has {needed}")
        out.copy_(result)
    return _with_carry(flags, owners + results[len(owners) :])


def _flat(flags: Flags, results: tuple[Any, ...]) -> Results:
    """The results of a backend, and the fields of the carry one by one."""
    if not flags.return_carry:
        return results
    *others, carry = results
    return (*others, *(carry if isinstance(carry, tuple) else (carry,)))


def _with_carry(flags: Flags, results: Results) -> tuple[Any, ...]:
    """The results as a backend returns them."""
    if not flags.return_carry:
        return results
    op = find_operator(flags.op)
    others = (0 if flags.only_carry else len(op.dtypes) or 1 + op.indexed) + flags.return_last
    return (*results[:others], one_or_all(results[others:]))


def scan(call: Call, arrays: tuple[Array, ...], run: Run | None = None) -> Results:
    """The results of a call, by the way that its tensors ask for; by `run` if they lie in memory."""
    if torch.compiler.is_compiling() or not all(is_plain(array) for array in arrays):
        return torch_operator.apply(call, arrays)
    if any(map(is_grads_batch, arrays)):
        return over_grads_batch(scan, call, arrays)
    if not transforms_are_active():
        return _record(run or _run_plain, call, arrays)
    if count_forward_levels() > 1:
        raise ScanTypeError("torch has no forward derivatives of forward derivatives here; take jacrev or grad for one")
    results: Results = _Transformed.apply(call, *arrays)
    return results


def _record(run: Run, call: Call, arrays: tuple[Array, ...]) -> Results:
    """Run a call, recorded if it has to be."""
    if not _is_recorded(arrays):
        return run(call, arrays)
    results: Results = _Recorded.apply(run, call, *arrays)
    return results


def _is_recorded(arrays: Sequence[Array]) -> bool:
    """Whether autograd follows one of some arrays, backward or forward."""
    if forward_ad._current_level >= 0:
        return True
    return torch.is_grad_enabled() and any(isinstance(a, torch.Tensor) and a.requires_grad for a in arrays)


def _run_plain(call: Call, arrays: tuple[Array, ...]) -> Results:
    """Run a call on tensors as they lie in memory."""
    views: list[ArrayView] = []
    for role, array in zip(call.roles[::-1], arrays[::-1], strict=True):  # a number stands before what it is like
        if isinstance(array, torch.Tensor):
            views.append(LIBRARY.view(array, role))
        else:
            dtype = DTYPES[(find_dtype(call.flags.dtype) if call.flags.dtype else views[-1].dtype).accumulator]
            views.append(number_like(array, dtype, views[-1]))
    return _flat(call.flags, backends.run(call.flags, Operands(tuple(views[::-1]), call.roles), call.initial))


# ---- what derivatives ask of torch -----------------------------------------------------------------------------------


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


class _StandIn(NamedTuple):
    """What a backward needs of a tensor that is not saved."""

    shape: tuple[int, ...]
    dtype: Any


class _Memory(NamedTuple):
    """What derivatives need beside the tensors that are saved; one attribute, since setting each takes long."""

    call: Call
    dtype: DType
    needs: tuple[bool, ...]
    stand_ins: tuple[Any, ...]
    results: int

    @property
    def differentiable(self) -> bool:
        return self.dtype.kind in INEXACT


def remember(ctx: Any, call: Call, arrays: tuple[Array, ...], results: Results) -> list[Array | None]:
    """Keep what the backward needs; returns the tensors among the arrays."""
    tensors = [array if isinstance(array, torch.Tensor) else None for array in arrays]
    stand_ins = tuple(a if t is None else _StandIn(t.shape, t.dtype) for a, t in zip(arrays, tensors, strict=True))
    needs = ctx.needs_input_grad[-len(arrays) :]
    ctx.memory = memory = _Memory(call, _dtype_of(call, arrays, results), needs, stand_ins, len(results))
    if memory.differentiable and True in needs:
        check_differentiable(call.flags.op)
    ctx.save_for_backward(*(t if keep else None for t, keep in zip(tensors, kept(call, needs), strict=True)))
    exact = [result for result in results if from_torch(result.dtype).kind not in INEXACT]
    if call.flags.return_carry and "keys" in call.roles:
        exact.append(results[-1])
    if exact:
        ctx.mark_non_differentiable(*exact)
    ctx.set_materialize_grads(False)
    return tensors


def _dtype_of(call: Call, arrays: tuple[Array, ...], results: Results) -> DType:
    """The dtype of the scan's result, where that is not asked for, too."""
    if not call.flags.only_carry:
        return from_torch(results[0].dtype)
    if call.flags.dtype is not None:
        return find_dtype(call.flags.dtype)
    values = [array for role, array in zip(call.roles, arrays, strict=True) if role not in BESIDE]
    return from_torch(values[-1].dtype)


def saved(ctx: Any) -> tuple[Array, ...]:
    """The arrays of the call, or what stands for those that were not saved."""
    pairs = zip(ctx.memory.stand_ins, ctx.saved_tensors, strict=True)
    return tuple(stand_in if tensor is None else tensor for stand_in, tensor in pairs)


def _backward(ctx: Any, *cotangents: Array) -> tuple[Array, ...]:
    memory: _Memory = ctx.memory
    found = pullback(memory.call, saved(ctx), cotangents, memory.needs, memory.dtype, TorchNamespace)
    return (None,) * (len(ctx.needs_input_grad) - len(found)) + found


def _jvp(ctx: Any, *tangents: Array) -> tuple[Array | None, ...]:
    memory: _Memory = ctx.memory
    if not memory.differentiable:
        return (None,) * memory.results
    return pushforward(memory.call, saved(ctx), tangents[-len(memory.stand_ins) :], memory.dtype, TorchNamespace)


class _Recorded(torch.autograd.Function):  # type: ignore[misc]
    """A call that autograd records."""

    @staticmethod
    def forward(ctx: Any, run: Run, call: Call, *arrays: Array) -> Results:
        results = run(call, arrays)
        tensors = remember(ctx, call, arrays, results)
        if forward_ad._current_level >= 0:  # else it would keep them alive
            ctx.save_for_forward(*tensors)
        return results

    backward = staticmethod(_backward)
    jvp = staticmethod(_jvp)


class _Transformed(torch.autograd.Function):  # type: ignore[misc]
    """A call under transforms of torch.func."""

    @staticmethod
    def forward(call: Call, *arrays: Array) -> Results:
        return _run_plain(call, arrays)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Results) -> None:
        call, *arrays = inputs
        ctx.save_for_forward(*remember(ctx, call, tuple(arrays), output))

    backward = staticmethod(_backward)
    jvp = staticmethod(_jvp)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], call: Call, *arrays: Array) -> tuple[Results, tuple[int, ...]]:
        results = scan(*batched(call, arrays, in_dims[1:], info.batch_size))
        return results, (0,) * len(results)


# ---- sums, whose derivative is one scan ------------------------------------------------------------------------------


def _find_backward(flags: Flags, operands: Operands) -> Flags | None:
    """The flags of the scan that is the backward of a call on tensors in memory, if one is enough."""
    kinds = []
    for view in operands.views:
        if not view.pointer:
            return None
        kinds.append(view.kind)
    key = flags, operands.roles, *kinds
    try:
        return _backwards[key]
    except KeyError:
        found = transposed(flags, operands.roles, len(kinds[0].shape), kinds[0].dtype)
        return keep(_backwards, key, found)
    except TypeError:  # an argument that cannot be hashed
        return None


_backwards: Table[Any, Flags | None] = Table()


class _Sum(torch.autograd.Function):  # type: ignore[misc]
    """A sum that autograd records, at the least cost to the host: what it does otherwise is what `_Recorded` does."""

    @staticmethod
    def forward(ctx: Any, call: tuple[Flags, Operands, Any, Flags], *arrays: Array) -> Array:
        flags, operands, initial, backward = call
        ctx.call = backward, operands.roles
        if len(arrays) > 1:
            ctx.save_for_backward(*arrays[1:])
        return backends.run(flags, operands, initial)[0]

    @staticmethod
    def backward(ctx: Any, cotangent: Array) -> tuple[Array | None, ...]:
        flags, roles = ctx.call
        arrays = (cotangent,) if len(roles) == 1 else (cotangent, *ctx.saved_tensors)
        if (
            torch.is_grad_enabled()
            or forward_ad._current_level >= 0
            or not is_plain(cotangent)
            or is_grads_batch(cotangent)
        ):
            (gradient,) = scan(Call(flags, roles), arrays)
        else:
            views = tuple([LIBRARY.view(array, role) for array, role in zip(arrays, roles, strict=True)])
            (gradient,) = backends.run(flags, Operands(views, roles), None)
        return (None, gradient, *(None,) * (len(roles) - 1))


# What torch.autograd.Function.apply does but for what transforms need, which are not active.
_record_sum = super(torch.autograd.Function, _Sum).apply


torch_operator.implement(_run_plain, _record)
