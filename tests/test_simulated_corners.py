"""Corner cases that no sweep of cases contains, most with results that are known without cuscan.

Examples are numbers that neutral elements cannot hide, flags that are neither 0 nor 1, lengths one beyond a whole unit,
and rows gigabytes apart.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest
import simulator
from feature_cases import twin
from simulator import (
    CODE,
    Memory,
    Simulation,
    assert_same,
    most_walks,
    new_workspace,
    prepare,
    small_sections,
    small_spans,
    small_units,
)

import cuscan
from cuscan.operators import LINEAR_RECURRENCE
from cuscan.planning.config import HEADER_BYTES, Access, Target
from cuscan.planning.walks import has_nodes, span_of_walk, totals_of_walk

pytestmark = pytest.mark.skipif(
    not simulator.HAS_COMPILER, reason="g++, which compiles the simulated kernels, is missing"
)

Array = np.ndarray[Any, Any]


def often(names: Iterable[Any], *chosen: Any) -> list[Any]:
    """Parameters; only `pytest --full` runs those that are not chosen."""
    return [name if name in chosen else pytest.param(name, marks=pytest.mark.full) for name in names]


@pytest.mark.parametrize(("columns", "in_turn"), [(4, None), (8, None), (8, 100)], ids=str)
def test_blocks_stay_in_strips_of_many_batches(columns: int, in_turn: int | None) -> None:
    """Two strips of 202 or 403 batches: blocks take pieces of their own strip, then of the other, by a counter each.

    With totals of nodes, strips are abreast, without counters, or in turn, if they have more than `in_turn` batches.
    """
    value = np.random.default_rng(0).integers(-9, 9, (2, 402 * 256 + 8, columns)).astype(np.float32)
    little = Target(90, 4, cluster=0, shared_bytes=24 * 1024)  # so tiles have few rows
    simulation = prepare(value, "add", axis=1, target=little)
    plan, constants = simulation.plan, dict(simulation.plan.config.constants)
    rows, looks = constants["Batch"] * constants["Rows"], constants["LookBackWarps"] * constants["Looks"]
    assert plan.config.family == "strips" and constants["Columns"] == columns
    assert has_nodes(looks * (32 // columns), rows // 256) == (columns == 8) and value.shape[1] > 200 * rows
    code = CODE
    if in_turn:
        code = CODE.broken("batches.cuh", "kFew = kHasNodes ? 2 * kEach * kBatches : 200", f"kFew = {in_turn}")
    workspace = new_workspace(plan.workspace_bytes)
    for seed in (1, 2):
        assert_same(simulation.run(seed, workspace=workspace, code=code), np.cumsum(value, 1))
    counters = workspace.array[HEADER_BYTES // 4 :][:4].view(np.uint64)
    taken = counters % 2**32 >= 202
    assert taken.all() if in_turn or columns == 4 else not taken.any()  # all pieces of both strips


class Chain(NamedTuple):
    """Columns whose walks go up and down several levels of totals."""

    shape: tuple[int, ...]
    columns: int  # that are scanned
    axis: int
    op: Any
    span: int  # totals that a walk looks at together
    levels: tuple[int, ...]  # how many totals are published at each of them, in a strip
    sections: bool = False  # of 64 units
    walks: int = 1  # that take turns in a block
    dtype: str = "float32"


CHAINS = {
    "sums": Chain((40 * 512 + 7, 24), 20, 0, "add", 4, (41, 10, 2, 0, 0, 0, 0)),
    "sums-abreast": Chain((2, 34 * 512 + 300, 24), 20, 1, "add", 4, (35, 8, 2, 0, 0, 0, 0)),
    "wide-carries": Chain((40 * 512 + 7, 17), 17, 0, LINEAR_RECURRENCE, 4, (41, 10, 2, 0, 0, 0, 0)),
    "wide-carries-apart": Chain((2, 34 * 512 + 300, 24), 20, 1, LINEAR_RECURRENCE, 4, (35, 8, 2, 0, 0, 0, 0)),
    "whole-spans": Chain((32 * 512, 24), 20, 0, "add", 4, (32, 8, 2, 0, 0, 0, 0)),
    "real-tuning": Chain((100 * 512, 17), 17, 0, LINEAR_RECURRENCE, 16, (100, 6, 0, 0)),
    "sections": Chain((100 * 512 + 7, 24), 20, 0, "add", 4, (101, 25, 6, 3), sections=True),
    "sections-abreast": Chain((2, 70 * 512, 24), 20, 1, LINEAR_RECURRENCE, 4, (70, 17, 4, 2), sections=True),
    "sections-without-nodes": Chain((100 * 512 + 7, 12), 12, 0, "add", 64, (51,), sections=True),
    "walks": Chain((40 * 512 + 7, 24), 20, 0, "add", 2, (41, 20, 10, 5, 2, 1, *6 * (0,)), walks=2),
    "walks-abreast": Chain((2, 37 * 1024, 5), 5, 1, "add", 8, (19, 2, 0, 0), walks=4, dtype="float16"),
    "walks-of-few-batches": Chain((32 * 1024 + 8, 5), 5, 0, "add", 8, (17, 2, 0, 0), walks=4, dtype="float16"),
}


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(
    "name",
    often(CHAINS, "sums", "wide-carries", "real-tuning", "sections", "walks-abreast", "walks-of-few-batches"),
)
def test_totals_of_batches_of_nodes_and_of_sections(name: str, reverse: bool) -> None:
    """A walk goes down the levels of totals, with the initial value or earlier sections before it."""
    chain = CHAINS[name]
    rng, initial = np.random.default_rng(3), 0.5 if reverse else None
    value = rng.standard_normal(chain.shape).astype(chain.dtype)[..., : chain.columns]
    values: Any = value
    if chain.op == LINEAR_RECURRENCE:
        values = rng.uniform(0.9, 1, chain.shape).astype(np.float32)[..., : chain.columns], value
    with (
        most_walks(chain.walks),
        small_spans() if chain.span < 16 else contextlib.nullcontext(),
        small_sections() if chain.sections else contextlib.nullcontext(CODE) as code,
    ):
        simulation = prepare(
            values, chain.op, axis=chain.axis, reverse=reverse, initial=initial, target=Target(90, 4, cluster=0)
        )
        constants = dict(simulation.plan.config.constants)
        assert simulation.plan.config.family == "strips" and constants["ScanWarps"] == 1
        assert constants["Walks"] == chain.walks
        assert span_of_walk(chain.columns, constants["LookBackWarps"], constants["Looks"]) == chain.span
        rows = constants["Rows"] * constants["Batch"]
        assert totals_of_walk(-(-chain.shape[chain.axis] // rows), chain.span, rows // 256) == chain.levels
        expected = twin(simulation, initial)
        for seed in (1, 2):
            for result, wanted in zip(simulation.run_all(seed, code=code), expected, strict=True):
                assert_same(result, wanted)


def test_walks_of_units_of_two_tiles() -> None:
    value = np.random.default_rng(0).integers(0, 256, (30 * 256 + 7, 48), dtype=np.uint8)
    simulation = prepare(value, "add", axis=0, target=Target(90, 4, cluster=0))
    constants = dict(simulation.plan.config.constants)
    assert (constants["Rows"], constants["Batch"], constants["Walks"]) == (128, 4, 2)
    for seed in (1, 2):
        assert_same(simulation.run(seed), np.cumsum(value, 0, dtype=np.uint64))


STILL: dict[str, tuple[tuple[int, ...], int, int]] = {
    "flat": ((2, 700, 12), 1, 4),
    "pairs": ((4500, 2), 0, 4),
    "wide": ((700, 52), 0, 4),
    "own": ((300, 128), 0, 1),
}


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "int8"])  # results could take the place of floats, if these moved
@pytest.mark.parametrize("way", STILL)
def test_a_value_that_stands_still_along_the_axis(way: str, dtype: str, reverse: bool) -> None:
    """Each column has one value, or all have the same."""
    shape, axis, sms = STILL[way]
    row = tuple(1 if n == axis else size for n, size in enumerate(shape))
    for narrow in (row, (1,) * len(shape)):
        value = np.broadcast_to(np.random.default_rng(4).integers(1, 9, narrow).astype(dtype), shape)
        target = Target(90, sms, cluster=0)
        simulation = prepare(value, "add", axis=axis, dtype=None, reverse=reverse, target=target)
        config = simulation.plan.config
        assert config.family == "strips" and config.grid == (way != "own") and not dict(config.constants)["InPlace"]
        assert config.values[0].access is Access.BROADCAST
        assert_same(simulation.run(1), cuscan.scan(value, axis=axis, reverse=reverse))


@pytest.mark.parametrize(
    ("dtype", "columns"),
    [
        ("float32", 7),
        ("uint8", 60),
        *(
            pytest.param(*one, marks=pytest.mark.full)
            for one in (("float64", 5), ("float16", 15), ("complex64", 5), ("uint8", 29))
        ),
    ],
)
@pytest.mark.parametrize(("batch", "length"), [(3, 1301), (2, 5001)])
def test_whole_rows_of_few_columns(dtype: str, columns: int, batch: int, length: int) -> None:
    """Rows of the batch begin anywhere, so that strips cannot take them."""
    value = np.random.default_rng(1).integers(0, 9, (batch, length, columns)).astype(dtype)
    simulation = prepare(value, "add", axis=1, dtype=dtype, target=Target(90, 5, cluster=0))
    constants = dict(simulation.plan.config.constants)
    assert simulation.plan.config.family == "whole_rows" and constants["Ahead"] < constants["Stages"]
    assert constants["Columns"] == (15 if columns == 60 else columns)  # words of aligned bytes
    for seed in (1, 2):
        assert_same(simulation.run(seed), cuscan.scan(value, axis=1, dtype=dtype))


# ---- addresses beyond 2^32 -----------------------------------------------------------------------

GIB, MIB = 1 << 30, 1 << 20
# Shape, strides in bytes, scanned axis, largest cluster in blocks.
FAR_APART = {
    "rows": ((5, 100), (3 * GIB, 4), -1, 0),
    "rows-of-far-elements": ((2, 100), (9 * GIB, 80 * MIB), -1, 0),
    "cluster": ((3, 1300), (-5 * GIB, 4), -1, 16),
    "tiles": ((3, 1301), (5 * GIB, 4), -1, 0),
    "panels": ((2, 300, 9), (40 * GIB, 40 * MIB, 4), 1, 0),
    "strips": ((300, 12), (40 * MIB, 4), 0, 0),
    "whole_rows": ((3, 700, 37), (5 * GIB, 148, 4), 1, 0),
}


def far_apart(name: str, dtype: str = "int32") -> tuple[Any, Array]:
    """The simulation of a scan whose rows take a few pages out of many gigabytes, and its result."""
    shape, strides, axis, cluster = FAR_APART[name]
    value, out = (Memory.empty(shape, strides, dtype).array for _ in range(2))
    value[...] = np.random.default_rng(0).integers(-999, 999, shape)
    with small_units():
        simulation = prepare(value, axis=axis, dtype=dtype, out=out, target=Target(90, 4, cluster=cluster))
    return simulation, cuscan.scan(np.ascontiguousarray(value), axis=axis, dtype=dtype)


@pytest.mark.parametrize("name", often(FAR_APART, "panels"))
def test_rows_gigabytes_apart(name: str) -> None:
    simulation, expected = far_apart(name)
    assert simulation.plan.config.family == name.split("-", maxsplit=1)[0]
    assert_same(simulation.run(1), expected)


@pytest.mark.parametrize(
    ("name", "header", "old", "new"),
    [
        ("tiles", "geometry.cuh", "index * dimension.stride[a]", "int32(index * dimension.stride[a])"),
        pytest.param(
            *("rows-of-far-elements", "vectors.cuh", "(char*)item + index * step", "(char*)item + int32(index * step)"),
            marks=pytest.mark.full,
        ),
        pytest.param(
            *("strips", "tile_rows.cuh", "first + row * along + column", "first + int32(row * along) + column"),
            marks=pytest.mark.full,
        ),
    ],
)
def test_products_of_32_bits(name: str, header: str, old: str, new: str) -> None:
    simulation, expected = far_apart(name)
    with pytest.raises(AssertionError):
        assert_same(simulation.run(1, code=CODE.broken(header, old, new)), expected)


# ---- positions beyond 2^31, rows beyond 2^32 ---------------------------------------------------


@pytest.mark.full
@pytest.mark.parametrize("reverse", [False, True])
def test_the_end_of_a_row_of_2_31_elements(reverse: bool) -> None:
    """Only the last tiles run: the workspace says that all others are done."""
    length, unit = 2**31 + 3333, 2048
    ones = np.broadcast_to(np.int8(1), length)
    simulation = planned(ones, dtype="int8", reverse=reverse, return_carry=True, only_carry=True)
    assert simulation.plan.config.family == "tiles"
    workspace = new_workspace(simulation.plan.workspace_bytes)
    done = length // unit - 2
    workspace.array[0] = done  # tickets
    aggregates = workspace.array[HEADER_BYTES // 4 :].reshape(-1, 2)
    aggregates[:done] = unit, 1  # total and epoch
    carry = simulation.run_all(workspace=workspace, patience=10**8)[-1]
    assert_same(carry, np.array(length).astype(np.int32))


@pytest.mark.parametrize("family", often(["rows", "thread_rows"], "thread_rows"))
def test_the_last_of_2_32_rows(family: str) -> None:
    """Only the last two blocks run, so that little of the memory is accessed."""
    length = 16 if family == "rows" else 2
    value = Memory.empty((2**32 + 3, length), (length, 1), "int8").array
    value[-300:] = integers((300, length), -128, 127, "int8")
    simulation = prepare(value, dtype="int8")
    assert simulation.plan.config.family == family
    result = simulation.run(1, first_block=simulation.plan.grid - 2)
    assert_same(result[-300:], np.cumsum(value[-300:], -1, dtype=np.int8))


# ---- shapes --------------------------------------------------------------------------------------

# One shape for each kernel family, with the scanned axis and the largest cluster in blocks.
FAMILIES = {
    "rows": ((37, 100), -1, 0),
    "thread_rows": ((150, 27), -1, 0),
    "staged_rows": ((37, 203), -1, 0),
    "cluster": ((3, 1300), -1, 16),
    "tiles": ((3, 1300), -1, 0),
    "panels": ((4, 50, 9), 1, 0),
    "strips": ((2, 700, 12), 1, 0),
}


def planned(value: Any, op: Any = "add", *, sms: int = 4, cluster: int = 0, arch: int = 90, **call: Any) -> Simulation:
    with small_units():
        return prepare(value, op, target=Target(arch, sms, cluster=cluster), **call)


def integers(shape: tuple[int, ...], low: int = -999, high: int = 999, dtype: str = "int32") -> Array:
    return np.random.default_rng(0).integers(low, high, shape, dtype, endpoint=True)


@pytest.mark.parametrize("length", often([260, 261], 260))
def test_several_tiles_a_ticket(length: int) -> None:
    """In whole tickets, and in one with fewer tiles."""
    for rows in (66, 69):
        value = integers((rows, length))
        with small_units(8, 1):
            simulation = prepare(value, dtype="int32", target=Target(90, 1, cluster=0))
        assert simulation.plan.config.family == "tiles"
        assert dict(simulation.plan.config.constants)["Batch"] > 1
        assert_same(simulation.run(rows), np.cumsum(value, -1, dtype=np.int32))


@pytest.mark.parametrize(
    ("name", "shape", "axis", "cluster"),
    [
        ("tiles", (3, 3 * 512), -1, 0),
        pytest.param("cluster", (3, 2 * 512), -1, 16, marks=pytest.mark.full),
        pytest.param("panels", (2, 256, 9), 1, 0, marks=pytest.mark.full),
    ],
)
def test_results_one_longer_than_whole_units(name: str, shape: tuple[int, ...], axis: int, cluster: int) -> None:
    value = integers(shape)
    simulation = planned(value, axis=axis, cluster=cluster, dtype="int32", include_initial=True)
    assert simulation.plan.config.family == name
    first = np.zeros_like(np.take(value, [0], axis))
    expected = np.concatenate([first, np.cumsum(value, axis, dtype=np.int32)], axis)
    assert_same(simulation.run(2), expected)


@pytest.mark.parametrize("still", [False, True])
@pytest.mark.parametrize("family", ["staged_rows", "cluster", "tiles", "panels", "strips"])
def test_the_result_behind_the_last_element_does_not_restart(family: str, still: bool) -> None:
    """In strips, the stage of the last tile holds another tile's flags before."""
    shape, axis, cluster = ((9001, 12), 0, 0) if family == "strips" else FAMILIES[family]
    lengths = [1 if still and a == axis % len(shape) else n for a, n in enumerate(shape)]
    reset = np.broadcast_to(np.random.default_rng(0).random(lengths) < 0.5, shape)
    call = {"axis": axis, "exclusive": True, "include_initial": True, "initial": 3, "dtype": "int32", "reset": reset}
    value = integers(shape)
    with contextlib.nullcontext() if family == "strips" else small_units():
        simulation = prepare(value, target=Target(90, 2, cluster=cluster), **call)
    assert simulation.plan.config.family == family
    assert_same(simulation.run(1), cuscan.scan(value, **call))


