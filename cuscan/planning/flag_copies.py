"""Flags copied into the order of the values, and the launch that copies them (flag_copies.cuh).

A mask in C order beside values in Fortran order lies across the rows that are scanned: a sector has one or two flags of
a row. Where rows are contiguous in the values, the scan reads a copy.
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

from cuscan.kept import MOST
from cuscan.order import SECTOR
from cuscan.planning.assemble import round_up
from cuscan.planning.config import CopyConfig, Preparation
from cuscan.planning.hardware import WARP
from cuscan.planning.tuning import VECTOR_BYTES
from cuscan.request import ScanRequest
from cuscan.request.layout import Dimension, layout_of, merged, runs_along
from cuscan.specs import ArraySpec, Segments

FEWEST = 1 << 20  # flags; with fewer, the launch takes longer than the copy saves
MOST_FLAGS = 1 << 30  # of a copy, which the workspace keeps; it takes up to 1.7 times as many bytes
SHORTEST, NARROWEST = 32, 8  # flags of a row, and across rows; fewer would leave most of a tile empty
APART = 16  # bytes from flag to flag of a row, least: a sector then has at most two of them
_OTHERS = 4  # axes beside the two that tiles have
_PATCH = 4  # flags along each axis of a thread's patch


class _Copy(NamedTuple):
    """A copy of flags: its strides; their fastest axis; the other axes along which they vary, the fastest first.

    Strides of axes are those of the flags and of the copy, whose rows are an odd multiple of 16 bytes apart: they begin
    at words, and threads that read neighbouring ones cause few bank conflicts. `flags` is their number.
    """

    strides: tuple[int, ...]
    flags: int
    nbytes: int
    across: Dimension
    others: list[Dimension]


def in_order(request: ScanRequest) -> ScanRequest:
    """Return the request that the scan itself is planned for: one whose flags lie as their copies do."""
    for role, flags, copy in _copies(request):
        spec = flags._replace(strides=copy.strides, address=0, reach=(0, copy.nbytes))
        request = request._replace(**{"mask": spec} if role == "mask" else {"segments": Segments(role, spec)})
    return request


def plan_copies(request: ScanRequest) -> list[Preparation]:
    """Return the launches that copy flags."""
    return [_plan(role, flags, copy, request.axis) for role, flags, copy in _copies(request)]


def _plan(role: str, flags: ArraySpec, copy: _Copy, axis: int) -> Preparation:
    config, length = CopyConfig(), flags.shape[axis]
    # Tiles are as wide as the flags need, from a sector to a warp's words.
    level = min(max(-(-copy.across.size // _PATCH) - 1, SECTOR // _PATCH - 1).bit_length(), WARP.bit_length() - 1)
    wide, high = _PATCH << level, _PATCH * config.patches >> level
    tiles = -(-copy.across.size // wide), -(-length // high)
    others = copy.others + [Dimension(1, (0, 0))] * (_OTHERS - len(copy.others))
    axes = (copy.across, Dimension(length, (flags.strides[axis], copy.strides[axis])), *others)
    words = [word for dim in axes for word in (dim.size, *dim.strides)]
    return Preparation(
        config,
        role,
        grid=math.prod([*tiles, *[dim.size for dim in others]]),
        words=(*words, *tiles, level, *flags.reach),
        nbytes=copy.nbytes,
    )


def _copies(request: ScanRequest) -> list[tuple[str, ArraySpec, _Copy]]:
    """Return the flags that need a copy, with their roles and their copies."""
    given = [] if request.mask is None else [("mask", request.mask)]
    if request.segments is not None and request.segments.kind == "reset":
        given.append(("reset", request.segments.array))
    copies = []
    for role, flags in given:
        copy = _copied(flags.shape, flags.strides, request.results[0].strides, request.axis)
        if copy is not None and copy.flags <= flags.reach[1] - flags.reach[0]:  # flags do not overlap
            copies.append((role, flags, copy))
    return copies if copies and runs_along(request, layout_of(request)) else []


@functools.lru_cache(MOST)
def _copied(shape: tuple[int, ...], strides: tuple[int, ...], order: tuple[int, ...], axis: int) -> _Copy | None:
    """Return the copy of flags if they lie across the scanned axis; `order` are the strides of the results.

    Axes along which the flags do not vary are not copied.
    """
    axes = [a for a, n in enumerate(shape) if n > 1 and strides[a] != 0]
    if axis not in axes or len(axes) < 2 or shape[axis] < SHORTEST:
        return None
    count, pitch = math.prod([shape[a] for a in axes]), round_up(shape[axis], VECTOR_BYTES) | VECTOR_BYTES
    if not FEWEST <= count <= MOST_FLAGS:
        return None
    fastest = min(axes, key=lambda a: abs(strides[a]))
    if abs(strides[axis]) < APART or abs(strides[fastest]) > _PATCH or shape[fastest] < NARROWEST:
        return None
    copied, dims, step = [0] * len(shape), dict[int, Dimension](), pitch
    copied[axis] = 1
    for a in sorted((a for a in axes if a != axis), key=lambda a: abs(order[a])):
        dims[a] = Dimension(shape[a], (strides[a], step))
        copied[a] = step
        step *= shape[a]
    across, others = dims.pop(fastest), merged(list(dims.values()))
    return _Copy(tuple(copied), count, step, across, others) if len(others) <= _OTHERS else None
