"""Where the elements of a scan lie: axes and strides in scan direction, and how vectors of them are read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from cuscan.request import ScanRequest
from cuscan.specs import ArraySpec
from cuscan.tuning import VECTOR_BYTES


class Dimension(NamedTuple):
    """An axis of the scan: its size, and its stride in every array, in bytes (`Dimension` in geometry.cuh)."""

    size: int
    strides: tuple[int, ...]


class Layout(NamedTuple):
    """A request's axes in the scan's own terms: all strides run in scan direction.

    `arrays` are those of the request, in the order of the kernel's arguments; `offsets`, in bytes, lead from their
    addresses to scan position 0. `others` are the axes beside the scanned one, the fastest of the result first, merged
    where one stride can walk two. `contiguous`: no other axis of the result is faster.
    """

    arrays: tuple[ArraySpec | None, ...]
    axis: Dimension
    others: tuple[Dimension, ...]
    offsets: tuple[int, ...]
    contiguous: bool


def layout_of(request: ScanRequest) -> Layout:
    """The layout of a request."""
    segments = request.segments
    flags = segments.array if segments and segments.kind != "offsets" else None
    arrays = (*request.values, *request.results, request.mask, flags, request.row_initial, request.last)
    arrays += request.carry_in + request.carry_out
    first = len(request.values)  # of the results
    rank = len(request.shape)
    strides = [tuple(s * a.dtype.itemsize for s in a.strides) if a else (0,) * rank for a in arrays]
    dims = [Dimension(n, tuple(s[i] for s in strides)) for i, n in enumerate(request.shape)]
    axis = dims.pop(request.axis)
    extra = int(request.include_initial)
    offsets = (0,) * len(arrays)
    if request.reverse:
        last = axis.size - 1
        is_result = range(first, first + len(request.results))
        offsets = tuple((last + extra if i in is_result else last) * s for i, s in enumerate(axis.strides))
        axis = Dimension(axis.size, tuple(-s for s in axis.strides))
    axis = axis._replace(size=axis.size + extra)

    def speed(dim: Dimension) -> tuple[int, int]:
        return abs(dim.strides[first]), abs(dim.strides[first - 1])

    others = _merge(sorted((d for d in dims if d.size > 1), key=speed))
    contiguous = axis.size == 1 or all(abs(axis.strides[first]) <= abs(d.strides[first]) for d in others)
    return Layout(arrays, axis, others, offsets, contiguous)


def _merge(dims: list[Dimension]) -> tuple[Dimension, ...]:
    """Join neighbouring axes that one stride can walk, in every array. The fastest come first."""
    merged: list[Dimension] = []
    for dim in dims:
        last = merged[-1] if merged else None
        if last and dim.strides == tuple(last.size * stride for stride in last.strides):
            merged[-1] = last._replace(size=last.size * dim.size)
        else:
            merged.append(dim)
    return tuple(merged)


def _access(spec: ArraySpec | None, step: int, items: int, offset: int, strides: Iterable[int], least: int) -> str:
    """How vectors of `items` neighbours along `step` can be read; `strides` lead to all other vectors.

    They must be aligned to their own size, but to no more than one access takes, and to `least` bytes.
    """
    if spec is None:
        return "None"
    if step == 0:
        return "Number" if spec.is_number else "Uniform"
    size = spec.dtype.itemsize
    nbytes = max(min(size * items, VECTOR_BYTES), least)
    # A mirrored vector ends with its first item: the byte behind that item is what must be aligned.
    edge = spec.address + offset + (size if step == -size else 0)
    if abs(step) != size or edge % nbytes or any(stride % nbytes for stride in strides):
        return "Element"
    return "Vector" if step == size else "Mirrored"


def accesses_of(
    layout: Layout, along: Dimension, others: Sequence[Dimension], items: int, least: int = 1
) -> tuple[str, ...]:
    """The access of every array, to vectors along `along` in all `others`."""
    return tuple(
        _access(spec, along.strides[i], items, layout.offsets[i], (d.strides[i] for d in others), least)
        for i, spec in enumerate(layout.arrays)
    )


def shifted_access(spec: ArraySpec | None, step: int) -> str:
    """The access to vectors of neighbours along `step` that lie anywhere."""
    if spec is None or abs(step) != spec.dtype.itemsize:
        return "Element"
    return "Shifted" if step > 0 else "ShiftedMirrored"


def span_of(layout: Layout, array: int, elements: int) -> tuple[int, int]:
    """Bytes from scan position 0 to an array's lowest address, and to the end of its highest element.

    The scanned axis has so many elements. Of an array that is not there: nothing.
    """
    spec = layout.arrays[array]
    if spec is None:
        return 0, 0
    dims = (layout.axis._replace(size=elements), *layout.others)
    reach = [max(dim.size - 1, 0) * dim.strides[array] for dim in dims]
    return sum(r for r in reach if r < 0), sum(r for r in reach if r > 0) + spec.dtype.itemsize
