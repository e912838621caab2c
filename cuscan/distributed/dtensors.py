"""DTensors: scan the local tensors as shards, in the group of the mesh dimension that shards the axis."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any, TypeVar

from cuscan.errors import ScanTypeError, ScanValueError
from cuscan.specs import dense_strides

Function = TypeVar("Function", bound=Callable[..., Any])


def takes_dtensors(function: Function) -> Function:
    """Let a function of this package take and return DTensors. torch is used only if it is already imported."""

    @functools.wraps(function)
    def wrapped(*values: Any, **keywords: Any) -> Any:
        module = sys.modules.get("torch.distributed.tensor")
        if module is not None and any(isinstance(value, module.DTensor) for value in values):
            return _run(function, values, keywords, module)
        return function(*values, **keywords)

    return wrapped  # type: ignore[return-value]


def _run(function: Callable[..., Any], values: tuple[Any, ...], keywords: dict[str, Any], module: Any) -> Any:
    """Run a call with a DTensor among its values."""
    main = next(value for value in reversed(values) if isinstance(value, module.DTensor))
    dim = keywords.get("dim")
    axis = (keywords.get("axis", -1) if dim is None else dim) % max(main.ndim, 1)
    mesh_dim = _mesh_dim(main, axis, module)
    for name in ("out", "group", "comm", "axis_name", "carry"):
        if keywords.pop(name, None) is not None:
            raise ScanTypeError(f"{name} does not go with DTensors: results are new, and their mesh has the group")
    if keywords.pop("return_carry", False):
        raise ScanTypeError("return_carry does not go with DTensors: pass their local tensors, and a group")
    if mesh_dim is not None and keywords.get("include_initial"):
        raise ScanValueError("include_initial makes one shard longer, which no DTensor can hold: use initial instead")
    local = tuple(_local(value, main, axis, "x", module) for value in values)
    beside = {name: _local(value, main, axis, name, module) for name, value in keywords.items()}
    if mesh_dim is None:  # every rank has complete lines
        from cuscan import api

        results = getattr(api, function.__name__)(*local, **beside)
    else:
        results = function(*local, group=main.device_mesh.get_group(mesh_dim), **beside)
    if isinstance(results, tuple):
        return tuple(_global(result, main, module) for result in results)
    return _global(results, main, module)


def _mesh_dim(main: Any, axis: int, module: Any) -> int | None:
    """Return the mesh dimension that shards the axis, or None."""
    found = []
    for number, placement in enumerate(main.placements):
        if placement.is_partial() or not (placement.is_replicate() or type(placement) is module.Shard):
            raise ScanTypeError(f"x has placement {placement}; redistribute it to Shard or Replicate")
        if placement.is_shard(axis):
            found.append(number)
    if len(found) > 1:
        raise ScanTypeError(f"axis {axis} is sharded by {len(found)} mesh dimensions; redistribute x so that one does")
    return found[0] if found else None


def _local(value: Any, main: Any, axis: int, name: str, module: Any) -> Any:
    """Return this rank's part of an argument, sharded like the axes of `main` that it lies along."""
    if not isinstance(value, module.DTensor):
        if name in ("mask", "reset", "keys", "initial") and hasattr(value, "stride") and value.ndim:
            raise ScanTypeError(f"{name} is a tensor and x a DTensor; make it a DTensor on the same mesh")
        return value
    if name == "offsets":
        return value.full_tensor()
    if value.device_mesh != main.device_mesh:
        raise ScanValueError(f"{name} is on another device mesh than x")
    places = [_place(value, placement, main, axis, name, module) for placement in main.placements]
    gradients = [
        module.Partial() if place.is_replicate() and placement.is_shard() else place
        for place, placement in zip(places, main.placements, strict=True)
    ]
    local = value.redistribute(placements=places).to_local(grad_placements=gradients)
    return local.wait() if hasattr(local, "wait") else local  # the transfer may still be running


def _place(value: Any, placement: Any, main: Any, axis: int, name: str, module: Any) -> Any:
    """Return the placement of an argument on a mesh dimension where `main` has `placement`."""
    if not placement.is_shard():
        return module.Replicate()
    dim, rank = placement.dim, main.ndim
    if name == "initial":  # it lacks the scanned axis
        if dim == axis:
            return module.Replicate()
        dim, rank = dim - (dim > axis), rank - 1
    elif value.ndim == 1 and rank > 1 and value.shape[0] == main.shape[axis] and name != "x":
        dim, rank = (0 if dim == axis else -1), 1  # it lies along the scanned axis
    own = dim - (rank - value.ndim)
    return module.Shard(own) if own >= 0 and value.shape[own] > 1 else module.Replicate()


def _global(result: Any, main: Any, module: Any) -> Any:
    shape = tuple(main.shape)
    if result.shape[-1:] and tuple(result.shape) != tuple(main.to_local().shape):  # include_initial, in complete lines
        shape = tuple(n + (own - old) for n, own, old in zip(shape, result.shape, main.to_local().shape, strict=True))
    strides = dense_strides(shape, main.stride())
    return module.DTensor.from_local(
        result, main.device_mesh, main.placements, run_check=False, shape=_size(shape), stride=strides
    )


def _size(shape: tuple[int, ...]) -> Any:
    import torch

    return torch.Size(shape)
