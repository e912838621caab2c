"""What kernels are compiled for, and launches made of: frozen values, which planning decides on."""

from __future__ import annotations

import functools
import itertools
from dataclasses import dataclass, fields
from enum import Enum
from typing import ClassVar, NamedTuple

HEADER_BYTES = 128  # struct Workspace


@dataclass(frozen=True)
class Target:
    """The GPU that a plan is made for: architecture (90 for sm_90), SMs, shared memory of an SM in bytes.

    `cluster`: blocks that run together as one cluster at most, where there are clusters; 0 for none.
    """

    arch: int
    sm_count: int
    shared_bytes: int = 228 * 1024
    cluster: int = 16


class Access(str, Enum):
    """How vectors of an array's elements are read and written (`Access` in operands.cuh)."""

    NONE = "None"  # there is no such array
    VECTOR = "Vector"  # neighbours, aligned to the vector's size
    REVERSED = "Reversed"  # the same, backwards
    BROADCAST = "Broadcast"  # one element for the whole line
    NUMBER = "Number"  # the same, and an argument of the kernel
    STRIDED = "Strided"  # element by element
    SHIFTED = "Shifted"  # neighbours that begin anywhere
    SHIFTED_REVERSED = "ShiftedReversed"


class Operand(NamedTuple):
    """An array as a kernel sees it: the C++ type of its elements, and how vectors of them are accessed."""

    type: str = "boolean"
    access: Access = Access.NONE
    by_value: bool = False  # a number that is an argument itself
    staged: bool = False  # tiles of it are staged (stage.cuh)

    @property
    def present(self) -> bool:
        return self.access is not Access.NONE

    def __str__(self) -> str:
        return f"Operand<{self.type}, Access::k{self.access.value}{', true' * self.staged}>"


@dataclass(frozen=True)
class Config:
    """What a kernel is compiled for; the fields of the generated `struct Config` (source.py)."""

    family: str
    op: str
    carry_op: str
    functor_source: str
    index: str
    indexed: bool
    values: tuple[Operand, ...]
    results: tuple[Operand, ...]
    mask: Operand
    segment_operand: Operand
    row_initial: Operand
    last: Operand
    carry_in: tuple[Operand, ...]
    carry_out: tuple[Operand, ...]
    segments: str
    segments_have_initial: bool
    reverse: bool
    exclusive: bool
    includes_initial: bool
    shows_segment_starts: bool
    skips_nan: bool
    has_initial: bool
    grid: bool
    levels: int  # of the chain of units: of tiles, which look back
    batch_dims: int
    items: int
    state_bytes: int
    carry_bytes: int
    constants: tuple[tuple[str, int], ...]
    block: int
    blocks_per_sm: int
    shared_bytes: int
    cluster: int  # blocks that run together, on neighbouring SMs

    @property
    def geometry(self) -> str:
        """The struct that the kernel takes."""
        return "PanelGeometry" if self.family == "panels" else "Geometry"

    @property
    def operands(self) -> tuple[Operand, ...]:
        """The arrays of the kernel by number (`Arrays` in operands.cuh); those that are present are its arguments."""
        beside = (self.mask, self.segment_operand, self.row_initial, self.last)
        return (*self.values, *self.results, *beside, *self.carry_in, *self.carry_out)

    @functools.cached_property
    def present(self) -> tuple[bool, ...]:
        """Of each operand, whether the array is there."""
        return tuple(operand.present for operand in self.operands)

    @functools.cached_property
    def order(self) -> tuple[int, ...]:
        """Of each array that is there, its place among those of a call: those that are read, then those written."""
        beside = (False, False, False, True)  # the last state is written
        written = (*(False for _ in self.values), *(True for _ in self.results), *beside)
        written += (*(False for _ in self.carry_in), *(True for _ in self.carry_out))
        written = tuple(itertools.compress(written, self.present))
        called = sorted(range(len(written)), key=written.__getitem__)
        return tuple(map(called.index, range(len(called))))

    @functools.cached_property
    def reorders(self) -> bool:
        """Whether its arrays are in another order than those of a call."""
        return self.order != tuple(range(len(self.order)))

    @functools.cached_property
    def numbers(self) -> tuple[int, ...]:
        """The places of the values that are numbers, and arguments themselves."""
        return tuple(place for place, operand in enumerate(self.values) if operand.by_value)

    def __hash__(self) -> int:
        return self._hash

    @functools.cached_property
    def _hash(self) -> int:
        return hash(tuple(getattr(self, field.name) for field in fields(self)))


@dataclass(frozen=True)
class StartsConfig:
    """What the kernel that makes bits of offsets is compiled for: their C++ type."""

    offset: str
    warps: int = 8  # of a block
    carries: bool = False  # a carry comes in, which only the first segment has
    chunk: int = 256  # words of bits that a warp works on at a time
    blocks_per_sm: int = 8
    family: ClassVar[str] = "segment_starts"
    cluster: ClassVar[int] = 1

    @property
    def block(self) -> int:
        return self.warps * 32

    @property
    def shared_bytes(self) -> int:
        return self.warps * self.chunk * 4


class ScanPlan(NamedTuple):
    """A launch, complete but for the addresses.

    `geometry` is the kernel's struct Geometry as words. The offsets lead, in bytes, from each array's address to scan
    position 0. `workspace_words` counts the 64-bit tile-state words.
    """

    config: Config
    grid: int
    geometry: tuple[int, ...]
    offsets: tuple[int, ...]
    workspace_words: int

    @property
    def units(self) -> int:
        """The units of a line (struct Geometry: they follow the dimensions and the rows); 1 where none are counted."""
        dimensions = 2 + self.config.batch_dims
        return self.geometry[dimensions * (1 + len(self.config.operands)) + 1]

    @property
    def present_offsets(self) -> tuple[int, ...]:
        """The offsets of the arrays that there are: the arguments of the kernel."""
        return tuple(itertools.compress(self.offsets, self.config.present))

    @property
    def workspace_bytes(self) -> int:
        """Device memory that the launch needs beside the arrays."""
        return HEADER_BYTES + 8 * self.workspace_words if self.config.grid else 0
