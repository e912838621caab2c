"""Where the elements of a scan lie: axes and strides in scan direction, and how vectors of them are read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from cuscan.request import ArraySpec, ScanRequest


class Dimension(NamedTuple):
    """An axis of the scan: its size and its strides, in elements (`Dimension` in geometry.cuh)."""

    size: int
    value: int
    result: int
    mask: int

    def strides(self) -> tuple[int, int, int]:
        return self[1:]


UNIT_DIMENSION = Dimension(1, 0, 0, 0)


class Layout(NamedTuple):
    """A request's axes in the scan's own terms: all strides run in scan direction.

    `others` are the axes beside the scanned one, the fastest of the result first, merged where one
    stride can walk two. The offsets lead from the addresses of value, result and mask to scan
    position 0. `contiguous`: no other axis of the result is faster.
    """

    axis: Dimension
    others: tuple[Dimension, ...]
    offsets: tuple[int, int, int]
    contiguous: bool


def layout_of(request: ScanRequest) -> Layout:
    """The layout of a request."""
    value, result, mask = request.value, request.result, request.mask
    mask_strides = mask.strides if mask else (0,) * len(value.shape)
    dims = [Dimension(*d) for d in zip(value.shape, value.strides, result.strides, mask_strides, strict=True)]
    axis = dims.pop(request.axis)
    offsets = (0, 0, 0)
    if request.reverse:
        last = axis.size - 1
        offsets = (last * axis.value, last * axis.result, last * axis.mask)
        axis = Dimension(axis.size, -axis.value, -axis.result, -axis.mask)
    others = _merge(sorted((d for d in dims if d.size > 1), key=lambda d: (abs(d.result), abs(d.value))))
    contiguous = axis.size == 1 or all(abs(axis.result) <= abs(d.result) for d in others)
    return Layout(axis, others, offsets, contiguous)


def _merge(dims: list[Dimension]) -> tuple[Dimension, ...]:
    """Join neighbouring axes that one stride can walk, in every array. The fastest come first."""
    merged: list[Dimension] = []
    for dim in dims:
        last = merged[-1] if merged else None
        if last and dim.strides() == tuple(last.size * stride for stride in last.strides()):
            merged[-1] = last._replace(size=last.size * dim.size)
        else:
            merged.append(dim)
    return tuple(merged)


def _access(spec: ArraySpec | None, step: int, items: int, offset: int, strides: Iterator[int], least: int) -> str:
    """How vectors of `items` neighbours along `step` can be read; `strides` lead to all other vectors.

    They must be aligned to their own size, and to `least` bytes.
    """
    if spec is None:
        return "None"
    size = spec.dtype.itemsize
    nbytes = max(size * items, least)
    # A mirrored vector ends with its first item: the byte behind that item is what must be aligned.
    edge = spec.address + offset * size + (size if step == -1 else 0)
    if abs(step) != 1 or edge % nbytes or any(stride * size % nbytes for stride in strides):
        return "Element"
    return "Vector" if step == 1 else "Mirrored"


def accesses_of(
    request: ScanRequest, layout: Layout, along: Dimension, others: list[Dimension], items: int, least: int = 1
) -> list[str]:
    """The access of value, result and mask, to vectors along `along` in all `others`."""
    specs = (request.value, request.result, request.mask)
    return [
        _access(spec, along[1 + i], items, layout.offsets[i], (d[1 + i] for d in others), least)
        for i, spec in enumerate(specs)
    ]


def dense_columns(layout: Layout) -> Dimension | None:
    """The columns beside the scanned axis, if value and result hold them row after row without gaps."""
    axis = layout.axis
    faster = [d for d in layout.others if abs(d.result) < abs(axis.result)] or [
        UNIT_DIMENSION._replace(value=1, result=1)
    ]
    column = faster[0]
    dense = column.value == column.result == 1 and abs(axis.value) == abs(axis.result) == column.size
    return column if dense and len(faster) == 1 else None


def flat_accesses(request: ScanRequest, layout: Layout, columns: int, others: list[Dimension], least: int) -> list[str]:
    """The access to dense columns in the order of memory, by vectors of `least` bytes; masks are read item by item."""
    axis = layout.axis
    # The rows of a reversed scan come last to first, and so do all elements if one starts from a row's last column.
    value, result, mask = layout.offsets
    starts = (value + (columns - 1) * (axis.value < 0), result + (columns - 1) * (axis.result < 0), mask)
    flat = Dimension(axis.size * columns, 1 if axis.value > 0 else -1, 1 if axis.result > 0 else -1, 0)
    return accesses_of(request, layout._replace(offsets=starts), flat, others, 1, least)
