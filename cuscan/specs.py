"""Array specs in requests: where elements lie, without their memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from cuscan.dtypes import DType

if TYPE_CHECKING:
    from cuscan.interop.view import ArrayView

new_tuple = tuple.__new__  # makes a named tuple from its fields; calling the class takes twice as long
ALIGNMENT = 16  # bytes; specs hold addresses modulo this


class ArraySpec(NamedTuple):
    """An array, or a number in its place: strides in elements, address modulo `ALIGNMENT`.

    `reach` is the range of bytes that the array covers, relative to its address: the first, and the one behind the
    last. Values, results, mask and flags have it.
    """

    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    address: int
    is_number: bool = False
    reach: tuple[int, int] = (0, 0)


class Segments(NamedTuple):
    """Where segments start: `kind` is "reset", "keys" or "offsets".

    `array` has the shape of the elements, except for offsets, which are 1-D.
    """

    kind: str
    array: ArraySpec


def spec_of(view: ArrayView) -> ArraySpec:
    """Return the spec of an array."""
    kind = view.kind
    fields = kind.dtype, kind.shape, kind.strides, view.pointer % ALIGNMENT, kind.is_number, (kind.start, kind.end)
    return new_tuple(ArraySpec, fields)


def standing_along(spec: ArraySpec, axis: int) -> ArraySpec:
    """Return the spec of an array with one value per row, with a scanned axis of size 1 and stride 0 inserted."""
    shape = (*spec.shape[:axis], 1, *spec.shape[axis:])
    return ArraySpec(spec.dtype, shape, (*spec.strides[:axis], 0, *spec.strides[axis:]), spec.address)


def dense_strides(shape: tuple[int, ...], like: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides of a dense result that keeps the axis order of strides `like`, as `empty_like` does.

    Broadcast arrays have no axis order; their results are C-contiguous.
    """
    axes = list(range(len(shape)))
    real = [a for a in axes if shape[a] > 1]  # axes of size 1 do not count
    steps = [abs(like[a]) for a in real]
    if 0 not in steps and steps != sorted(steps, reverse=True):
        axes.sort(key=lambda a: -abs(like[a]) if shape[a] > 1 else 0)
    strides = [1] * len(shape)
    step = 1
    for axis in reversed(axes):
        strides[axis] = step
        step *= max(shape[axis], 1)
    return tuple(strides)
