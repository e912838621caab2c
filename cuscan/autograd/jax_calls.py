"""Calls of the JAX primitive: requests, and shapes of results, from shapes and dtypes alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
from jax.sharding import NamedSharding, PartitionSpec

from cuscan.dtypes import DType
from cuscan.interop.jax import LIBRARY, canonical
from cuscan.interop.numpy import numpy_dtype
from cuscan.interop.view import ArrayView
from cuscan.kept import Table, keep
from cuscan.linearised import Call
from cuscan.request import ScanRequest, make_request
from cuscan.request.call import CARRY, Operands
from cuscan.request.initial import check_start

Array = Any


@dataclasses.dataclass(frozen=True)
class Start:
    """The user's `initial`, which is part of a program's key: equal values have equal bits."""

    text: str
    value: Any = dataclasses.field(compare=False)

    @staticmethod
    def of(initial: Any) -> Start:
        return initial if isinstance(initial, Start) else Start(f"{type(initial).__name__} {initial!r}", initial)


_requests: Table[Any, ScanRequest] = Table()


def request_of(call: Call, arrays: Sequence[Array]) -> ScanRequest:
    """Check and normalise the call; `arrays` need only shapes and dtypes."""
    kinds = tuple(LIBRARY.kind_of(array, role) for array, role in zip(arrays, call.roles, strict=True))
    key = call, kinds, canonical(int)  # `canonical(int)` shows whether JAX has 64-bit types enabled
    return _requests.get(key) or keep(_requests, key, _make_request(call, arrays, kinds))


def _make_request(call: Call, arrays: Sequence[Array], kinds: tuple[Any, ...]) -> ScanRequest:
    views = tuple(ArrayView(array, kind, 0) for array, kind in zip(arrays, kinds, strict=True))
    has_initial = call.initial is not None
    if any(role in CARRY for role in call.roles):
        views = _widened(call, views)
    request = make_request(call.flags, Operands(views, call.roles), has_initial=has_initial)
    if call.initial is not None:
        check_start(call.initial.value, request.op, request.result.dtype)
    return request


def _widened(call: Call, views: tuple[ArrayView, ...]) -> tuple[ArrayView, ...]:
    """Return the arrays of a call with the carry in the types of backends; by its settings, JAX may hold 32 bits."""
    count = sum(role not in CARRY for role in call.roles)
    others = Operands(views[:count], call.roles[:count])
    fields = make_request(call.flags._replace(return_carry=True), others, has_initial=False).carry_out
    carry = list(views[count:])
    for i, (field, view) in enumerate(zip(fields, carry, strict=False)):
        if canonical(numpy_dtype(field.dtype)).name == view.dtype.name:
            stand_in = jax.ShapeDtypeStruct(view.shape, numpy_dtype(field.dtype))
            carry[i] = ArrayView(view.owner, LIBRARY.kind_of(stand_in, call.roles[count + i]), 0)
    return (*others.views, *carry)


def written(request: ScanRequest) -> list[tuple[tuple[int, ...], DType]]:
    """Return shapes and dtypes of the outputs of a request: the results, the last states, the fields of the carry."""
    results = () if request.only_carry else request.results
    behind = (*([] if request.last is None else [request.last]), *request.carry_out)
    axis = request.axis
    one_a_line = [((*spec.shape[:axis], *spec.shape[axis + 1 :]), spec.dtype) for spec in behind]
    return [(spec.shape, spec.dtype) for spec in results] + one_a_line


# ---- abstract values -------------------------------------------------------------------------------------------------


def results_like(avals: Sequence[Any], request: ScanRequest) -> list[Any]:
    """Return abstract values of the outputs; they have the devices of the arrays, and vary along the same mesh axes."""
    return [_like(avals[0], shape, canonical(numpy_dtype(dtype))) for shape, dtype in written(request)]


def _like(aval: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    mesh = aval.sharding.mesh
    sharding = NamedSharding(mesh, PartitionSpec(*(None,) * len(shape)))
    return aval.update(shape=shape, dtype=dtype, weak_type=False, sharding=sharding)


def is_spread(aval: Any) -> bool:
    """Return whether the type of an array says that its axes are distributed over several devices."""
    return any(part is not None for part in aval.sharding.spec)


def alike(arrays: Sequence[Array]) -> list[Array]:
    """Make arrays vary along the same axes of a mesh, inside `jax.shard_map`."""
    varying = [_varying(jax.typeof(array)) for array in arrays]
    every = frozenset().union(*varying)
    return [
        array if own == every else _vary(array, tuple(every - own)) for array, own in zip(arrays, varying, strict=True)
    ]


def _varying(aval: Any) -> frozenset[Any]:
    manual = getattr(aval, "mat", None)  # before JAX 0.10: vma
    found: frozenset[Any] = aval.vma if manual is None else manual.varying
    return found


def _vary(array: Array, axes: tuple[Any, ...]) -> Array:
    if hasattr(jax.lax, "pcast"):
        return jax.lax.pcast(array, axes, to="varying")
    return jax.lax.pvary(array, axes)  # before JAX 0.9
