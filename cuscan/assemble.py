"""From what a kernel family has decided to a plan: the configuration, the geometry and the workspace."""

from __future__ import annotations

from collections.abc import Collection

from cuscan.config import Config, Port, ScanPlan
from cuscan.dtypes import DTYPES, DType
from cuscan.layout import Dimension, Layout, span_of
from cuscan.order import GROUP, SECTION
from cuscan.request import ScanRequest
from cuscan.specs import ArraySpec
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
    publish so many `aggregates`, or `words`, and nothing else. Tiles of the arrays `sent` are sent for. The family's own
    words `beside` lie behind struct Geometry.
    """
    op, segments = request.op, request.segments
    number, carry = DTYPES[request.result.dtype.accumulator], DTYPES[request.carry]
    index = index_dtype(request)
    exclusive = request.exclusive or request.include_initial
    sparse = exclusive or request.has_initial or request.skip_nan or request.mask is not None
    state, carry_state = (state_bytes(request, of, DTYPES[index]) for of in (number, carry))
    words = words or aggregates * -(-state // 4) or strip_words(strips, chains, batches, carry_state)
    ports = [
        _port(spec, access, i in sent) for i, (spec, access) in enumerate(zip(layout.arrays, accesses, strict=True))
    ]
    values, results = len(request.values), len(request.results)
    if request.only_carry:
        ports[values : values + results] = [Port(port.type) for port in ports[values : values + results]]
    mask, segment_port, row_initial, last = ports[values + results : values + results + 4]
    carry_in, carry_out = (
        tuple(Port(s.dtype.cpp, "Uniform") for s in c) for c in (request.carry_in, request.carry_out)
    )
    kind = segments.kind.capitalize() if segments else "None"
    if kind == "Offsets":
        kind, segment_port = "Bits", Port("uint32", "Element")
    config = Config(
        family=family,
        op=op.functor.format(T=number.cpp, Index=index, Sparse=str(sparse).lower()),
        carry_op=op.functor.format(T=carry.cpp, Index=index, Sparse=str(sparse).lower()),
        functor_source=op.source,
        index=index,
        indexed=op.indexed,
        values=tuple(ports[:values]),
        results=tuple(ports[values : values + results]),
        mask=mask,
        segment_port=segment_port,
        row_initial=row_initial,
        last=last,
        carry_in=carry_in,
        carry_out=carry_out,
        segments=kind,
        segments_have_initial=request.segments_have_initial,
        reverse=request.reverse and op.indexed,
        exclusive=exclusive,
        includes_initial=request.include_initial,
        shows_segment_starts=request.exclusive and segments is not None,
        skips_nan=request.skip_nan,
        has_initial=request.has_initial,
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
    elements = (length - request.include_initial,)
    lengths = (*elements * values, *(length,) * results, *elements * 2)
    dimensions = (layout.axis, column or _unit_dimension(layout), *batch)
    geometry = (
        *(word for dim in dimensions for word in (dim.size, *dim.strides)),
        product(batch),
        units,
        words,
        *(word for i, along in enumerate(lengths) for word in span_of(layout, i, along)),
        *beside,
    )
    return ScanPlan(config, grid, geometry, layout.offsets, workspace_words=words)


def _port(spec: ArraySpec | None, access: str, sent: bool) -> Port:
    if spec is None:
        return Port()
    return Port(spec.dtype.cpp, "Uniform" if access in STILL else access, access == "Number", sent)


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
    dtype = request.op.states.dtype(number.name)
    fields = [dtype.fields[name][0] for name in dtype.names] if dtype.fields and dtype.names else [dtype]
    sizes = [index.itemsize if request.op.indexed and i == 1 else field.itemsize for i, field in enumerate(fields)]
    return _struct_bytes([_struct_bytes(sizes), 4], max(*sizes, 4)) if request.segments else _struct_bytes(sizes)


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
