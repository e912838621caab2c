"""DTensors: scan the local tensors as shards, in the group of the mesh dimension that shards the axis."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from cuscan.api import adopt_recurrence, adopt_scan
from cuscan.errors import ScanTypeError, ScanValueError
from cuscan.operators import LINEAR_RECURRENCE
from cuscan.request import make_request
from cuscan.request.call import SEGMENTS, Flags, make_flags
from cuscan.request.checks import check_axis, lies_along
from cuscan.signatures import choose_axis
from cuscan.specs import dense_strides

Function = TypeVar("Function", bound=Callable[..., Any])

_VALUES = ("x", "a", "b")
_ALONG = ("mask", "reset", "keys")  # with one dimension, they may lie along the scanned axis
_REFUSED = {  # arguments that do not go with DTensors, and what to do instead
    "out": "leave it out, the result is a new DTensor",
    "group": "leave it out, the mesh of x has the group",
    "comm": "leave it out, the mesh of x has the group",
    "axis_name": "leave it out, the mesh of x has the group",
    "carry": "pass x.to_local() and group=, with the carry as a tensor",
    "return_carry": "pass x.to_local() and group=",
}


def takes_dtensors(function: Function) -> Function:
    """Let a function of this package take and return DTensors. torch is used only if it is already imported."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def wrapped(*values: Any, **keywords: Any) -> Any:
        module = sys.modules.get("torch.distributed.tensor")
        if module is not None and any(isinstance(x, module.DTensor) for x in _each((*values, *keywords.values()))):
            from cuscan.distributed.torch import outside_graphs

            return outside_graphs(_run, function, signature.bind(*values, **keywords).arguments, module)
        return function(*values, **keywords)

    return wrapped  # type: ignore[return-value]


def _each(arguments: tuple[Any, ...]) -> Iterator[Any]:
    """Yield the arguments, and the items of those that are tuples."""
    for argument in arguments:
        yield from argument if isinstance(argument, tuple) else (argument,)


def _run(function: Callable[..., Any], given: dict[str, Any], module: Any) -> Any:
    """Run a call with DTensors. All checks use what every rank knows, so all ranks raise the same error."""
    main = [x for x in _each(tuple(given.get(name) for name in _VALUES)) if x is not None][-1]
    _check_arguments(given, main, module)
    flags = _flags_of(given)
    axis = check_axis(flags.axis, "x", tuple(main.shape))
    mesh_dim = _mesh_dim(main, axis, module)
    if mesh_dim is not None and given.get("include_initial"):
        raise ScanValueError("include_initial makes one shard longer, which no DTensor can hold: use initial instead")
    _check_whole(flags, given, module)
    local = {name: _local(value, main, axis, name, module) for name, value in given.items()}
    if mesh_dim is None:  # every rank has complete lines
        from cuscan import api

        function = getattr(api, function.__name__)
    else:
        local["group"] = main.device_mesh.get_group(mesh_dim)
    results = function(**local, axis=axis)
    if isinstance(results, tuple):
        return tuple(_global(result, main, module) for result in results)
    return _global(results, main, module)


def _check_arguments(given: dict[str, Any], main: Any, module: Any) -> None:
    """Check that every array is a DTensor on the mesh of the values, and that this process is part of it."""
    for name, advice in _REFUSED.items():
        value = given.pop(name, None)
        if value is not None and value is not False:
            raise ScanTypeError(f"{name} does not go with DTensors: {advice}")
    arrays = [(name, x) for name in (*_VALUES, "mask", "reset", "keys", "initial") for x in _each((given.get(name),))]
    for name, x in arrays:
        if (x is main or bool(getattr(x, "ndim", 0))) and not isinstance(x, module.DTensor):
            raise ScanTypeError(
                f"{name} is no DTensor, and another argument is one: pass distribute_tensor({name}, mesh, placements)"
            )
    meshes = [(name, x.device_mesh) for name, x in arrays if isinstance(x, module.DTensor)]
    for name, mesh in meshes:
        if mesh != meshes[0][1]:
            raise ScanValueError(
                f"{name} is on another device mesh than {meshes[0][0]}: distribute both on the same one"
            )
        if mesh.get_coordinate() is None:
            raise ScanValueError(f"this process is not part of the mesh of {name}: let only its ranks call")
    if isinstance(given.get("x"), tuple) and any(x.shape != main.shape for x in given["x"]):
        shapes = " and ".join(str(tuple(x.shape)) for x in given["x"])
        raise ScanValueError(f"DTensors in the tuple x have shapes {shapes}: pass x.expand(...) of one shape")


