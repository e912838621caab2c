"""Accesses: how kernels read and write vectors of each array's elements."""

from __future__ import annotations

from collections.abc import Sequence

from cuscan.planning.config import Access
from cuscan.planning.tuning import VECTOR_BYTES
from cuscan.request import ScanRequest
from cuscan.request.kind import CallKind
from cuscan.request.layout import Dimension, Layout
from cuscan.specs import ArraySpec

STILL = (Access.BROADCAST, Access.NUMBER)  # operands that do not vary along the axis
SHIFTED = (Access.SHIFTED, Access.SHIFTED_REVERSED)
WORD = 4  # bytes


def accesses_of(
    layout: Layout, along: Dimension, others: Sequence[Dimension], items: int, least: int = 1
) -> tuple[Access, ...]:
    """Return each array's access for vectors of `items` neighbours along `along`, at any index of `others`.

    Aligned accesses require vectors aligned to their size, capped at the widest load, and to `least` bytes.
    """
    accesses = [Access.NONE] * len(layout.arrays)
    steps = along.strides
    for array, spec in enumerate(layout.arrays):
        if spec is None:
            continue
        step, size, access = steps[array], spec.dtype.itemsize, Access.STRIDED
        if step == 0:
            access = Access.NUMBER if spec.is_number else Access.BROADCAST
        elif abs(step) == size:
            # A reversed vector ends with its first item, so the address behind that item must be aligned.
            places = spec.address + layout.offsets[array] + (size if step < 0 else 0)
            for dim in others:
                places |= dim.strides[array]
            if places % max(min(size * items, VECTOR_BYTES), least) == 0:
                access = Access.VECTOR if step > 0 else Access.REVERSED
        accesses[array] = access
    return tuple(accesses)


def goes_back(layout: Layout, arrays: int) -> bool:
    """Return whether the scan goes against the order of the first `arrays` arrays, of which some may not vary."""
    return min(layout.axis.strides[:arrays]) < 0


def shifted_access(spec: ArraySpec | None, step: int) -> Access:
    """Return the access for vectors of unaligned neighbours along `step`, which is in bytes."""
    if spec is None or abs(step) != spec.dtype.itemsize:
        return Access.STRIDED
    return Access.SHIFTED if step > 0 else Access.SHIFTED_REVERSED


def in_pieces(request: ScanRequest, layout: Layout, accesses: tuple[Access, ...], items: int) -> tuple[Access, ...]:
    """Return `accesses` with unaligned dense arrays shifted: results, and elements smaller than 32-bit words."""
    if Access.STRIDED not in accesses:
        return accesses
    values, results = len(request.values), len(request.results)
    found = list(accesses)
    for i in (*range(values + results), *flags(request.kind)):
        spec = layout.arrays[i]
        if not spec or accesses[i] != Access.STRIDED or items == 1 or items * spec.dtype.itemsize < WORD:
            continue
        if values <= i < values + results or spec.dtype.itemsize < WORD:
            found[i] = shifted_access(spec, layout.axis.strides[i])
    return tuple(found)


def flags(kind: CallKind) -> range:
    """Return the numbers of the mask and of the segment flags or keys."""
    first = len(kind.values) + len(kind.results)
    return range(first, first + 2)


def spans_of(layout: Layout, arrays: int) -> list[int]:
    """Return two numbers for each of the first `arrays` arrays.

    They are the bytes from scan position 0 to the lowest element, and to the end of the highest.
    """
    spans: list[int] = []
    for spec, offset in zip(layout.arrays[:arrays], layout.offsets):  # noqa: B905  # only the first `arrays` of all
        if spec is None:
            spans += 0, 0
        elif offset:
            spans += spec.reach[0] - offset, spec.reach[1] - offset
        else:
            spans += spec.reach
    return spans
