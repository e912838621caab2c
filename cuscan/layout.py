"""Where the elements of a scan lie: axes and strides in scan direction, and how vectors of them are read."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

from cuscan.request import ScanRequest
from cuscan.specs import ArraySpec, new_tuple
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
    kind, shape, axis, values, results, mask, segments, row_initial, last, carry_in, carry_out = request
    flags = segments.array if segments is not None and segments.kind != "offsets" else None
    arrays = (*values, *results, mask, flags, row_initial, last, *carry_in, *carry_out)
    first = len(values)  # of the results
    still = (0,) * len(shape)
    strides: list[Sequence[int]] = []
    alike: Any = None  # the array before: most lie alike
    for spec in arrays:
        if spec is None:
            strides.append(still)
            continue
        if alike is None or spec.strides != alike.strides or spec.dtype is not alike.dtype:
            itemsize, alike = spec.dtype.itemsize, spec
            steps = [step * itemsize for step in spec.strides]
        strides.append(steps)
    columns = list(zip(*strides))  # noqa: B905  # strict=True takes 0.6 us
    size, along = shape[axis], columns[axis]
    extra = int(kind.include_initial)
    offsets = (0,) * len(arrays)
    if kind.reverse:
        # An array without elements may have no address to count back from.
        places = [max(size - 1, 0)] * len(arrays)
        places[first : first + len(results)] = [max(size - 1 + extra, 0)] * len(results)
        offsets = tuple(map(operator.mul, places, along))
        along = tuple([-step for step in along])
    others = [new_tuple(Dimension, (n, columns[a])) for a, n in enumerate(shape) if n > 1 and a != axis]
    if len(others) > 1:
        others.sort(key=lambda dim: abs(dim.strides[first]))  # no two are as fast: results do not overlap
        others = _merge(others)
    # The others come sorted.
    contiguous = size + extra == 1 or not others or abs(along[first]) <= abs(others[0].strides[first])
    line = new_tuple(Dimension, (size + extra, along))
    return new_tuple(Layout, (arrays, line, tuple(others), offsets, contiguous))


def _merge(dims: list[Dimension]) -> list[Dimension]:
    """Join neighbouring axes that one stride can walk, in every array. The fastest come first."""
    merged = dims[:1]
    for dim in dims[1:]:
        size, strides = merged[-1]
        # Mostly the first array tells.
        if dim.strides[0] == size * strides[0] and dim.strides == tuple([size * stride for stride in strides]):
            merged[-1] = Dimension(size * dim.size, strides)
        else:
            merged.append(dim)
    return merged


def accesses_of(
    layout: Layout, along: Dimension, others: Sequence[Dimension], items: int, least: int = 1
) -> tuple[str, ...]:
    """How vectors of `items` neighbours along `along` can be read in every array, wherever `others` lead.

    They must be aligned to their own size, but to no more than one access takes, and to `least` bytes.
    """
    accesses = []
    steps = along.strides
    for array, spec in enumerate(layout.arrays):
        if spec is None:
            accesses.append("None")
            continue
        step, size, access = steps[array], spec.dtype.itemsize, "Element"
        if step == 0:
            access = "Number" if spec.is_number else "Uniform"
        elif abs(step) == size:
            # A mirrored vector ends with its first item: the byte behind that item is what must be aligned.
            places = spec.address + layout.offsets[array] + (size if step < 0 else 0)
            for dim in others:
                places |= dim.strides[array]
            if places % max(min(size * items, VECTOR_BYTES), least) == 0:
                access = "Vector" if step > 0 else "Mirrored"
        accesses.append(access)
    return tuple(accesses)


def shifted_access(spec: ArraySpec | None, step: int) -> str:
    """The access to vectors of neighbours along `step` that lie anywhere."""
    if spec is None or abs(step) != spec.dtype.itemsize:
        return "Element"
    return "Shifted" if step > 0 else "ShiftedMirrored"


def spans_of(layout: Layout, arrays: int) -> list[int]:
    """Of the first so many arrays: bytes from scan position 0 to the lowest, and to the end of the highest element."""
    spans: list[int] = []
    for spec, offset in zip(layout.arrays[:arrays], layout.offsets):  # noqa: B905  # the first of all
        if spec is None:
            spans += 0, 0
        elif offset:
            spans += spec.reach[0] - offset, spec.reach[1] - offset
        else:
            spans += spec.reach
    return spans
