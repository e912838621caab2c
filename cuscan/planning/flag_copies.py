"""Flags copied into the order of the results, and the launch that copies them (flag_copies.cuh).

A mask in C order beside values in Fortran order lies across the rows that are scanned: a sector has one or two flags of
a row. A scan reads a copy of flags whose fastest axis no tile spans: tiles of contiguous rows span the scanned axis
alone, those of panels and strips also the fastest axes of results and values.
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

from cuscan.kept import MOST
from cuscan.planning.assemble import round_up
from cuscan.planning.config import CopyConfig, Preparation
from cuscan.planning.hardware import WARP
from cuscan.planning.tuning import VECTOR_BYTES
from cuscan.request import ScanRequest
from cuscan.request.layout import Dimension, layout_of, merged, runs_along
from cuscan.specs import ArraySpec, Segments

FEWEST = 1 << 20  # flags; with fewer, the launch takes longer than the copy saves
MOST_FLAGS = 1 << 30  # of a copy, which the workspace keeps; it takes up to 1.7 times as many bytes
SHORTEST, NARROWEST = 32, 8  # least flags of a row of the copy, of which a tile takes 128 or more, and across rows
APART = 16  # bytes from flag to flag of a row, least: a sector then has at most two of them
MANY = 1024  # least tiles of a copy, unless their columns would have fewer words than a warp has lanes
_OTHERS = 4  # axes beside the two that tiles have
_PATCH = 4  # flags along each axis of a thread's patch


class _Copy(NamedTuple):
    """A copy of flags: its strides, and the axes along which they vary.

    These are the flags' fastest axis, the one along the rows, and the others, the fastest first. Strides of axes are
    those of the flags and of the copy, whose rows are an odd multiple of 16 bytes apart: they begin at words, and
    threads that read neighbouring ones cause few bank conflicts. `flags` is their number.
    """

    strides: tuple[int, ...]
    flags: int
    nbytes: int
    across: Dimension
    along: Dimension
    others: list[Dimension]


def in_order(request: ScanRequest) -> ScanRequest:
    """Return the request that the scan itself is planned for: one whose flags lie as their copies do."""
    for role, flags, copy in _copies(request):
        spec = flags._replace(strides=copy.strides, address=0, reach=(0, copy.nbytes))
        request = request._replace(**{"mask": spec} if role == "mask" else {"segments": Segments(role, spec)})
    return request


def plan_copies(request: ScanRequest) -> list[Preparation]:
    """Return the launches that copy flags."""
    return [_plan(role, flags, copy) for role, flags, copy in _copies(request)]


def _plan(role: str, flags: ArraySpec, copy: _Copy) -> Preparation:
    config, patches = CopyConfig(), -(-copy.across.size // _PATCH)
    tiles_across = -(-patches // WARP)
    wide = -(-patches // tiles_across)
    others = copy.others + [Dimension(1, (0, 0))] * (_OTHERS - len(copy.others))
    columns = tiles_across * math.prod([dim.size for dim in others])
    # Warps store whole rows of words. Tiles are lower where there are few.
    highest = config.patches // wide // WARP
    high = WARP * max(min(highest, copy.along.size * columns // (MANY * _PATCH * WARP)), 1)
    tiles = tiles_across, -(-copy.along.size // (_PATCH * high))
    words = [word for dim in (copy.across, copy.along, *others) for word in (dim.size, *dim.strides)]
    return Preparation(
        config,
        role,
        grid=columns * tiles[1],
        words=(*words, *tiles, wide, high, *flags.reach),
        nbytes=copy.nbytes,
    )


def _copies(request: ScanRequest) -> list[tuple[str, ArraySpec, _Copy]]:
    """Return the flags that need a copy, with their roles and their copies."""
    given = [] if request.mask is None else [("mask", request.mask)]
    if request.segments is not None and request.segments.kind == "reset":
        given.append(("reset", request.segments.array))
    copies, result, axis = [], request.results[0], request.axis
    for role, flags in given:
        fastest, along = _fastest(flags), _fastest(result)
        if fastest is None or along is None or fastest == along:
            continue
        spanned = {axis, along, *map(_fastest, request.values)}
        if runs_along(request, layout_of(request)):
            spanned, along = {axis}, axis
        copy = None if fastest in spanned else _copied(flags.shape, flags.strides, result.strides, along, fastest)
        if copy is not None and copy.flags <= flags.reach[1] - flags.reach[0]:  # flags do not overlap
            copies.append((role, flags, copy))
    return copies


def _fastest(array: ArraySpec) -> int | None:
    """Return the axis along which an array's neighbours are closest in memory, or None if there is one element."""
    axes = [axis for axis, size in enumerate(array.shape) if size > 1 and array.strides[axis] != 0]
    return min(axes, key=lambda axis: abs(array.strides[axis])) if axes else None


@functools.lru_cache(MOST)
def _copied(
    shape: tuple[int, ...], strides: tuple[int, ...], order: tuple[int, ...], along: int, fastest: int
) -> _Copy | None:
    """Return a copy of flags with rows along an axis, or None if they are too few or lie too close along it.

    `order` are the strides of the results; `fastest` is the flags' own fastest axis. Axes along which they do not vary
    are not copied.
    """
    axes = [a for a, n in enumerate(shape) if n > 1 and strides[a] != 0]
    count = math.prod([shape[a] for a in axes])
    if along not in axes or len(axes) < 2 or not FEWEST <= count <= MOST_FLAGS:
        return None
    if abs(strides[along]) < APART or abs(strides[fastest]) > _PATCH or shape[fastest] < NARROWEST:
        return None
    rest = sorted((a for a in axes if a != along), key=lambda a: abs(order[a]))
    copied, length = [0] * len(shape), shape[along]
    copied[along] = 1
    while length < SHORTEST and strides[rest[0]] == length * strides[along]:  # short neighbouring rows are one
        copied[rest[0]] = length
        length *= shape[rest.pop(0)]
    if length < SHORTEST:
        return None
    dims, step = dict[int, Dimension](), round_up(length, VECTOR_BYTES) | VECTOR_BYTES
    for a in rest:
        dims[a] = Dimension(shape[a], (strides[a], step))
        copied[a] = step
        step *= shape[a]
    across, rows, others = dims.pop(fastest), Dimension(length, (strides[along], 1)), merged(list(dims.values()))
    return _Copy(tuple(copied), count, step, across, rows, others) if len(others) <= _OTHERS else None