def test_own_strips_of_a_batch() -> None:
    """A block has exactly as many turns as there are strips."""
    value = integers((3, 300, 128))
    simulation = planned(value, axis=1, sms=1, dtype="int32")
    assert simulation.plan.config.family == "strips" and not simulation.plan.config.grid
    assert_same(simulation.run(), np.cumsum(value, 1, dtype=np.int32))


def test_bulk_stores_of_strips_in_reverse() -> None:
    value = integers((256 * 40, 12))
    simulation = planned(value, axis=0, sms=1, dtype="int32", reverse=True)
    constants = dict(simulation.plan.config.constants)
    assert constants["BulkStores"] == constants["Back"] == 1
    assert_same(simulation.run(), np.cumsum(value[::-1], 0, dtype=np.int32)[::-1])


@pytest.mark.parametrize(("family", "shape"), [("strips", (2, 700, 12)), ("panels", (7, 50, 64))])
def test_a_row_initial_of_columns(family: str, shape: tuple[int, ...]) -> None:
    decay, value, initial = (integers(s, -1, 1).astype(np.float32) for s in (shape, shape, (shape[0], shape[2])))
    simulation = planned((decay, value), LINEAR_RECURRENCE, axis=1, initial=initial)
    assert simulation.plan.config.family == family
    expected, state = np.empty_like(value), initial
    for t in range(shape[1]):
        expected[:, t] = state = decay[:, t] * state + value[:, t]
    assert_same(simulation.run(1), expected)


