"""Plans of the launch that converts segment offsets to bits, before the scan reads them (segment_starts.cuh)."""

from __future__ import annotations

from typing import NamedTuple

from cuscan.planning.config import StartsConfig, Target
from cuscan.request import ScanRequest

PIECE = 32 * 32  # positions: one 32-bit word of bits per lane of a warp


class StartsPlan(NamedTuple):
    """A launch, complete except for the addresses.

    `words` are the kernel's struct Segmentation. `nbytes` is the memory for one bit per position along the axis,
    rounded up to whole pieces.
    """

    config: StartsConfig
    grid: int
    words: tuple[int, ...]
    nbytes: int


def plan_starts(request: ScanRequest, target: Target) -> StartsPlan | None:
    """Return the plan for a request whose segments are given by offsets; None for all others."""
    segments = request.segments
    if segments is None or segments.kind != "offsets":
        return None
    offsets, length = segments.array, request.shape[request.axis]
    config = StartsConfig(offsets.dtype.cpp, carries=bool(request.carry_in))
    pieces = max(-(-length // PIECE), 1)
    run = -(-pieces // (target.sm_count * config.blocks_per_sm * config.warps))  # pieces per warp
    step = offsets.strides[0] * offsets.dtype.itemsize
    return StartsPlan(
        config,
        grid=-(-pieces // (run * config.warps)),
        words=(offsets.shape[0], step, length, pieces * PIECE, run * PIECE, int(request.reverse)),
        nbytes=pieces * PIECE // 8,
    )
