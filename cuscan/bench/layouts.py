"""Layouts of the arrays of a case in memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Array = Any
Shape = tuple[int, ...]

SECTOR = 32  # bytes: the smallest transfer of GPU memory


@dataclass(frozen=True)
class Layout:
    """The layout of an array in memory, axis by axis; an empty field means a dense array in C order.

    `order` lists the axes from the slowest to the fastest. Along each axis the array skips `ahead` elements of memory
    before its own and `behind` after them, and takes every `steps`-th element, from the end if negative; with step 0,
    one element represents all. `shift` elements of memory precede the array.
    """

    order: tuple[int, ...] = ()
    ahead: tuple[int, ...] = ()
    behind: tuple[int, ...] = ()
    steps: tuple[int, ...] = ()
    shift: int = 0

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Layout:
        """Build a layout from fields read from JSON."""
        tuples = {name: tuple(fields[name]) for name in ("order", "ahead", "behind", "steps")}
        return cls(**tuples, shift=fields["shift"])

    def of(self, shape: Shape, xp: Any, memory: Callable[[int], Array]) -> Array:
        """Return an array of this layout in flat memory, which `memory` makes for a given number of elements."""
        ndim = len(shape)
        order, steps = self.order or tuple(range(ndim)), self.steps or (1,) * ndim
        ahead, behind = self.ahead or (0,) * ndim, self.behind or (0,) * ndim
        used = [abs(step) * size or 1 for step, size in zip(steps, shape, strict=True)]
        sizes = [ahead[axis] + used[axis] + behind[axis] for axis in order]
        count = 1
        for size in sizes:
            count *= size
        whole = memory(self.shift + count)[self.shift :].reshape(sizes)
        whole = whole.transpose([order.index(axis) for axis in range(ndim)])
        inner = whole[tuple(slice(first, first + size) for first, size in zip(ahead, used, strict=True))]
        inner = inner[tuple(slice(None, None, step or 1) for step in steps)]
        return xp.broadcast_to(inner, shape) if 0 in steps else inner

    def fast_axis(self, shape: Shape) -> int:
        """Return the axis along which neighbours are closest in memory."""
        order = self.order or tuple(range(len(shape)))
        return next((axis for axis in reversed(order) if shape[axis] > 1), order[-1])

    def __str__(self) -> str:
        """Return the layout in NumPy notation."""
        if 0 in self.steps:
            return "broadcast"
        ndim = max(map(len, (self.ahead, self.behind, self.steps)))
        of = [each or (fill,) * ndim for each, fill in ((self.ahead, 0), (self.behind, 0), (self.steps, 1))]
        slices = ", ".join(
            f"{first or ''}:{-last or ''}" + (f":{step}" if step != 1 else "")
            for first, last, step in zip(*of, strict=True)
        )
        turned = tuple(map(self.order.index, sorted(self.order)))
        turn = ".T" if turned == (1, 0) else f".transpose{turned}" if turned else ""
        shifted = f" shifted by {self.shift}" if self.shift else ""
        return "x" + turn + (f"[{slices}]" if slices else "") + shifted


DENSE = Layout()
VIEWS = {
    str(layout): layout
    for layout in (
        DENSE,
        Layout(steps=(1, 2)),
        Layout(ahead=(0, 1)),
        Layout(order=(1, 0)),
        Layout(steps=(1, -1)),
        Layout(steps=(0, 1)),
    )
}


def has_gaps(array: Array) -> bool:
    """Return whether there is other memory between the elements."""
    steps = [(abs(step), size) for step, size in zip(array.strides, array.shape, strict=True) if step]
    elements = 1
    for _, size in steps:
        elements *= size
    return bool(sum(step * (size - 1) for step, size in steps) > (elements - 1) * array.dtype.itemsize)


def touched_bytes(array: Array) -> int:
    """Return the bytes of memory that reading or writing an array must move.

    Broadcast elements count once; if elements lie apart, their whole sectors count.
    """
    itemsize = array.dtype.itemsize
    steps = [(abs(step), size) for step, size in zip(array.strides, array.shape, strict=True) if step and size > 1]
    elements = 1
    for _, size in steps:
        elements *= size
    apart = min((step for step, _ in steps), default=itemsize)
    return int(elements * max(itemsize, min(apart, SECTOR)))
