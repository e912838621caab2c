"""Segment starts as bits, one for each position, and the launch that computes them (segment_starts.cuh).

The scan reads bits where offsets give the segments, or flags or keys that all lines share: 32 positions in a word for
all lines, in place of an item for each position of each line.
"""

from __future__ import annotations

import dataclasses
import functools
import math

from cuscan.kept import MOST
from cuscan.order import COLUMNS
from cuscan.planning.assemble import index_dtype, state_bytes
from cuscan.planning.config import Preparation, StartsConfig, Target
from cuscan.planning.hardware import BULK_ARCH
from cuscan.request import ScanRequest
from cuscan.request.kind import CallKind
from cuscan.request.layout import layout_of, runs_along
from cuscan.specs import Segments

FEWEST = 1 << 23  # elements of a scan by flags or keys; with fewer, the launch takes longer than the bits save
FEWEST_ACROSS = 1 << 18  # the same by keys where strips and whole rows can take bits: they take no keys
MOST_STATE = 16  # bytes of a state of such a scan, at most; with wider ones, tiles that read bits spill registers


def _become_bits(segments: Segments, request: ScanRequest, target: Target) -> bool:
    """Return whether flags or keys become bits: if all lines share them, with many elements and small states."""
    shape, axis = request.shape, request.axis
    if segments.kind == "keys" and (request.carry_in or request.carry_out):  # carries hold a key for each line
        return False
    lines = [i for i, n in enumerate(shape) if i != axis and n > 1]
    if not lines or any([segments.array.strides[i] for i in lines]):
        return False
    elements = math.prod(shape)
    if elements < FEWEST and not (elements >= FEWEST_ACROSS and _keeps_strips_out(segments, request, target)):
        return False
    return state_bytes(request.kind, index_dtype(request))[0] <= MOST_STATE


def _keeps_strips_out(segments: Segments, request: ScanRequest, target: Target) -> bool:
    """Return whether strips or whole rows may take a scan whose segment starts are bits, but not with these items."""
    if segments.kind != "keys" or target.arch < BULK_ARCH or request.shape[request.axis] < COLUMNS.unit:
        return False
    return not runs_along(request, layout_of(request))


def with_bits(request: ScanRequest, target: Target) -> ScanRequest:
    """Return the request that the scan itself is planned for: one by offsets, if its segment starts become bits.

    Planning a scan by offsets does not look at their array.
    """
    segments = request.segments
    if segments is None or segments.kind == "offsets" or not _become_bits(segments, request, target):
        return request
    return request._replace(kind=_by_offsets(request.kind), segments=Segments("offsets", segments.array))


@functools.lru_cache(MOST)
def _by_offsets(kind: CallKind) -> CallKind:
    return dataclasses.replace(kind, segments="offsets")


def plan_starts(request: ScanRequest, target: Target) -> Preparation | None:
    """Return the launch for a request whose scan reads segment starts as bits; None for all others."""
    segments = request.segments
    by_offsets = segments is not None and segments.kind == "offsets"
    if segments is None or not (by_offsets or _become_bits(segments, request, target)):
        return None
    given, length = segments.array, request.shape[request.axis]
    config = StartsConfig(given.dtype.cpp, segments.kind, carries=by_offsets and bool(request.carry_in))
    pieces = max(-(-length // config.piece), 1)
    run = -(-pieces // (target.sm_count * config.blocks_per_sm * config.warps))  # pieces per warp
    step = given.strides[0 if by_offsets else request.axis] * given.dtype.itemsize
    return Preparation(
        config,
        segments.kind,
        grid=-(-pieces // (run * config.warps)),
        words=(
            given.shape[0] if by_offsets else length,
            step,
            length,
            pieces * config.piece,
            run * config.piece,
            int(request.reverse),
        ),
        nbytes=pieces * config.piece // 8,
    )