def _flags_of(given: dict[str, Any]) -> Flags:
    """Return the flags of a call, and remove the axis from `given`."""
    axis = choose_axis(given.pop("axis", -1), given.pop("dim", None))
    names = ("exclusive", "include_initial", "skipna", "dtype", "validate")
    more = {name: given[name] for name in names if name in given}
    op = LINEAR_RECURRENCE if "b" in given else given.get("op", "add")
    return make_flags(op, axis, given.get("reverse", False), **more)


def _check_whole(flags: Flags, given: dict[str, Any], module: Any) -> None:
    """Raise the error of the same call on whole arrays: shards may show a mistake on some ranks only."""

    def whole(value: Any) -> Any:  # an array of that shape with one element of memory
        if isinstance(value, tuple):
            return tuple(map(whole, value))
        if not isinstance(value, module.DTensor):
            return value
        return _torch().empty((), dtype=value.dtype, device=value.device).expand(value.shape)

    beside = {name: whole(given.get(name)) for name in SEGMENTS}
    initial = given.get("initial")
    number = None if hasattr(initial, "shape") else initial
    if "b" in given:
        beside["initial"] = whole(initial) if number is None else None
        operands = adopt_recurrence(whole(given["a"]), whole(given["b"]), flags.dtype, None, None, **beside)
    else:
        operands, _ = adopt_scan(whole(given["x"]), flags.op, None, None, mask=whole(given.get("mask")), **beside)
    make_request(flags, operands, has_initial=number is not None)


def _mesh_dim(main: Any, axis: int, module: Any) -> int | None:
    """Return the mesh dimension that shards the axis, or None."""
    found = []
    for number, placement in enumerate(main.placements):
        if placement.is_partial() or not (placement.is_replicate() or type(placement) is module.Shard):
            raise ScanTypeError(
                f"x has the placement {placement!r}: pass x.redistribute(placements=...) with Shard or Replicate"
            )
        if placement.is_shard(axis):
            found.append(number)
    if len(found) > 1:
        raise ScanTypeError(
            f"axis {axis} is sharded by {len(found)} dimensions of the mesh: pass x.redistribute(placements=...) "
            "so that only one does"
        )
    return found[0] if found else None


def _local(value: Any, main: Any, axis: int, name: str, module: Any) -> Any:
    """Return this rank's part of an argument, sharded like the axes of `main` that it lies along."""
    if isinstance(value, tuple):
        return tuple(_local(x, main, axis, name, module) for x in value)
    if not isinstance(value, module.DTensor):
        return value
    if name == "offsets":
        return value.full_tensor()
    along = name in _ALONG and main.ndim > 1 and value.ndim == 1
    along = along and (name == "keys" or lies_along(tuple(value.shape), tuple(main.shape), axis, name))
    places = [_place(value, placement, main, axis, name, along, module) for placement in main.placements]
    gradients = [
        module.Partial() if place.is_replicate() and placement.is_shard() else place
        for place, placement in zip(places, main.placements, strict=True)
    ]
    local = value.redistribute(placements=places).to_local(grad_placements=gradients)
    local = local.wait() if hasattr(local, "wait") else local  # the transfer may still be running
    if along:  # the length of a shard may match another axis, too
        return local.reshape(-1, *(1,) * (main.ndim - 1 - axis))
    return local.reshape(*(1,) * (main.ndim - local.ndim), *local.shape) if name in _ALONG else local


def _place(value: Any, placement: Any, main: Any, axis: int, name: str, along: bool, module: Any) -> Any:
    """Return the placement of an argument on a mesh dimension where `main` has `placement`."""
    if not placement.is_shard():
        return module.Replicate()
    dim, rank = placement.dim, main.ndim
    if name == "initial":  # it lacks the scanned axis
        if dim == axis:
            return module.Replicate()
        dim, rank = dim - (dim > axis), rank - 1
    elif along:
        dim, rank = (0 if dim == axis else -1), 1
    own = dim - (rank - value.ndim)
    return module.Shard(own) if own >= 0 and value.shape[own] > 1 else module.Replicate()


def _global(result: Any, main: Any, module: Any) -> Any:
    shape = tuple(main.shape)
    if result.shape[-1:] and tuple(result.shape) != tuple(main.to_local().shape):  # include_initial, in complete lines
        shape = tuple(n + (own - old) for n, own, old in zip(shape, result.shape, main.to_local().shape, strict=True))
    strides = dense_strides(shape, main.stride())
    return module.DTensor.from_local(
        result, main.device_mesh, main.placements, run_check=False, shape=_torch().Size(shape), stride=strides
    )


def _torch() -> Any:
    import torch

    return torch