# ---- numbers -------------------------------------------------------------------------------------


@pytest.mark.full
@pytest.mark.parametrize(("columns", "arch"), [(2, 90), (2, 80)], ids=["strips", "panels"])
def test_more_than_a_section_of_units(columns: int, arch: int) -> None:
    """Ever smaller negative numbers: the first one is the largest, and an error that adds a 0 before it shows."""
    length = 4100 * 256 + 3
    value = -1 - np.arange(length * columns, dtype=np.int32).reshape(length, columns)
    simulation = planned(value, "max", axis=0, arch=arch, sms=8)
    assert_same(simulation.run(0), np.maximum.accumulate(value, 0))


@pytest.mark.parametrize("family", often(FAMILIES, "strips"))
def test_mask_bytes_that_are_neither_0_nor_1(family: str) -> None:
    shape, axis, cluster = FAMILIES[family]
    value, mask = integers(shape), np.random.default_rng(1).choice(np.array([0, 2, 255, 128], np.uint8), shape)
    simulation = planned(value, axis=axis, cluster=cluster, dtype="int32", mask=mask.view(bool))
    assert simulation.plan.config.family in (family, "panels")
    assert_same(simulation.run(1), np.cumsum(np.where(mask != 0, value, 0), axis, dtype=np.int32))


