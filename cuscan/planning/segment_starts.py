"""Offsets of segments as bits, which kernels read: a launch of its own before that of the scan (segment_starts.cuh)."""

from __future__ import annotations

from typing import NamedTuple

from cuscan.planning.config import StartsConfig, Target
from cuscan.request import ScanRequest

PIECE = 32 * 32  # positions: a word for each lane of a warp


class StartsPlan(NamedTuple):
    """A launch, complete but for the addresses.

    `words` are the kernel's struct Segmentation. `nbytes` of memory take a bit for each position along the axis, up to
    a whole piece.
    """

    config: StartsConfig
    grid: int
    words: tuple[int, ...]
    nbytes: int


def plan_starts(request: ScanRequest, target: Target) -> StartsPlan | None:
    """The plan for a request with segments that offsets give; None for all others."""
    segments = request.segments
    if segments is None or segments.kind != "offsets":
        return None
    offsets, length = segments.array, request.shape[request.axis]
    config = StartsConfig(offsets.dtype.cpp, carries=bool(request.carry_in))
    pieces = max(-(-length // PIECE), 1)
    run = -(-pieces // (target.sm_count * config.blocks_per_sm * config.warps))  # pieces of a warp
    step = offsets.strides[0] * offsets.dtype.itemsize
    return StartsPlan(
        config,
        grid=-(-pieces // (run * config.warps)),
        words=(offsets.shape[0], step, length, pieces * PIECE, run * PIECE, int(request.reverse)),
        nbytes=pieces * PIECE // 8,
    )
