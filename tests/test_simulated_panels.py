"""Panels in the simulator: every way to share them, rows at any alignment, bit for bit against NumPy."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import numpy as np
import pytest
import simulator
from draws import arrays_of, draws, in_order
from selection import covering, each, pairs
from simulator import LARGEST_CHUNKS, assert_same, misaligned, panels_of_unaligned_rows, prepare

import cuscan
from cuscan.planning.assemble import round_up
from cuscan.planning.config import Target
from cuscan.planning.panel_tile import SPLIT

pytestmark = pytest.mark.skipif(
    not simulator.HAS_COMPILER, reason="g++, which compiles the simulated kernels, is missing"
)

Array = np.ndarray[Any, Any]


@pytest.fixture(autouse=True)
def panels() -> Iterator[None]:
    """Few columns are panels."""
    with panels_of_unaligned_rows():
        yield


# Shape, axis and SMs for each way: tiles with all steps, of one row of the batch or of many; few and many rows of
# threads, or 5 or 9; panels that one block keeps; panels that blocks share, of whole rows or of parts; narrow columns
# in vectors.
WAYS = {
    "whole": ((5, 1031), 0, 2),
    "whole-tall": ((60, 61), 0, 2),
    "whole-batch": ((37, 21, 13), 1, 2),
    "whole-uneven": ((23, 138, 7), 1, 2),
    "kept": ((90, 2051), 0, 1),
    "kept-tall": ((600, 131), 0, 1),
    "kept-batch": ((9, 1100, 9), 1, 1),
    "shared": ((2, 2700, 9), 1, 4),
    "shared-parts": ((1100, 301), 0, 32),
    "whole-packed": ((5, 1032), 0, 2),
    "kept-packed": ((600, 132), 0, 1),
    "shared-packed": ((2, 2700, 12), 1, 4),
}

ARRAYS = 4  # in the geometry of panels: values, results, mask, segments

# Functions that draw columns with different layouts in memory.
LAYOUTS = {
    "dense": lambda draw, shape: draw(shape),
    "gaps": lambda draw, shape: draw((*shape[:-1], shape[-1] + 3))[..., : shape[-1]],
    "misaligned": lambda draw, shape: draw((int(np.prod(shape)) + 5,))[5:].reshape(shape),
    "every-second": lambda draw, shape: draw((*shape[:-1], 2 * shape[-1]))[..., ::2],
    "backwards": lambda draw, shape: draw(shape)[..., ::-1],
    "upside-down": lambda draw, shape: np.flip(draw(shape), -2),
    "turned": lambda draw, shape: np.moveaxis(draw((shape[-1], *shape[:-1])), 0, -1),
}
FLAGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "reverse": {"reverse": True},
    "exclusive": {"exclusive": True, "initial": 3},
    "leading": {"include_initial": True},
    "leading exclusive": {"exclusive": True, "include_initial": True, "initial": 3},
    "carry": {"return_carry": True},
}
BESIDE = ("nothing", "mask", "reset", "still reset", "keys", "offsets")
DTYPES = ("float32", "uint8", "float16", "int64", "complex64")


@dataclass(frozen=True)
class Case:
    """A sum that goes one of the ways."""

    way: str
    layout: str
    flag: str
    beside: str
    dtype: str
    seed: int = field(default=0)

    def draw(self, shape: tuple[int, ...]) -> Array:
        rng = np.random.default_rng(self.seed)
        if self.dtype in ("uint8", "int64"):
            return rng.integers(0, 100, shape).astype(self.dtype)
        return (rng.standard_normal(shape) + (1j if self.dtype == "complex64" else 0)).astype(self.dtype)

    def call(self) -> tuple[Array, dict[str, Any]]:
        rng = np.random.default_rng(self.seed + 1)
        shape, axis, _ = WAYS[self.way]
        lay, length = LAYOUTS[self.layout], shape[axis]
        beside: dict[str, Any] = {
            "nothing": {},
            "mask": {"mask": lay(lambda s: rng.random(s) < 0.7, shape)},
            "reset": {"reset": lay(lambda s: rng.random(s) < 0.1, shape)},
            "still reset": {"reset": np.broadcast_to(rng.random([*shape[:axis], 1, *shape[axis + 1 :]]) < 0.5, shape)},
            "keys": {"keys": rng.integers(0, 3, length)},
            "offsets": {"offsets": np.array([0, *sorted(rng.integers(0, length + 1, 3)), length])},
        }[self.beside]
        return lay(self.draw, shape), {"axis": axis, **FLAGS[self.flag], **beside}


def features(case: Case) -> Iterable[Hashable]:
    return each(case.way, case.layout, case.flag, case.beside, case.dtype)


def pairs_of(case: Case) -> Iterable[Hashable]:
    return pairs(case.way, case.layout, case.flag, case.beside, case.dtype)


ALL = [
    Case(*chosen, seed)
    for seed, chosen in enumerate(itertools.product(WAYS, LAYOUTS, FLAGS, BESIDE, DTYPES))
    if chosen[1:3] != ("turned", "carry")
]


@pytest.mark.parametrize("case", covering(ALL, features, pairs_of))
def test_simulated(case: Case) -> None:
    value, keywords = case.call()
    simulation = prepare(value, target=Target(90, WAYS[case.way][2], cluster=0), **keywords)
    if case.layout != "turned":
        config = simulation.plan.config
        way = "shared" if config.grid else "kept" if dict(config.constants).get("Kept") else "whole"
        assert config.family in ("panels", "strips", "whole_rows")
        assert config.family != "panels" or case.way.startswith(way)
    expected = arrays_of(cuscan.scan(value, **keywords))
    for seed in (1, 2):
        for got, one in zip(arrays_of(simulation.run(seed)), expected, strict=False):
            assert_same(got, one)


@pytest.mark.parametrize("way", ["whole", "kept", "shared", "whole-packed", "kept-packed", "shared-packed"])
@pytest.mark.parametrize(("dtype", "step"), [("uint8", 3), ("float32", 4), ("float64", 2), ("float64", 4)])
@pytest.mark.parametrize("arch", [80, 90])
def test_columns_with_small_gaps(way: str, dtype: str, step: int, arch: int) -> None:
    """Segments of values move with the gaps behind them, which take up to 24 bytes and must not meet the next ones."""
    (*others, columns), axis, sms = WAYS[way]
    rng = np.random.default_rng(8)
    value = rng.integers(0, 100, (*others, step * columns + 3)).astype(dtype)[..., : step * columns : step]
    mask = rng.random(value.shape) < 0.7
    simulation = prepare(value, axis=axis, target=Target(arch, sms, cluster=0), mask=mask)
    assert simulation.plan.config.family == "panels" and simulation.plan.geometry[-9 * ARRAYS] >= 0
    assert_same(simulation.run(1), cuscan.scan(value, axis=axis, mask=mask))


@pytest.mark.parametrize("way", ["whole-packed", "kept-packed", "shared-packed"])
@pytest.mark.parametrize("beside", ["carry", "reset", "reset mask"])
def test_bytes_move_eight_at_a_time(way: str, beside: str) -> None:
    """Results are as narrow as values, so that vectors of columns have the greatest length. None of them are words."""
    (*others, columns), axis, sms = WAYS[way]
    rng = np.random.default_rng(5)
    value = rng.integers(0, 100, (*others, round_up(columns, 8))).astype(np.uint8)
    keywords: dict[str, Any] = {"axis": axis}
    if beside == "carry":
        keywords["return_carry"] = True
    else:
        keywords |= {name: rng.random(value.shape) < 0.2 for name in beside.split()}
    with mock.patch("cuscan.planning.panel_shapes.LARGER", 100):  # no large blocks, which move four at a time
        simulation = prepare(value, "max", target=Target(80, sms, cluster=0), **keywords)
    constants = dict(simulation.plan.config.constants)
    assert constants["Pack"] == (8 if way == "whole-packed" else 4) and constants["Slots"] % constants["Pack"] == 0
    found, expected = arrays_of(simulation.run(1)), arrays_of(cuscan.scan(value, "max", **keywords))
    for got, one in zip(found, expected, strict=True):
        assert_same(got, one)


@pytest.mark.parametrize(
    ("op", "dtype"),
    covering(
        itertools.product(("add", "mul", "min", "max"), ("int16", "uint8", "float16", "float32", "int64", "bool")),
        each,
    ),
)
def test_masked_values(op: str, dtype: str) -> None:
    """Those of most dtypes are replaced by neutral ones when they are read."""
    rng = np.random.default_rng(4)
    (value,) = draws(dtype, nan=0.02)(rng, (300, 131), 0)
    mask = rng.random(value.shape) < 0.4
    mask[:40, :9] = False  # nothing precedes the first elements
    for flags in ({}, {"exclusive": True}, {"reset": rng.random(value.shape) < 0.05}):
        keywords: dict[str, Any] = {"axis": 0, "mask": mask, **flags}
        simulation = prepare(value, op, target=Target(90, 1, cluster=0), **keywords)
        assert simulation.plan.config.family == "panels"
        assert_same(simulation.run(1), cuscan.scan(value, op, **keywords))


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(("dtype", "columns", "length"), [("uint8", 8, 5003), ("uint8", 8, 9331), ("int16", 4, 9331)])
def test_rows_of_threads_lie_apart_where_values_have_gaps(dtype: str, columns: int, length: int, reverse: bool) -> None:
    value = np.random.default_rng(3).integers(0, 9, (2, length, columns + 1)).astype(dtype)[..., :columns]
    keywords: dict[str, Any] = {"axis": 1, "dtype": dtype, "reverse": reverse}
    simulation = prepare(value, target=Target(90, 16, cluster=0), **keywords)
    assert simulation.plan.config.family == "panels" and simulation.plan.config.grid
    assert_same(simulation.run(1), cuscan.scan(value, **keywords))


@pytest.mark.parametrize("flag", ["nothing", "reverse", "total"])
@pytest.mark.parametrize(
    ("dtype", "shape", "sms", "kib", "tiles", "stacks"),
    [
        ("complex128", (20009, 2), 2, 64, (64, 2), 2),
        ("uint8", (70009, 3), 2, 64, (256, 2), 4),
        ("uint8", (70009, 5), 2, 64, (128, 2), 2),
        ("float32", (5009, 37), 4, 96, (6, 3), 1),
    ],
)
def test_chunks_of_several_tiles_and_stacks(
    dtype: str, shape: tuple[int, int], sms: int, kib: int, tiles: tuple[int, int], stacks: int, flag: str
) -> None:
    """The last tile of a chunk may be lower, and the last chunk has fewer; with "total" only a carry is wanted.

    `tiles`: the rows of threads of a tile, and the tiles of a chunk.
    """
    rng = np.random.default_rng(7)
    value = (rng.integers(1, 9, shape) + (1j if dtype == "complex128" else 0)).astype(dtype)
    keywords: dict[str, Any] = {"axis": 0, "mask": rng.random(shape) < 0.8, "dtype": dtype}
    keywords |= {"nothing": {}, "reverse": {"reverse": True}, "total": {"return_carry": True}}[flag]
    only = {"only_carry": True} if flag == "total" else {}
    with mock.patch.multiple("cuscan.planning.panel_shapes", CHUNK_BYTES=kib * 1024, **LARGEST_CHUNKS):
        simulation = prepare(value, target=Target(90, sms, cluster=0), **keywords, **only)
    config, words = simulation.plan.config, simulation.plan.geometry[-(17 + 9 * ARRAYS) :]
    rows, stack, chunk_levels, chunk_tiles = words[4], words[5], words[11], words[12]
    assert config.family == "panels" and config.grid and (rows, chunk_tiles, 1 << chunk_levels) == (*tiles, stacks)
    assert rows * (chunk_tiles - 1) < stack * stacks <= rows * chunk_tiles
    expected = arrays_of(cuscan.scan(value, **keywords))[-1 if only else 0 :]  # the carry comes last
    for seed in (1, 2):
        for got, one in zip(arrays_of(simulation.run(seed)), expected, strict=True):
            assert_same(got, one)


def test_operators_combine_states_alone() -> None:
    """The last stack of a panel lacks units, and the operator divides by zero unless its operands are residues."""
    combine = "(earlier + later) % 6 / int((unsigned(earlier) < 6) & (unsigned(later) < 6))"
    op = cuscan.Operator("residue", combine, 0, numpy=lambda earlier, later: (earlier + later) % 6)
    rng = np.random.default_rng(5)
    value = rng.integers(0, 6, (1600, 37), np.int32)
    mask = rng.random(value.shape) < 0.8
    with mock.patch.multiple("cuscan.planning.panel_shapes", CHUNK_BYTES=96 * 1024, **LARGEST_CHUNKS):
        simulation = prepare(value, op, axis=0, mask=mask, dtype="int32", target=Target(90, 4, cluster=0))
    assert simulation.plan.config.family == "panels" and simulation.plan.config.grid
    for seed in range(6):
        assert_same(simulation.run(seed), cuscan.scan(value, op, axis=0, mask=mask, dtype="int32"))


# Sizes and SMs with which blocks have panels of their own, whole or in parts, or share them.
TURNED = {
    "whole": ((37, 21, 40), 8),
    "kept": ((1100, 20, 33), 1),
    "shared": ((2600, 5, 7), 32),
    "short": ((3, 50, 41), 4),
}
ORDERS = tuple(itertools.permutations(range(3)))


@dataclass(frozen=True)
class Turned:
    """A scan along axis 0 whose values and results have different orders of axes in memory."""

    sizes: str
    values: tuple[int, ...]
    results: tuple[int, ...]
    dtype: str
    flag: str

    def facets(self) -> Iterable[Hashable]:
        return each(self.sizes, self.values, self.results, self.dtype, self.flag)

    def pairs(self) -> Iterable[Hashable]:
        return pairs(self.sizes, (self.values, self.results), self.dtype, self.flag)


ALL_TURNED = [
    Turned(*chosen)
    for chosen in itertools.product(TURNED, ORDERS, ORDERS, ("float32", "uint8", "float16", "int64"), FLAGS)
    if chosen[1] != chosen[2]
]


@pytest.mark.parametrize("case", covering(ALL_TURNED, Turned.facets, Turned.pairs))
def test_results_lie_in_another_order_than_values(case: Turned) -> None:
    shape, sms = TURNED[case.sizes]
    value = in_order(case.values, shape, case.dtype)
    value[...] = np.random.default_rng(3).integers(0, 9, shape)
    keywords = {"axis": 0, "dtype": case.dtype, **FLAGS[case.flag]}
    outs = [
        in_order(case.results, (shape[0] + case.flag.startswith("leading"), *shape[1:]), case.dtype) for _ in range(2)
    ]
    with mock.patch("cuscan.planning.panels.ABREAST", 2):
        simulation = prepare(value, target=Target(80, sms, cluster=0), out=outs[0], **keywords)
    expected = arrays_of(cuscan.scan(value, out=outs[1], **keywords))
    for got, one in zip(arrays_of(simulation.run(1)), expected, strict=False):
        assert_same(got, one)


# Batch, steps and columns: blocks share tiles of a few columns, of which a warp reads several rows of threads. The last
# row of threads has fewer steps than the others.
FEW_COLUMNS = {"two": (1, 5003, 2), "three": (1, 9331, 3), "two, in two batch rows": (2, 9003, 2)}


@pytest.mark.parametrize("items", [0, 3])
@pytest.mark.parametrize("flag", ["plain", "reverse", "leading", "carry"])
@pytest.mark.parametrize("dtype", ["uint8", "float16", "float32"])
@pytest.mark.parametrize("sizes", FEW_COLUMNS)
def test_rows_of_threads_lie_apart_where_columns_are_few(sizes: str, dtype: str, flag: str, items: int) -> None:
    shape = FEW_COLUMNS[sizes]
    value = np.random.default_rng(5).integers(1, 9, shape).astype(dtype)
    mask = np.random.default_rng(6).random(shape) < 0.8
    value = misaligned(value, items * value.itemsize)
    keywords: dict[str, Any] = {"axis": 1, "dtype": dtype, "mask": misaligned(mask, 2 * items), **FLAGS[flag]}
    simulation = prepare(value, target=Target(90, 16, cluster=0), **keywords)
    words = simulation.plan.geometry[-9 * ARRAYS :]
    assert simulation.plan.config.family == "panels" and any(word & SPLIT for word in words[5::9])
    expected = arrays_of(cuscan.scan(value, **keywords))
    for got, one in zip(arrays_of(simulation.run(1)), expected, strict=False):
        assert_same(got, one)


@pytest.mark.parametrize("flag", FLAGS)
@pytest.mark.parametrize("dtype", ["uint8", "float16", "float32"])
@pytest.mark.parametrize("length", [33, 43, 75])
def test_a_short_axis_is_one_tile_of_any_number_of_rows_of_threads(length: int, dtype: str, flag: str) -> None:
    """With 100 KiB of shared memory, not all such tiles fit."""
    shape = (2, length, 4999)
    value = np.random.default_rng(length).integers(1, 9, shape).astype(dtype)
    keywords: dict[str, Any] = {"axis": 1, "dtype": dtype, **FLAGS[flag]}
    expected = arrays_of(cuscan.scan(value, **keywords))
    little = prepare(value, target=Target(86, 1, shared_bytes=100 * 1024, cluster=0), **keywords)
    for got, one in zip(arrays_of(little.run(1)), expected, strict=False):
        assert_same(got, one)
    simulation = prepare(value, target=Target(80, 1, cluster=0), **keywords)
    tile, steps = simulation.plan.geometry[-(17 + 9 * ARRAYS) :], length + (flag == "leading")
    assert simulation.plan.config.family == "panels"
    assert tile[5] == -(-steps // 8)
    for got, one in zip(arrays_of(simulation.run(1)), expected, strict=False):
        assert_same(got, one)