@pytest.mark.parametrize("dtype", often(["int8", "uint8", "int16", "uint16"], "uint8"))
def test_masked_extrema_of_narrow_integers(dtype: str) -> None:
    """Numbers near one end of the type: masked elements must count as its greatest, or its least, number."""
    limits, shape = np.iinfo(dtype), (3, 1300)
    mask = np.random.default_rng(1).random(shape) < 0.3
    for op, value, neutral, accumulate in (
        ("min", integers(shape, limits.max // 2, limits.max - 1, dtype), limits.max, np.minimum.accumulate),
        ("max", integers(shape, limits.min, limits.max // 4 - 1, dtype), limits.min, np.maximum.accumulate),
    ):
        expected = accumulate(np.where(mask, value, np.array(neutral, dtype)), -1)
        assert_same(planned(value, op, mask=mask).run(1), expected)


@pytest.mark.parametrize("dtype", often(["bfloat16", "float32", "float64"], "float32"))
@pytest.mark.parametrize("op", often(["max", "min"], "max"))
def test_zeros_of_both_signs(op: str, dtype: str) -> None:
    """The result has the host's bits."""
    zeros = np.array([0.0, -0.0]).astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    value = np.random.default_rng(0).choice(zeros, (37, 100))
    assert_same(planned(value, op).run(1), cuscan.scan(value, op))


@pytest.mark.parametrize("dtype", often(["float16", "bfloat16", "float32", "float64"], "bfloat16"))
def test_fractions_to_bool(dtype: str) -> None:
    """All numbers other than 0 are true."""
    draw = np.random.default_rng(0).choice(
        np.array([0.0, -0.0, 0.25, -0.5, 1e-3]), (37, 100), p=[0.5, 0.4, 0.04, 0.03, 0.03]
    )
    value = draw.astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    assert_same(planned(value, "max", dtype="bool").run(1), np.maximum.accumulate(draw != 0, -1))


# ---- several batch dimensions --------------------------------------------------------------------

# Shape, scanned axis, largest cluster; two or three other axes lie too far apart to be merged.
BATCHES = {
    "rows": ((3, 2, 4, 100), -1, 0),
    "cluster": ((3, 2, 1300), -1, 16),
    "tiles": ((2, 3, 2, 1300), -1, 0),
    "panels": ((3, 2, 4, 50, 9), 3, 0),
    "strips": ((3, 2, 700, 12), 2, 0),
    "whole_rows": ((3, 2, 700, 37), 2, 0),
}


def batches(name: str) -> tuple[Simulation, Array]:
    """A scan of the first elements along each axis; in memory each batch axis has one more."""
    shape, axis, cluster = BATCHES[name]
    lengths = tuple(n + (a < axis % len(shape)) for a, n in enumerate(shape))
    value = integers(lengths)[tuple(slice(n) for n in shape)]
    return planned(value, dtype="int32", axis=axis, cluster=cluster), np.cumsum(value, axis, dtype=np.int32)


@pytest.mark.parametrize("name", often(BATCHES, "rows", "panels"))
def test_batch_axes_that_are_apart(name: str) -> None:
    simulation, expected = batches(name)
    assert simulation.plan.config.family == name
    assert simulation.plan.config.batch_dims > 1
    assert_same(simulation.run(1), expected)


# The code that locates rows of the batch: all families but panels use Row::at.
ROW_AT = ("geometry.cuh", "int64(row % uint64(", "int64(row / uint64(")
PANEL_AT = ("kernels/panels.cuh", "first += of.rest * ", "first += of.whole * ")


@pytest.mark.parametrize("name", often(BATCHES, "rows", "panels"))
def test_a_row_of_the_wrong_batch(name: str) -> None:
    simulation, expected = batches(name)
    code = CODE.broken(*(PANEL_AT if name == "panels" else ROW_AT))
    with pytest.raises(AssertionError):
        assert_same(simulation.run(1, code=code), expected)
