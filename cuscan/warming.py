"""Kernels ahead of time: those that shapes, strides and alignments of a kind of call can need, found by planning."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from cuscan.dtypes import DTYPES, DType
from cuscan.errors import MissingDependencyError, ScanValueError
from cuscan.interop.numpy import LIBRARY
from cuscan.interop.view import ArrayKind, ArrayView, Device
from cuscan.operators import LINEAR_RECURRENCE, Monoid
from cuscan.planning import make_plan
from cuscan.planning.config import Config, StartsConfig, Target
from cuscan.planning.segment_starts import plan_starts
from cuscan.request import ScanRequest, make_request
from cuscan.request.call import CARRY, Flags, Operands, choose_extremum, find_dtype, find_operator, make_flags
from cuscan.request.checks import check_axis
from cuscan.specs import dense_strides
from cuscan.words import Call

Kernel = Config | StartsConfig
Place = tuple[int, int, int, int]
Progress = Callable[[int, int], None]

_GPU = Device("cuda", 0)
_SMS = 132  # of the GPU that plans are made for where there is none
_LARGEST = 2**34  # elements of an array, at most
# What planning is tried with where no shapes are given: rows and their lengths, steps of another axis and columns.
_AROUND = sorted({2**k + d for k in range(1, 33) for d in (-1, 0, 1)} | {3 * 2**k for k in range(32)})
_LENGTHS = sorted({*range(1, 65), *range(96, 1100, 32), *(n for n in _AROUND if n > 64)})
_LINES = (1, 8, 300, 20_000, 2**20)
_WIDTHS = (*range(1, 331), *(n for n in _AROUND if 330 < n < 2**20))
_STEPS = sorted(2**k + d for k in range(1, 23) for d in (0, 1))
# Where arrays lie: elements from a boundary of 16 bytes to the first of x, and of the result; elements between rows;
# from one to the next. A few ways to lie, for shapes that are tried with many others.
_FEW_PLACES = ((0, 0, 0, 1), (1, 1, 0, 1), (0, 1, 0, 1), (0, 0, 1, 1), (0, 0, 4, 1), (0, 0, 0, 2))


def _places(length: int) -> Iterator[Place]:
    """All ways to lie that tell kernels apart, for rows of a length: any alignment of the first one and the others."""
    gaps = {0, 1, 2, 4, *(-length % multiple for multiple in (2, 4, 8, 16))}
    yield from itertools.product((0, 1, 2), (0, 1, 2), sorted(gaps), (1,))
    yield from ((0, 0, 0, 2), (0, 0, 0, -1))


class Warmed(NamedTuple):
    """What `warm` did: kernels that the calls can need, those of them that were compiled, and the bytes of all."""

    kernels: int
    compiled: int
    nbytes: int

    def __str__(self) -> str:
        return f"{self.kernels} kernels of {self.nbytes / 2**20:.1f} MiB, {self.compiled} of them compiled now"


def warm(
    op: Any = "add",
    dtype: Any = "float32",
    *,
    shapes: Iterable[tuple[tuple[int, ...], int]] | None = None,
    arch: int | None = None,
    progress: Progress | None = None,
    **words: Any,
) -> Warmed:
    """Compile the kernels of a kind of call into the cache, so that no call waits for the compiler.

    Args:
        op: as for `scan`, or "linear_recurrence".
        dtype: of x.
        shapes: pairs of a shape and an axis; the kernels that these can need with any alignment, rows apart and steps.
            Without: those of all shapes that planning some ten thousand finds, which are many.
        arch: the architecture, 90 for sm_90; no GPU is needed then. Without: that of the current GPU.
        progress: called with the number of kernels that are there and that of all, before the first and after each.
        words: `result`, the dtype of the result (`dtype` of `scan`); as for `scan` or `cummax`: `reverse`, `exclusive`,
            `include_initial`, `skipna`, `return_carry`, `return_indices`, `ties`; whether there are a `mask` and an
            `initial` number; `segments`: "reset", "keys" (of int32) or "offsets" (of int64); whether a `carry` comes
            in.

    Returns:
        How many kernels there are, how many of them were compiled, and the bytes of all.

    Raises: as `scan`; `MissingDependencyError` without CuPy or NVRTC.
    """
    call = Call(op, find_dtype(dtype).name, **words)
    target = find_target(arch)
    return compile_all(kernels(call, target, shapes), target.arch, progress)


def kernels(
    call: Call, target: Target, shapes: Iterable[tuple[tuple[int, ...], int]] | None = None
) -> dict[Kernel, ScanRequest]:
    """The kernels of a kind of call on a GPU, each with the first request that needs it."""
    found: dict[Kernel, ScanRequest] = {}
    every = _shapes() if shapes is None else ((tuple(shape), axis, None) for shape, axis in shapes)
    for shape, axis, places in every:
        axis = check_axis(axis, "x", shape)  # noqa: PLW2901
        for request in _requests(call, shape, axis, places):
            try:
                found.setdefault(make_plan(request, target).config, request)
            except ScanValueError:  # too large for one launch
                continue
            starts = plan_starts(request, target)
            if starts:
                found.setdefault(starts.config, request)
    return found


def compile_all(wanted: Iterable[Kernel], arch: int, progress: Progress | None = None) -> Warmed:
    """Compile the kernels that the cache does not have, side by side."""
    from cuscan.compile import cache
    from cuscan.compile.module import compile_kernel, kernel_path

    wanted, done, compiled, nbytes = list(wanted), 0, 0, 0

    def one(kernel: Kernel) -> tuple[bool, int]:
        code = cache.read(kernel_path(kernel, arch))
        return code is None, len(compile_kernel(kernel, arch) if code is None else code)

    if progress:
        progress(0, len(wanted))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for done, (is_new, size) in enumerate(pool.map(one, wanted), 1):
            compiled, nbytes = compiled + is_new, nbytes + size
            if progress:
                progress(done, len(wanted))
    return Warmed(done, compiled, nbytes)


def find_target(arch: int | None) -> Target:
    """The current GPU, or one of an architecture."""
    if arch is not None:
        return Target(arch, _SMS)
    try:
        from cuscan.backends.cuda import current_target

        return current_target()
    except (ImportError, RuntimeError) as error:  # no CuPy, no driver or no GPU
        raise MissingDependencyError("there is no GPU to ask for its architecture: pass arch=, 90 for sm_90") from error


# ---- requests --------------------------------------------------------------------------------------------------------


def _shapes() -> Iterator[tuple[tuple[int, ...], int, tuple[Place, ...] | None]]:
    for lines, length in itertools.product(_LINES, _LENGTHS):
        if lines * length <= _LARGEST:
            yield (lines, length), 1, None
    for steps, width in itertools.product(_STEPS, _WIDTHS):
        if steps * width <= _LARGEST:
            yield (steps, width), 0, _FEW_PLACES


def _requests(call: Call, shape: tuple[int, ...], axis: int, places: Iterable[Place] | None) -> Iterator[ScanRequest]:
    """Requests of a shape whose arrays lie in different places: in all, if none are given."""
    op, flags = _flags_of(call, axis)
    dtypes = [find_dtype(name) for name in op.dtypes or (call.dtype,) * len(op.inputs)]
    beside, roles = _beside(call, shape, axis), (*op.inputs, *_roles(call))
    for value, result, gap, every in places or _places(shape[-1]):
        views = tuple(_view(shape, dtype, value * dtype.itemsize, gap, every) for dtype in dtypes) + beside
        made = make_request(flags, Operands(views, roles), has_initial=call.initial)
        outs = tuple(_view(r.shape, r.dtype, result * r.dtype.itemsize, gap) for r in made.results)
        carried = tuple(_view(shape[:axis] + shape[axis + 1 :], of.dtype) for of in made.kind.carry_fields * call.carry)
        operands = Operands(views + carried, roles + CARRY[1 : 1 + len(carried)], outs)
        yield make_request(flags, operands, has_initial=call.initial)


def _flags_of(call: Call, axis: int) -> tuple[Monoid, Flags]:
    op = LINEAR_RECURRENCE if call.op == "linear_recurrence" else call.op
    op = find_operator(choose_extremum(op, call.return_indices, call.ties))
    flags = make_flags(
        op,
        axis,
        call.reverse,
        call.exclusive,
        call.include_initial,
        call.skipna,
        call.result,
        return_carry=call.return_carry,
    )
    return op, flags


def _roles(call: Call) -> tuple[str, ...]:
    return ("mask",) * call.mask + (() if call.segments is None else (call.segments,))


def _beside(call: Call, shape: tuple[int, ...], axis: int) -> tuple[ArrayView, ...]:
    views = [_view(shape, DTYPES["bool"])] * call.mask
    if call.segments == "offsets":
        views.append(_view((shape[axis] + 1,), DTYPES["int64"]))
    elif call.segments is not None:
        views.append(_view(shape, DTYPES["bool" if call.segments == "reset" else "int32"]))
    return tuple(views)


def _view(shape: tuple[int, ...], dtype: DType, address: int = 0, gap: int = 0, every: int = 1) -> ArrayView:
    """An array without memory."""
    padded = (*shape[:-1], shape[-1] * abs(every) + gap) if shape else ()
    strides = dense_strides(padded, (0,) * len(shape))
    strides = (*strides[:-1], every) if shape else ()
    return ArrayView(None, ArrayKind(LIBRARY, dtype, shape, strides, _GPU), address)
