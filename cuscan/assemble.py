"""From what a kernel family has decided to a plan: the configuration, the geometry and the workspace."""

from __future__ import annotations

import functools
from collections.abc import Collection
from typing import Any

from cuscan.config import Config, Port, ScanPlan
from cuscan.dtypes import DTYPES, DType
from cuscan.kept import MOST
from cuscan.layout import Dimension, Layout, span_of
from cuscan.order import GROUP, SECTION
from cuscan.request import CallKind, ScanRequest
from cuscan.tuning import LINE_WORDS

STILL = ("Uniform", "Number")  # accesses to what does not vary along the axis


def assemble(
    request: ScanRequest,
    layout: Layout,
    family: str,
    *,
    batch: tuple[Dimension, ...],
    column: Dimension | None = None,
    accesses: tuple[str, ...],
    items: int,
    constants: dict[str, int],
    block: int,
    blocks_per_sm: int,
    grid: int,
    shared_bytes: int = 0,
    cluster: int = 1,
    units: int = 1,
    chains: int = 0,
    strips: int = 0,
    batches: int = 0,
    tickets: bool = False,
    aggregates: int = 0,
    words: int = 0,
    sent: Collection[int] = (),
    beside: tuple[int, ...] = (),
) -> ScanPlan:
    """A plan.

    Blocks share strips if `chains` go through memory, in so many `strips`, by `batches`; or if they take `tickets`, and
    publish so many `aggregates`, or `words`, and nothing else. Tiles of the arrays `sent` are sent for. Words of the
    family's own, `beside`, lie behind struct Geometry.
    """
    kind = request.kind
    index = index_dtype(request)
    state = state_bytes(request, DTYPES[kind.results[0].accumulator], DTYPES[index])
    carry_state = state_bytes(request, DTYPES[kind.carry], DTYPES[index])
    words = words or aggregates * -(-state // 4)
    if chains:
        words = strip_words(strips, chains, batches, carry_state)
    values, results = len(request.values), len(request.results)
    config = _configure(
        kind,
        family,
        tuple(
            [
                _port(spec.dtype, access, i in sent) if spec else _ABSENT
                for i, (spec, access) in enumerate(zip(layout.arrays, accesses, strict=True))
            ]
        ),
        values,
        index,
        grid=chains > 0 or tickets,
        levels=(units > 1) + (units > GROUP) + (units > SECTION),
        batch_dims=len(batch),
        items=items,
        state_bytes=state,
        carry_bytes=carry_state,
        constants=tuple(constants.items()),
        block=block,
        blocks_per_sm=blocks_per_sm,
        shared_bytes=shared_bytes,
        cluster=cluster,
    )
    length = layout.axis.size
    elements = length - kind.include_initial
    geometry: list[int] = []
    for dim in (layout.axis, column or _unit_dimension(layout), *batch):
        geometry += dim.size, *dim.strides
    geometry += product(batch), units, words
    for i, spec in enumerate(layout.arrays[: values + results + 2]):
        geometry += span_of(layout, i, length if values <= i < values + results else elements) if spec else (0, 0)
    geometry += beside
    return ScanPlan(config, grid, tuple(geometry), layout.offsets, workspace_words=words)


@functools.lru_cache(MOST)
def _configure(
    kind: CallKind,
    family: str,
    ports: tuple[Port, ...],
    values: int,
    index: str,
    **decided: Any,
) -> Config:
    """The configuration of a kind of call; the same object for the same decisions."""
    op, number, carry = kind.op, DTYPES[kind.results[0].accumulator], DTYPES[kind.carry]
    behind = values + len(kind.results)
    results = ports[values:behind]
    mask, segment_port, row_initial, last = ports[behind : behind + 4]
    carries = [Port(port.type, "Uniform") for port in ports[behind + 4 :]]
    fields = len(kind.carry_fields)
    carry_in = carries[:-fields] if kind.returns_carry else carries
    exclusive = kind.exclusive or kind.include_initial
    sparse = exclusive or kind.has_initial or kind.skip_nan or mask.present
    by_offsets = kind.segments == "offsets"
    functor, carry_functor = (
        op.functor.format(T=of.cpp, Index=index, Sparse=str(sparse).lower()) for of in (number, carry)
    )
    return Config(
        family=family,
        op=functor,
        carry_op=carry_functor,
        functor_source=op.source,
        index=index,
        indexed=op.indexed,
        values=ports[:values],
        results=tuple(Port(port.type) for port in results) if kind.only_carry else results,
        mask=mask,
        segment_port=Port("uint32", "Element") if by_offsets else segment_port,
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
        **decided,
    )


_ABSENT = Port()


@functools.lru_cache(MOST)
def _port(dtype: DType, access: str, sent: bool) -> Port:
    return Port(dtype.cpp, "Uniform" if access in STILL else access, access == "Number", sent)


def _unit_dimension(layout: Layout) -> Dimension:
    return Dimension(1, (0,) * len(layout.arrays))


def index_dtype(request: ScanRequest) -> str:
    """The type of positions in kernels. Those of carries come from anywhere."""
    carries = request.carry_in or request.carry_out
    wide = request.op.indexed and (carries or request.shape[request.axis] + request.include_initial >= 2**32)
    return "int64" if wide else "uint32"


def batch_of(layout: Layout, others: tuple[Dimension, ...]) -> tuple[Dimension, ...]:
    """The axes that rows are counted along: one at least."""
    return others or (_unit_dimension(layout),)


def state_bytes(request: ScanRequest, number: DType, index: DType) -> int:
    """The sizeof of the operator's state over a number type, with the mark of a segment where there are any."""
    return _state_bytes(request.kind, number, index)


@functools.lru_cache(MOST)
def _state_bytes(kind: CallKind, number: DType, index: DType) -> int:
    op = kind.op
    dtype = op.states.dtype(number.name)
    fields = [dtype.fields[name][0] for name in dtype.names] if dtype.fields and dtype.names else [dtype]
    sizes = [index.itemsize if op.indexed and i == 1 else field.itemsize for i, field in enumerate(fields)]
    return _struct_bytes([_struct_bytes(sizes), 4], max(*sizes, 4)) if kind.segments else _struct_bytes(sizes)


def _struct_bytes(sizes: list[int], align: int = 0) -> int:
    """The sizeof of a struct of members that are aligned to their sizes, or to `align` in all."""
    end, align = 0, align or max(sizes)
    for size in sizes:
        step = min(size, align)
        end = -(-end // step) * step + size
    return -(-end // align) * align


def strip_words(strips: int, chains: int, batches: int, carry: int) -> int:
    """The words of a workspace that shared strips take: a counter for each, and a table of totals."""
    return round_up(strips, LINE_WORDS) + round_up(chains * batches * -(-carry // 4), LINE_WORDS)


def product(dims: tuple[Dimension, ...]) -> int:
    """The number of places that some axes have together."""
    product = 1
    for dim in dims:
        product *= dim.size
    return product


def power_of_two(number: int, *, down: bool = False) -> int:
    """The nearest power of two that is not smaller (or, `down`, not larger)."""
    return 1 << (number.bit_length() - 1 if down else (number - 1).bit_length())


def round_up(number: int, step: int) -> int:
    """The next multiple of `step`."""
    return -(-number // step) * step
