"""Frozen values that planning produces: kernel configurations and launch plans."""

from __future__ import annotations

import functools
import itertools
from dataclasses import dataclass, fields
from enum import Enum
from typing import ClassVar, NamedTuple

from cuscan.planning.hardware import WARP

HEADER_BYTES = 128  # struct Workspace
# The struct of a family's geometry, if it has one of its own.
_GEOMETRIES = {"panels": "PanelGeometry", "staged_rows": "RowsGeometry", "thread_rows": "RowsGeometry"}


@dataclass(frozen=True)
class Target:
    """The GPU that a plan is made for: architecture (90 for sm_90), SM count, bytes of shared memory per SM.

    `cluster` is the largest supported cluster size in blocks; 0 without clusters.
    """

    arch: int
    sm_count: int
    shared_bytes: int = 228 * 1024
    cluster: int = 16


class Access(str, Enum):
    """How vectors of an array's elements are read and written (`Access` in operands.cuh)."""

    NONE = "None"  # absent array
    VECTOR = "Vector"  # neighbours, aligned to the vector's size
    REVERSED = "Reversed"  # the same with step -1
    BROADCAST = "Broadcast"  # one element for the whole line
    PER_LINE = "PerLine"  # the same for each of several lines that a thread has
    NUMBER = "Number"  # one element for all lines, passed by value as a kernel argument
    STRIDED = "Strided"  # element by element
    ALONG = "Along"  # neighbours along the axis, where those of other arrays lie across it
    SHIFTED = "Shifted"  # unaligned neighbours
    SHIFTED_REVERSED = "ShiftedReversed"


class Operand(NamedTuple):
    """An array of a kernel: the C++ type of its elements, and how the kernel accesses vectors of them."""

    type: str = "boolean"
    access: Access = Access.NONE
    by_value: bool = False  # a number, passed as a kernel argument
    staged: bool = False  # tiles pass through shared memory (stage.cuh)

    @property
    def present(self) -> bool:
        return self.access is not Access.NONE

    def __str__(self) -> str:
        return f"Operand<{self.type}, Access::k{self.access.value}{', true' * self.staged}>"


@dataclass(frozen=True)
class Config:
    """A kernel's compile-time configuration: the fields of the generated `struct Config` (source.py)."""

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
    levels: int  # of the look-back over units: units, groups, sections
    batch_dims: int
    items: int
    state_bytes: int
    carry_bytes: int
    constants: tuple[tuple[str, int], ...]
    block: int
    blocks_per_sm: int
    shared_bytes: int
    cluster: int  # blocks per cluster; 1 without clusters

    @property
    def geometry(self) -> str:
        """The name of the kernel's geometry struct."""
        return _GEOMETRIES.get(self.family, "Geometry")

    @property
    def operands(self) -> tuple[Operand, ...]:
        """The kernel's arrays by number (`Arrays` in operands.cuh); the present ones are its arguments."""
        beside = (self.mask, self.segment_operand, self.row_initial, self.last)
        return (*self.values, *self.results, *beside, *self.carry_in, *self.carry_out)

    @functools.cached_property
    def present(self) -> tuple[bool, ...]:
        """For each operand, whether the kernel has the array."""
        return tuple(operand.present for operand in self.operands)

    @functools.cached_property
    def order(self) -> tuple[int, ...]:
        """For each present array, its index in a call's arrays: those that the kernel reads, then those it writes."""
        beside = (False, False, False, True)  # the last state is written
        written = (*(False for _ in self.values), *(True for _ in self.results), *beside)
        written += (*(False for _ in self.carry_in), *(True for _ in self.carry_out))
        written = tuple(itertools.compress(written, self.present))
        called = sorted(range(len(written)), key=written.__getitem__)
        return tuple(map(called.index, range(len(called))))

    @functools.cached_property
    def reorders(self) -> bool:
        """Whether the kernel's arrays are in another order than a call's."""
        return self.order != tuple(range(len(self.order)))

    @functools.cached_property
    def numbers(self) -> tuple[int, ...]:
        """The indices of the values that are passed as numbers."""
        return tuple(place for place, operand in enumerate(self.values) if operand.by_value)

    def __hash__(self) -> int:
        return self._hash

    @functools.cached_property
    def _hash(self) -> int:
        return hash(tuple(getattr(self, field.name) for field in fields(self)))


@dataclass(frozen=True)
class StartsConfig:
    """The configuration of the kernel that computes segment starts as bits.

    `given`: "offsets", "reset" or "keys"; `item`: their C++ type.
    """

    item: str
    given: str = "offsets"
    carries: bool = False  # with offsets: whether a carry comes in; it belongs to the first segment only
    family: ClassVar[str] = "segment_starts"
    cluster: ClassVar[int] = 1
    warps: ClassVar[int] = 8  # per block

    @property
    def chunk(self) -> int:
        """32-bit words of bits that a warp produces at a time: in shared memory, or of items that are in flight."""
        return 256 if self.given == "offsets" else 8

    @property
    def piece(self) -> int:
        """Positions: each warp handles a multiple of so many."""
        return 32 * min(self.chunk, 32)

    @property
    def block(self) -> int:
        return self.warps * 32

    @property
    def blocks_per_sm(self) -> int:
        return 4 if self.given == "keys" else 8  # keys in flight take registers

    @property
    def shared_bytes(self) -> int:
        return self.warps * self.chunk * 4 if self.given == "offsets" else 0


@dataclass(frozen=True)
class CopyConfig:
    """The configuration of the kernel that copies flags into the order of the values."""

    family: ClassVar[str] = "flag_copies"
    patches: ClassVar[int] = 2048  # of 4 by 4 flags, in a tile
    cluster: ClassVar[int] = 1
    block: ClassVar[int] = 256
    blocks_per_sm: ClassVar[int] = 4

    @property
    def shared_bytes(self) -> int:
        return 4 * (4 * self.patches + 4 * WARP)


class Preparation(NamedTuple):
    """A launch before the scan that writes flags as the scan reads them, complete except for the addresses.

    `role` is that of the array it reads. `words` are the kernel's last argument. It writes `nbytes`.
    """

    config: StartsConfig | CopyConfig
    role: str
    grid: int
    words: tuple[int, ...]
    nbytes: int


AnyConfig = Config | StartsConfig | CopyConfig


class ScanPlan(NamedTuple):
    """A launch, complete except for the addresses.

    `geometry` is the kernel's struct Geometry as 64-bit words. `offsets` are the bytes from each array's address to
    scan position 0. `workspace_words` is the size of the workspace behind its header, in 64-bit words.
    """

    config: Config
    grid: int
    geometry: tuple[int, ...]
    offsets: tuple[int, ...]
    workspace_words: int

    @property
    def units(self) -> int:
        """Units per line, read from `geometry` (after the dimensions and the rows); 1 if the family counts none."""
        dimensions = 2 + self.config.batch_dims
        return self.geometry[dimensions * (1 + len(self.config.operands)) + 1]

    @property
    def present_offsets(self) -> tuple[int, ...]:
        """The offsets of the present arrays, which are the kernel's arguments."""
        return tuple(itertools.compress(self.offsets, self.config.present))

    @property
    def workspace_bytes(self) -> int:
        """Bytes of device memory that the launch needs in addition to the arrays."""
        return HEADER_BYTES + 8 * self.workspace_words if self.config.grid else 0
