"""The operator `cuscan::scan`, which represents a call in torch.compile, in torch.export and for tensor subclasses.

A call that checks its offsets is `cuscan::scan_validated`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from cuscan.autograd.torch_batches import batched
from cuscan.derivatives import Call
from cuscan.dtypes import DTYPES
from cuscan.interop.torch import LIBRARY, to_torch
from cuscan.interop.view import ArrayView
from cuscan.operators import find_key
from cuscan.request import make_request
from cuscan.request.call import Flags, Operands, find_dtype, find_operator
from cuscan.specs import dense_strides

Array = Any
Results = tuple[Array, ...]
Run = Callable[[Call, tuple[Array, ...]], Results]

_TYPES = {"op": "str", "axis": "int", "dtype": "str"}  # of flags other than bool
_FLAGS = ", ".join(f"{_TYPES.get(name, 'bool')} {name}" for name in Flags._fields)

# `scan_validated` waits for the device, so no CUDA graph can contain it. Tags belong to operators, not to calls.
_UNSAFE = [torch.Tag.cudagraph_unsafe] if hasattr(torch.Tag, "cudagraph_unsafe") else []
_NAMES: dict[str, list[Any]] = {"scan": [], "scan_validated": _UNSAFE}
_LIBRARY = torch.library.Library("cuscan", "DEF")
for _name, _tags in _NAMES.items():
    _LIBRARY.define(
        f"{_name}(Tensor[] arrays, str[] roles, Scalar[]? initial, {_FLAGS}) -> Tensor[]",
        tags=(torch.Tag.pt2_compliant_tag, *_tags),
    )


def apply(call: Call, arrays: Sequence[Array]) -> Results:
    """Return the results of a call through the operator."""
    flags, initial = call.flags, call.initial
    dtype = find_dtype(flags.dtype).name if flags.dtype is not None else ""
    tensors = list(arrays)
    if not isinstance(tensors[0], torch.Tensor):  # a decay that is a number
        tensors[0] = _number(tensors[0], dtype or tensors[1].dtype, tensors[1].device)
    if initial is not None:
        initial = list(initial) if isinstance(initial, tuple) else [initial]
    flags = flags._replace(op=find_operator(flags.op).key, dtype=dtype)
    waits = flags.validate and "offsets" in call.roles
    operator = torch.ops.cuscan.scan_validated if waits else torch.ops.cuscan.scan
    return tuple(operator(tensors, list(call.roles), initial, *flags))


def _number(number: complex, dtype: object, device: Any) -> Array:
    return torch.full((), number, dtype=to_torch(DTYPES[find_dtype(dtype).accumulator]), device=device)


def _call(roles: Sequence[str], initial: Sequence[Any] | None, flags: Sequence[Any]) -> Call:
    """Return the call that the operator's arguments represent."""
    named = Flags(*flags)
    op = find_key(named.op)
    start = None if initial is None else tuple(initial) if op.dtypes else initial[0]
    return Call(named._replace(op=op, dtype=named.dtype or None), tuple(roles), start)


def _fake(arrays: Sequence[Array], roles: Sequence[str], initial: Sequence[Any] | None, *flags: Any) -> list[Array]:
    """Check the call, and return tensors with the metadata of its results."""
    call = _call(roles, initial, flags)
    views = tuple(ArrayView(a, LIBRARY.kind_of(a, role), 0) for a, role in zip(arrays, roles, strict=True))
    request = make_request(call.flags, Operands(views, call.roles), has_initial=call.initial is not None)
    device = arrays[0].device
    specs = [] if request.only_carry else [(r.shape, r.strides, r.dtype) for r in request.results]
    lines = request.shape[: request.axis] + request.shape[request.axis + 1 :]
    behind = (*([] if request.last is None else [request.last]), *request.carry_out)
    specs += [(lines, dense_strides(lines, (0,) * len(lines)), spec.dtype) for spec in behind]
    return [
        torch.empty_strided(shape, strides, dtype=to_torch(dtype), device=device) for shape, strides, dtype in specs
    ]


def _batch(info: Any, in_dims: tuple[Any, ...], arrays: Sequence[Array], *others: Any) -> tuple[list[Array], list[int]]:
    roles, initial, *flags = others
    results = apply(*batched(_call(roles, initial, flags), arrays, in_dims[0], info.batch_size))
    return list(results), [0] * len(results)


for _name in _NAMES:
    torch.library.register_fake(f"cuscan::{_name}", _fake, lib=_LIBRARY)
    if hasattr(torch.library, "register_vmap"):  # from torch 2.5 on
        torch.library.register_vmap(f"cuscan::{_name}", _batch, lib=_LIBRARY)


def implement(run: Run, record: Callable[[Run, Call, tuple[Array, ...]], Results]) -> None:
    """Implement the operators: run(call, arrays) on plain memory, record(run, call, arrays) under autograd."""

    def below_autograd(call: Call, arrays: tuple[Array, ...]) -> Results:
        with torch._C._AutoDispatchBelowAutograd():
            return apply(call, arrays)

    def of_arguments(run: Run) -> Callable[..., list[Array]]:
        return lambda arrays, roles, initial, *flags: list(run(_call(roles, initial, flags), tuple(arrays)))

    for name in _NAMES:
        _LIBRARY.impl(name, of_arguments(run), "CPU")
        _LIBRARY.impl(name, of_arguments(run), "CUDA")
        _LIBRARY.impl(name, of_arguments(functools.partial(record, below_autograd)), "Autograd")
