"""Assemble a plan from a kernel family's decisions: configuration, geometry and workspace."""

from __future__ import annotations

import functools
from typing import Any

from cuscan.dtypes import DTYPES, DType
from cuscan.errors import ScanValueError
from cuscan.kept import MOST, Table, keep
from cuscan.planning.accesses import STILL, spans_of
from cuscan.planning.config import Access, Config, Operand, ScanPlan
from cuscan.request import ScanRequest
from cuscan.request.kind import CallKind
from cuscan.request.layout import Dimension, Layout
from cuscan.specs import new_tuple

MAX_TICKETS = 2**32 - 2**20  # per launch: tickets have 32 bits, and every block takes a few beyond the last


def assemble(
    request: ScanRequest,
    layout: Layout,
    family: str,
    *,
    batch: tuple[Dimension, ...],
    column: Dimension | None = None,
    accesses: tuple[Access, ...],
    items: int,
    constants: dict[str, int],
    block: int,
    blocks_per_sm: int,
    grid: int,
    shared_bytes: int = 0,
    cluster: int = 1,
    units: int = 1,
    levels: int = 0,
    tickets: bool = False,
    aggregates: int = 0,
    words: int = 0,
    staged: tuple[int, ...] = (),
    beside: tuple[int, ...] = (),
) -> ScanPlan:
    """Assemble the plan of a kernel family.

    With `tickets`, blocks share strips, and publish `aggregates` states, or `words` 64-bit words, in the workspace. The
    arrays `staged` pass through shared memory. `beside` are words of the family's own that follow struct Geometry.
    """
    kind, index = request.kind, index_dtype(request)
    state, carry = state_bytes(kind, index)
    words = words or aggregates * -(-state // 4)
    decided = (
        *(family, index, tickets, levels, len(batch), items, state, carry),
        *(block, blocks_per_sm, shared_bytes, cluster),
    )
    key = kind, accesses, staged, *decided, *constants.values()  # a family always has the same constant names
    config = _configs.get(key) or keep(_configs, key, _configure(kind, layout, accesses, staged, constants, decided))
    size, strides = layout.axis
    columns, column_strides = column or _unit_dimension(len(layout.arrays))
    geometry, rows = [size, *strides, columns, *column_strides], 1
    for size, strides in batch:
        geometry.append(size)
        geometry += strides
        rows *= size
    geometry += rows, units, words
    geometry += spans_of(layout, len(kind.sizes) + 2)  # values, results, mask and flags
    geometry += beside
    return new_tuple(ScanPlan, (config, grid, tuple(geometry), layout.offsets, words))


_configs: Table[Any, Config] = Table()  # by call kind and decisions
_distinct: Table[Config, Config] = Table()  # one object for equal ones of several kinds: kernels are found by identity
_DECIDED = (
    *("family", "index", "grid", "levels", "batch_dims", "items", "state_bytes", "carry_bytes"),
    *("block", "blocks_per_sm", "shared_bytes", "cluster"),
)


def _configure(
    kind: CallKind,
    layout: Layout,
    accesses: tuple[Access, ...],
    staged: tuple[int, ...],
    constants: dict[str, int],
    decided: tuple[Any, ...],
) -> Config:
    """Return the configuration for a kind of call; `decided` holds the values of `_DECIDED`."""
    operands = [
        _operand(spec.dtype, access, i in staged) if spec else Operand()
        for i, (spec, access) in enumerate(zip(layout.arrays, accesses, strict=True))
    ]
    values = len(kind.values)
    op, number, carry = kind.op, DTYPES[kind.results[0].accumulator], DTYPES[kind.carry]
    behind = values + len(kind.results)
    results = operands[values:behind]
    mask, segment_operand, row_initial, last = operands[behind : behind + 4]
    carries = [Operand(operand.type, Access.BROADCAST) for operand in operands[behind + 4 :]]
    fields = len(kind.carry_fields)
    carry_in = carries[:-fields] if kind.returns_carry else carries
    of = dict(zip(_DECIDED, decided, strict=True))
    exclusive = kind.exclusive or kind.include_initial
    sparse = exclusive or kind.has_initial or kind.skip_nan or mask.present
    by_offsets = kind.segments == "offsets"
    functor, carry_functor = (
        op.functor.format(T=dtype.cpp, Index=of["index"], Sparse=str(sparse).lower()) for dtype in (number, carry)
    )
    config = Config(
        op=functor,
        carry_op=carry_functor,
        functor_source=op.source,
        indexed=op.indexed,
        values=tuple(operands[:values]),
        results=tuple(Operand(operand.type) for operand in results) if kind.only_carry else tuple(results),
        mask=mask,
        segment_operand=Operand("uint32", Access.STRIDED) if by_offsets else segment_operand,
        row_initial=row_initial,
        last=last,
        carry_in=tuple(carry_in),
        carry_out=tuple(carries[len(carry_in) :]),
        segments="Bits" if by_offsets else (kind.segments or "none").capitalize(),
        segments_have_initial=kind.segments_have_initial,
        reverse=kind.reverse and op.indexed,
        exclusive=exclusive,
        includes_initial=kind.include_initial,
        shows_segment_starts=kind.exclusive and kind.segments is not None,
        skips_nan=kind.skip_nan,
        has_initial=kind.has_initial,
        constants=tuple(constants.items()),
        **of,
    )
    return _distinct.get(config) or keep(_distinct, config, config)


def _operand(dtype: DType, access: Access, staged: bool) -> Operand:
    return Operand(dtype.cpp, Access.BROADCAST if access in STILL else access, access == Access.NUMBER, staged)


@functools.cache
def _unit_dimension(arrays: int) -> Dimension:
    return Dimension(1, (0,) * arrays)


def index_dtype(request: ScanRequest) -> str:
    """Return the type of positions in kernels: 64 bits with carries, whose positions can be any."""
    kind = request.kind
    if not kind.op.indexed:
        return "uint32"
    wide = request.carry_in or request.carry_out or request.shape[request.axis] + kind.include_initial >= 2**32
    return "int64" if wide else "uint32"


def batch_of(layout: Layout, others: tuple[Dimension, ...]) -> tuple[Dimension, ...]:
    """Return the batch axes: `others`, or one axis of size 1 if there are none."""
    return others or (_unit_dimension(len(layout.arrays)),)


@functools.lru_cache(MOST)
def state_bytes(kind: CallKind, index: str = "int64") -> tuple[int, int]:
    """Return sizeof, in bytes, of the operator's state within a tile and of its carry between tiles.

    Both include the flag of `Restartable` if the call has segments and no mark takes its place (segments.cuh).
    """
    op = kind.op
    nbytes = []
    for number in (kind.results[0].accumulator, kind.carry):
        dtype = op.states.dtype(number)
        fields = [dtype.fields[name][0] for name in dtype.names] if dtype.fields and dtype.names else [dtype]
        sizes = [field.itemsize for field in fields]
        if op.indexed:
            sizes[1] = DTYPES[index].itemsize
        state = _struct_bytes(sizes)
        flagged = kind.segments and (kind.returns_carry or not op.marks_restarts)
        nbytes.append(_struct_bytes([state, 4], max(*sizes, 4)) if flagged else state)
    return nbytes[0], nbytes[1]


def _struct_bytes(sizes: list[int], align: int = 0) -> int:
    """Return sizeof a struct whose members are aligned to their sizes, capped at `align` (default: no cap)."""
    end, align = 0, align or max(sizes)
    for size in sizes:
        step = min(size, align)
        end = -(-end // step) * step + size
    return -(-end // align) * align


def product(dims: tuple[Dimension, ...]) -> int:
    """Return the product of the axes' sizes."""
    product = 1
    for size, _ in dims:
        product *= size
    return product


def power_of_two(number: int, *, down: bool = False) -> int:
    """Return the smallest power of two >= `number`, or with `down` the largest <= `number`."""
    return 1 << (number.bit_length() - 1 if down else (number - 1).bit_length())


def round_up(number: int, step: int) -> int:
    """Return the smallest multiple of `step` that is >= `number`."""
    return -(-number // step) * step


def even_part(number: int, most: int) -> int:
    """Return the size of the fewest parts of `number` that are at most `most`, as even as possible."""
    return -(-number // -(-number // most))


def check_tickets(tickets: int) -> None:
    """Raise `ScanValueError` if a launch needs more than `MAX_TICKETS` tickets."""
    if tickets > MAX_TICKETS:
        raise ScanValueError(
            f"x is too large for one call: it takes {tickets} tiles, and at most {MAX_TICKETS} are possible"
        )
