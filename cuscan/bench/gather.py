"""Copy a view with gaps to dense memory: measures how fast this layout can be read."""

from __future__ import annotations

import math
from typing import NamedTuple

BLOCK = 256
UNROLLED = 4  # units per thread; all are loaded before the first is stored
_UNITS = {1: "unsigned char", 2: "unsigned short", 4: "unsigned", 8: "uint2", 16: "uint4"}

# Sizes and strides are constants, so that the compiler replaces the divisions by multiplications.
_SOURCE = r"""
using Unit = {unit};

__device__ long long place_of(unsigned rest) {{
    long long place = 0;
    {steps}
    return place;
}}

extern "C" __global__ void cuscan_bench_gather(const char* source, Unit* target) {{
    Unit loaded[{unrolled}];
    const unsigned first = blockIdx.x * (blockDim.x * {unrolled}) + threadIdx.x;
    #pragma unroll
    for (int k = 0; k < {unrolled}; ++k) {{
        const unsigned unit = first + k * blockDim.x;
        if (unit < {count}u) loaded[k] = *reinterpret_cast<const Unit*>(source + place_of(unit));
    }}
    #pragma unroll
    for (int k = 0; k < {unrolled}; ++k) {{
        const unsigned unit = first + k * blockDim.x;
        if (unit < {count}u) target[unit] = loaded[k];
    }}
}}
"""


class Pieces(NamedTuple):
    """A view with as few axes as possible, from slowest to fastest, in units of `width` bytes; strides in bytes."""

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    width: int

    @property
    def units(self) -> int:
        """The number of units."""
        return math.prod(self.sizes)

    @property
    def grid(self) -> int:
        """The number of blocks that copy all units."""
        return -(-self.units // (BLOCK * UNROLLED))

    @property
    def source(self) -> str:
        """The text of the kernel."""
        steps = [
            f"place += rest % {size}u * {stride}ll; rest /= {size}u;"
            for size, stride in zip(self.sizes[::-1], self.strides[::-1], strict=True)
        ]
        return _SOURCE.format(unit=_UNITS[self.width], unrolled=UNROLLED, count=self.units, steps="\n    ".join(steps))


def pieces_of(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int, pointer: int) -> Pieces:
    """Return the pieces in which a view is copied: adjacent axes merge, and units are as wide as alignment permits."""
    axes = [(step, size) for step, size in zip(strides, shape, strict=True) if size > 1]
    merged = [(itemsize, 1)] if not axes else []
    for step, size in sorted(axes, key=lambda axis: -abs(axis[0])):
        behind = bool(merged) and merged[-1][0] == step * size
        merged.append((step, size * merged.pop()[1] if behind else size))
    width, (step, size) = itemsize, merged[-1]
    if step == itemsize:
        others = [pointer, size * itemsize, *(step for step, _ in merged[:-1])]
        while 2 * width in _UNITS and not any(other % (2 * width) for other in others):
            width *= 2
        merged[-1] = (width, size * itemsize // width)
    return Pieces(tuple(size for _, size in merged), tuple(step for step, _ in merged), width)
