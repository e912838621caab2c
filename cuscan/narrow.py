"""Narrow arrays: a few columns without gaps, scanned along the other axis in tiles of whole rows (narrow.cuh)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from cuscan.dense import is_plain
from cuscan.dtypes import DTYPES
from cuscan.layout import Dimension, Layout, accesses_of
from cuscan.order import GROUP, LANES
from cuscan.request import ScanRequest
from cuscan.tuning import COLUMNS, NARROW, NARROW_ACROSS, NARROW_ELEMENTS, VECTOR_BYTES

_WALK_BYTES = 16  # of carries side by side in a thread that walks a chain


class Narrow(NamedTuple):
    """What the kernel takes: units a tile, warps that scan and that walk, constants, bytes of shared memory."""

    column: Dimension
    batch: tuple[Dimension, ...]
    units: int
    warps: int
    walkers: int
    constants: dict[str, int]
    shared_bytes: int


def narrow_of(request: ScanRequest, layout: Layout, room: int, stages: int) -> Narrow | None:
    """A plain scan of dense columns, if they are few and fill a tile that fits `room` bytes; else None."""
    column = _dense_columns(request, layout) if is_plain(request) else None
    if column is None or column.size > max(NARROW):
        return None
    (value,), (result,) = ([spec.dtype for spec in specs] for specs in (request.values, request.results))
    columns = column.size
    (value_step, result_step, *_) = layout.axis.strides
    warps, walkers, block_room = NARROW[min(limit for limit in NARROW if columns <= limit)]
    accumulator, carry = DTYPES[result.accumulator].itemsize, DTYPES[request.carry].itemsize
    in_place = value == result and value_step == result_step
    tile_bytes = COLUMNS.unit * columns * (stages * value.itemsize + (0 if in_place else result.itemsize))
    unit_bytes = tile_bytes + 2 * (LANES * (columns | 1) + 2 * columns) * accumulator
    fitting = min(min(block_room, room) // unit_bytes, warps * NARROW_ELEMENTS // (COLUMNS.unit * columns), GROUP)
    if fitting == 0:
        return None
    units = 1 << (fitting.bit_length() - 1)  # a power of two: no tile straddles a group
    if layout.axis.size < units * COLUMNS.unit:
        return None
    abreast = min(columns, max(_WALK_BYTES // carry, 1))
    walkers = min(-(-columns // abreast), walkers)
    widest = max(value.itemsize, result.itemsize)
    constants = {
        "Columns": columns,
        "Units": units,
        "Steps": COLUMNS.items,
        "Warps": warps,
        "Walkers": walkers,
        "Abreast": abreast,
        "Across": min(columns & -columns, NARROW_ACROSS[request.mask is not None], VECTOR_BYTES // widest),
        "InPlace": int(in_place),
        "ValueBack": int(value_step < 0),
        "ResultBack": int(result_step < 0),
    }
    batch = tuple(d for d in layout.others if d is not column)
    return Narrow(column, batch, units, warps, walkers, constants, units * unit_bytes)


def flat_accesses(layout: Layout, column: Dimension, others: Sequence[Dimension], least: int) -> tuple[str, ...]:
    """The access to dense columns in the order of memory, by vectors of `least` bytes; masks are read item by item."""
    # The rows of a reversed scan come last to first, and so do all elements if one starts from a row's last column.
    backwards = [step < 0 for step in layout.axis.strides]
    starts = [
        offset + (column.size - 1) * step * back
        for offset, step, back in zip(layout.offsets, column.strides, backwards, strict=True)
    ]
    steps = [-step if back else step for step, back in zip(column.strides, backwards, strict=True)]
    flat = Dimension(layout.axis.size * column.size, tuple(steps))
    value, result, *_ = accesses_of(layout._replace(offsets=tuple(starts)), flat, others, 1, least)
    return value, result, "Element" if layout.arrays[2] else "None", "None", "None", "None"


def _dense_columns(request: ScanRequest, layout: Layout) -> Dimension | None:
    """The columns beside the scanned axis, if value and result hold them row after row without gaps."""
    steps, sizes = layout.axis.strides, [spec.dtype.itemsize for spec in (*request.values, *request.results)]
    faster = [d for d in layout.others if abs(d.strides[1]) < abs(steps[1])]
    column = faster[0]  # there is one: the scanned axis is not the contiguous one
    dense = all(column.strides[i] == size and abs(steps[i]) == column.size * size for i, size in enumerate(sizes))
    return column if dense and len(faster) == 1 else None
