"""Kernels ahead of time: those that shapes, strides and alignments of a kind of call can need, found by planning."""

from __future__ import annotations

import functools
import itertools
import math
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from cuscan.errors import MissingDependencyError, ScanValueError
from cuscan.imagined import Places, requests_of
from cuscan.places import FEW, places_of, places_of_rows, turned_places
from cuscan.planning import make_plan
from cuscan.planning.config import AnyConfig, CopyConfig, Target
from cuscan.planning.flag_copies import FEWEST
from cuscan.planning.preparations import preparations
from cuscan.request import ScanRequest
from cuscan.request.call import find_dtype
from cuscan.request.checks import check_axis
from cuscan.words import Call

Progress = Callable[[int, int], None]

_SMS = 132  # of the GPU that plans are made for where there is none
_LARGEST = 2**34  # elements of an array, at most
# What planning is tried with where no shapes are given: rows and their lengths, steps of another axis and columns.
_AROUND = sorted({2**k + d for k in range(1, 33) for d in (-1, 0, 1)} | {3 * 2**k for k in range(32)})
_LENGTHS = sorted({*range(1, 65), *range(96, 1100, 32), *(n for n in _AROUND if n > 64)})
_LINES = (1, 8, 300, 20_000, 2**20)
_WIDTHS = (*range(1, 331), *(n for n in _AROUND if 330 < n < 2**20))
_TURNED_STEPS, _TURNED_WIDTH = 512, 330  # least steps and most columns of scans that transpose
_STEPS = sorted(2**k + d for k in range(1, 23) for d in (0, 1))


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
    general: bool = False,
    progress: Progress | None = None,
    **words: Any,
) -> Warmed:
    """Compile the kernels of a kind of call into the cache, so that no call waits for the compiler.

    Args:
        op: as for `scan`, or "linear_recurrence".
        dtype: of x.
        shapes: pairs of a shape and an axis; the kernels that these can need with any strides and alignments. Without:
            those of all shapes that planning some ten thousand finds, which are many, of up to two axes that are apart,
            and of arrays that vary along the axis: a decay for each channel needs shapes.
        arch: the architecture, 90 for sm_90; no GPU is needed then. Without: that of the current GPU.
        general: only the general kernels, a few for all shapes. With $CUSCAN_COMPILE "never" or "background" calls use
            them while their own kernels are missing, which are mostly faster; "background" compiles those meanwhile.
        progress: called with the number of kernels that are there and that of all, before the first and after each.
        words: `result`, the dtype of the result (`dtype` of `scan`); as for `scan` or `cummax`: `reverse`, `exclusive`,
            `include_initial`, `skipna`, `return_carry`, `return_indices`, `ties`; whether there are a `mask` and an
            `initial` number; `segments`: "reset", "keys" or "offsets", and their `segment_dtype`, by default int32 keys
            and int64 offsets; whether a `carry` comes in; whether it is a `total`; of a recurrence, whether its decay
            is a `number`, whether it has an `initial_array`, and `return_last`.

    Returns:
        How many kernels there are, how many of them were compiled, and the bytes of all.

    Raises: as `scan`; `MissingDependencyError` without CuPy or NVRTC.
    """
    call = Call(op, find_dtype(dtype).name, **words)
    target = find_target(arch)
    return compile_all(kernels(call, target, shapes, general=general), target.arch, progress)


def kernels(
    call: Call,
    target: Target,
    shapes: Iterable[tuple[tuple[int, ...], int]] | None = None,
    *,
    general: bool = False,
) -> dict[AnyConfig, ScanRequest]:
    """The kernels of a kind of call on a GPU, each with the first request that needs it."""
    found: dict[AnyConfig, ScanRequest] = {}
    for shape, axis, places in _shapes(_AROUND if general else _WIDTHS) if shapes is None else _given(shapes):
        axis = check_axis(axis, "x", shape)  # noqa: PLW2901
        for request in requests_of(call, shape, axis, places):
            try:
                found.setdefault(make_plan(request, target, general=general).config, request)
            except ScanValueError:  # too large for one launch
                continue
            for before in preparations(request, target):
                found.setdefault(before.config, request)
            if (call.mask or call.segments == "reset") and len(shape) > 1 and math.prod(shape) >= FEWEST:
                found.setdefault(CopyConfig(), request)  # flags may lie across the values
    return found


def compile_all(wanted: Iterable[AnyConfig], arch: int, progress: Progress | None = None) -> Warmed:
    """Compile the kernels that the cache does not have, side by side."""
    try:
        from cuscan.compile import cache
        from cuscan.compile.module import compile_kernel, kernel_path
    except ImportError as error:  # no CuPy
        raise MissingDependencyError("cuscan.warm needs CuPy and NVRTC: pip install 'cuscan[cuda12]'") from error

    wanted, done, compiled, nbytes = list(wanted), 0, 0, 0

    def one(kernel: AnyConfig) -> tuple[bool, int]:
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


# ---- shapes ----------------------------------------------------------------------------------------------------------


def _shapes(widths: Iterable[int]) -> Iterator[tuple[tuple[int, ...], int, Places]]:
    for lines, length in itertools.product(_LINES, _LENGTHS):
        if lines * length <= _LARGEST:
            yield (lines, length), 1, functools.partial(places_of_rows, length, few=True)
    for steps, width in itertools.product(_STEPS, widths):
        if steps * width <= _LARGEST:
            yield (steps, width), 0, lambda _: FEW
            if steps >= _TURNED_STEPS and width <= _TURNED_WIDTH:
                yield (steps, width), 0, turned_places


def _given(shapes: Iterable[tuple[tuple[int, ...], int]]) -> Iterator[tuple[tuple[int, ...], int, Places]]:
    for shape, axis in shapes:
        yield tuple(shape), axis, functools.partial(places_of, tuple(shape))
