"""Where the elements of a scan lie: axes and strides in scan direction, and how vectors of them are read."""

from __future__ import annotations

from collections.abc import Sequence
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
    still = (0,) * len(request.shape)
    strides = [[s * a.dtype.itemsize for s in a.strides] if a else still for a in arrays]
    dims = list(map(Dimension, request.shape, zip(*strides, strict=True)))
    size, steps = dims.pop(request.axis)
    extra = int(request.include_initial)
    offsets = (0,) * len(arrays)
    if request.reverse:
        last = size - 1
        is_result = range(first, first + len(request.results))
        # An array without elements may have no address to count back from.
        offsets = tuple([max(last + extra if i in is_result else last, 0) * s for i, s in enumerate(steps)])
        steps = tuple([-s for s in steps])
    axis = Dimension(size + extra, steps)
    others = [d for d in dims if d.size > 1]
    if len(others) > 1:
        others.sort(key=lambda dim: (abs(dim.strides[first]), abs(dim.strides[first - 1])))
        others = _merge(others)
    step = abs(steps[first])
    contiguous = axis.size == 1 or all([step <= abs(d.strides[first]) for d in others])
    return Layout(arrays, axis, tuple(others), offsets, contiguous)


def _merge(dims: list[Dimension]) -> list[Dimension]:
    """Join neighbouring axes that one stride can walk, in every array. The fastest come first."""
    merged = dims[:1]
    for dim in dims[1:]:
        last = merged[-1]
        if dim.strides == tuple([last.size * stride for stride in last.strides]):
            merged[-1] = Dimension(last.size * dim.size, last.strides)
        else:
            merged.append(dim)
    return merged


def accesses_of(
    layout: Layout, along: Dimension, others: Sequence[Dimension], items: int, least: int = 1
) -> tuple[str, ...]:
    """How vectors of `items` neighbours along `along` can be read in every array, wherever `others` lead.

    They must be aligned to their own size, but to no more than one access takes, and to `least` bytes.
    """
    return tuple(
        [
            _access(layout, array, along.strides[array], others, items, least) if spec else "None"
            for array, spec in enumerate(layout.arrays)
        ]
    )


def _access(layout: Layout, array: int, step: int, others: Sequence[Dimension], items: int, least: int) -> str:
    spec = layout.arrays[array]
    assert spec is not None
    if step == 0:
        return "Number" if spec.is_number else "Uniform"
    size = spec.dtype.itemsize
    if step not in (size, -size):
        return "Element"
    nbytes = max(min(size * items, VECTOR_BYTES), least)
    # A mirrored vector ends with its first item: the byte behind that item is what must be aligned.
    edge = spec.address + layout.offsets[array] + (size if step < 0 else 0)
    if edge % nbytes:
        return "Element"
    for dim in others:
        if dim.strides[array] % nbytes:
            return "Element"
    return "Vector" if step > 0 else "Mirrored"


def shifted_access(spec: ArraySpec | None, step: int) -> str:
    """The access to vectors of neighbours along `step` that lie anywhere."""
    if spec is None or abs(step) != spec.dtype.itemsize:
        return "Element"
    return "Shifted" if step > 0 else "ShiftedMirrored"


def span_of(layout: Layout, array: int, elements: int) -> tuple[int, int]:
    """Bytes from scan position 0 to an array's lowest address, and to the end of its highest element.

    The scanned axis has so many elements.
    """
    spec = layout.arrays[array]
    assert spec is not None
    reach = max(elements - 1, 0) * layout.axis.strides[array]
    lowest, highest = min(reach, 0), max(reach, 0)
    for dim in layout.others:
        reach = (dim.size - 1) * dim.strides[array]
        lowest, highest = lowest + min(reach, 0), highest + max(reach, 0)
    return lowest, highest + spec.dtype.itemsize
