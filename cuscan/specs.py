"""Arrays as requests know them: no memory, only where elements lie."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from cuscan.dtypes import DType

if TYPE_CHECKING:
    from cuscan.interop.view import ArrayView

new_tuple = tuple.__new__  # of a named tuple and its fields: what calling the class does takes twice as long
ALIGNMENT = 16  # bytes; what the address of an array is known modulo


class ArraySpec(NamedTuple):
    """An array as the kernels see it: strides in elements, the address modulo `ALIGNMENT`; or a number in its place.

    `reach`: the bytes that it covers, from its address on, from the first to the one behind the last; of values,
    results, mask and flags.
    """

    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    address: int
    is_number: bool = False
    reach: tuple[int, int] = (0, 0)


class Segments(NamedTuple):
    """Where segments start: `kind` is "reset", "keys" or "offsets".

    `array` has the shape of the elements, but for offsets, which have an axis of their own.
    """

    kind: str
    array: ArraySpec


def spec_of(view: ArrayView) -> ArraySpec:
    """The spec of an array that is there."""
    kind = view.kind
    fields = kind.dtype, kind.shape, kind.strides, view.pointer % ALIGNMENT, kind.is_number, (kind.start, kind.end)
    return new_tuple(ArraySpec, fields)


def standing_along(spec: ArraySpec, axis: int) -> ArraySpec:
    """An array with a value for each row, as it stands still along the scanned axis."""
    shape = (*spec.shape[:axis], 1, *spec.shape[axis:])
    return ArraySpec(spec.dtype, shape, (*spec.strides[:axis], 0, *spec.strides[axis:]), spec.address)


def dense_strides(shape: tuple[int, ...], like: tuple[int, ...]) -> tuple[int, ...]:
    """Strides of a dense result that keeps the axis order of strides `like`, as `empty_like` does.

    Broadcast arrays have no order of their own; their results are C-contiguous.
    """
    axes = list(range(len(shape)))
    real = [a for a in axes if shape[a] > 1]  # axes of size 1 have no say
    steps = [abs(like[a]) for a in real]
    if 0 not in steps and steps != sorted(steps, reverse=True):
        axes.sort(key=lambda a: -abs(like[a]) if shape[a] > 1 else 0)
    strides = [1] * len(shape)
    step = 1
    for axis in reversed(axes):
        strides[axis] = step
        step *= max(shape[axis], 1)
    return tuple(strides)
