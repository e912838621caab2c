"""Scans of bytes as scans of words: which calls, every byte once, and the bits of single bytes in the simulator."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import simulator
from draws import draws
from plans import dimensions, planned, request
from selection import covering, each
from simulator import assert_same, misaligned, prepare
from views import view

import cuscan
from cuscan.operators import INDEXED
from cuscan.planning.config import Target
from cuscan.planning.on_words import on_words
from cuscan.request.layout import layout_of

OLDER = Target(80, 132)
SHAPE = (50, 300, 37)
OPERATORS = ("add", "mul", "min", "max", "and", "or", "xor")


def words(*arguments: Any, **keywords: Any) -> Any:
    """What `on_words` makes of a call."""
    made = request(*arguments, **keywords)
    return on_words(made, layout_of(made))


def byte(shape=SHAPE, dtype="uint8", strides=None, pointer=0, op="add", axis=1, **keywords):
    return words(view(shape, dtype, strides, pointer), op, axis, dtype=dtype, **keywords)


def test_bytes_across_lines_go_on_words():
    for dtype, op in itertools.product(("uint8", "int8", "bool"), OPERATORS):
        assert byte(dtype=dtype, op=op)
    assert byte(reverse=True, exclusive=True, has_initial=True) and byte(include_initial=True)


def test_masks_are_words_unless_they_hold_for_all_columns():
    def types(mask=None, segments=None):
        config = planned(view(SHAPE, "uint8"), axis=1, dtype="uint8", mask=mask, segments=segments).config
        return config.values[0].type, config.mask.type if mask else config.segment_operand.type

    assert types(view(SHAPE, "bool")) == ("word<uint8>", "word<boolean>")
    assert types(view(SHAPE, "bool", (0, 37, 1))) == ("word<uint8>", "word<boolean>")
    assert types(view(SHAPE, "bool", (300, 1, 0))) == ("word<uint8>", "boolean")
    assert types(segments=("offsets", view((3,), "int64"))) == ("word<uint8>", "uint32")
    assert types(segments=("keys", view(SHAPE, "int16", (300, 1, 0)))) == ("word<uint8>", "int16")
    assert types(segments=("reset", view(SHAPE, "bool", (300, 1, 0)))) == ("word<uint8>", "boolean")


OTHERS: dict[str, dict[str, Any]] = {
    "wider": {"shape": SHAPE, "dtype": "int16"},
    "mask with gaps": {"mask": view(SHAPE, "bool", (300 * 74, 74, 2))},
    "mask for all steps": {"mask": view(SHAPE, "bool", (37, 0, 1))},
    "mask backward": {"mask": view(SHAPE, "bool", (-300 * 37, 37, 1))},
    "reset": {"segments": ("reset", view(SHAPE, "bool"))},
    "carry": {"return_carry": True},
    "narrow": {"shape": (300, 7), "axis": 0},  # two words, of which one is not full, at least
    "columns apart": {"strides": (300 * 74, 74, 2)},
    "steps that stand still": {"strides": (37, 0, 1)},
    "backward": {"strides": (-300 * 37, 37, 1)},
    "another order": {"out": view(SHAPE, "uint8", (300 * 37, 1, 300))},
    "a user's": {"op": cuscan.Operator("later", "later", 0)},
}


@pytest.mark.parametrize("call", OTHERS.values(), ids=OTHERS)
def test_other_calls_do_not(call):
    assert not byte(**call)


def test_neither_do_results_of_another_width_nor_positions():
    assert not words(view(SHAPE, "uint8"), "add", 1) and not words(view(SHAPE, "bool"), "add", 1)
    assert not words(view(SHAPE, "uint8"), INDEXED["max", "first"], 1)


def test_words_are_aligned_if_all_rows_are():
    assert byte((300, 36), axis=0).aligned and byte((300, 36), axis=0).lacking == 0
    assert [byte((300, 32 + n), axis=0).lacking for n in range(1, 5)] == [3, 2, 1, 0]
    assert not byte((300, 37), axis=0).aligned
    assert not byte((300, 36), axis=0, pointer=2).aligned
    assert not byte((300, 36), axis=0, strides=(38, 1)).aligned
    assert not byte((300, 36), axis=0, out=view((300, 36), "uint8", pointer=1)).aligned


@pytest.mark.parametrize(
    ("shape", "family", "on"),
    [
        ((2**24, 8), "strips", True),
        ((2**18, 128), "whole_rows", True),
        ((2**18, 129), "whole_rows", False),  # single bytes: words would be panels, which are slower there
        ((2**24, 9), "strips", False),
        ((2**24, 17), "strips", False),
        ((32768, 32767), "panels", True),
        ((2**18, 641), "panels", True),
        ((5, 2**20), "panels", True),
    ],
)
def test_the_families_of_bytes(shape, family, on):
    config = planned(view(shape, "uint8"), axis=0, dtype="uint8").config
    assert (config.family, config.values[0].type == "word<uint8>") == (family, on)
    older = planned(view(shape, "uint8"), axis=0, dtype="uint8", target=OLDER).config
    assert (older.family, older.values[0].type) == ("panels", "word<uint8>")


def test_results_contiguous_along_the_scan_have_single_bytes():
    made = planned(view((300, 1000), "uint8", (1, 300)), axis=0, out=view((300, 1000), "uint8", (1, 300)))
    assert made.config.values[0].type == "uint8"


@pytest.mark.parametrize("shape", [(3, 5, 9), (4, 2, 8), (2, 3, 3, 23), (7, 12)])
@pytest.mark.parametrize("gap", [0, 3])
def test_words_cover_every_byte_once(shape, gap):
    steps = [math.prod(shape[a + 1 : -1]) * (shape[-1] + gap) for a in range(len(shape) - 1)]
    made = byte(shape, strides=(*steps, 1), axis=0)
    layout = made.layout
    dims = [layout.axis, *layout.others]
    found = []
    for place in itertools.product(*(range(dim.size) for dim in dims)):
        first = sum(at * dim.strides[0] for at, dim in zip(place, dims, strict=True))
        count = 4 - made.lacking * (place[1] + 1 == layout.others[0].size)
        found += range(first, first + count)
    expected = [
        sum(at * step for at, step in zip(place, (*steps, 1), strict=True))
        for place in itertools.product(*map(range, shape))
    ]
    assert sorted(found) == sorted(expected)


def test_columns_are_counted_in_words():
    assert dimensions(planned(view((7, 13), "uint8"), axis=0, dtype="uint8"))[1][:3] == (4, 4, 4)


# ---- in the simulator ------------------------------------------------------------------------------------------------

simulated = pytest.mark.skipif(
    not simulator.HAS_COMPILER, reason="g++, which compiles the simulated kernels, is missing"
)

# As in test_simulated_panels.py: a shape, an axis and the SMs for each way to share the work.
WAYS = {
    "whole": ((5, 1031), 0, 2),
    "whole-batch": ((37, 21, 13), 1, 2),
    "kept": ((90, 2051), 0, 1),
    "kept-batch": ((9, 1100, 9), 1, 1),
    "shared": ((2, 9003, 9), 1, 16),
    "shared-parts": ((900, 1201), 0, 32),
}
FLAGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "reverse": {"reverse": True},
    "exclusive": {"exclusive": True},
    "initial": {"exclusive": True, "reverse": True, "initial": 1},
    "leading": {"include_initial": True},
}
PLACES = {
    "dense": lambda x: x,
    "shifted": lambda x: misaligned(x, 3),
    "gaps": lambda x: np.concatenate([x, x[..., :2]], axis=-1)[..., :-2],
    "even": lambda x: np.ascontiguousarray(x[..., : x.shape[-1] // 4 * 4]),
    "half": lambda x: misaligned(np.ascontiguousarray(x[..., : x.shape[-1] // 4 * 4]), 2),
}


def drawn(dtype: str, shape: tuple[int, ...], seed: int) -> Any:
    (value,) = draws(dtype)(np.random.default_rng(seed), shape, 0)
    return value


@simulated
@pytest.mark.parametrize(("way", "place", "arch"), covering(itertools.product(WAYS, PLACES, (80, 90)), each))
def test_places(way: str, place: str, arch: int) -> None:
    shape, axis, sms = WAYS[way]
    value = PLACES[place](drawn("uint8", shape, 1))
    keywords: dict[str, Any] = {"axis": axis, "dtype": "uint8"}
    simulation = prepare(value, target=Target(arch, sms, cluster=0), **keywords)
    config = simulation.plan.config
    if config.family == "strips" and place in ("dense", "shifted"):  # whole rows of single bytes, which begin anywhere
        assert (way, arch) == ("shared", 90)
    elif place not in ("even", "half"):
        assert config.family == "panels" and config.values[0].type == "word<uint8>"
        assert config.grid == way.startswith("shared")
    for seed in (1, 2):
        assert_same(simulation.run(seed), cuscan.scan(value, **keywords))


@simulated
@pytest.mark.parametrize(
    ("op", "dtype", "flag"), covering(itertools.product(OPERATORS, ("uint8", "int8", "bool"), FLAGS), each)
)
def test_operators(op: str, dtype: str, flag: str) -> None:
    value = drawn(dtype, (70, 1031), 2)
    keywords: dict[str, Any] = {"axis": 0, "dtype": dtype, **FLAGS[flag]}
    if op in ("max", "min", "and", "or", "xor"):
        del keywords["dtype"]
    simulation = prepare(value, op, target=Target(90, 1, cluster=0), **keywords)
    assert simulation.plan.config.values[0].type.startswith("word<") and simulation.plan.config.family == "panels"
    assert_same(simulation.run(1), cuscan.scan(value, op, **keywords))


def beside(name: str, shape: tuple[int, ...], axis: int) -> dict[str, Any]:
    """A mask or segments; for all columns alike, unless `name` says otherwise."""
    rng = np.random.default_rng(3)
    thin = tuple(size if a == axis else 1 for a, size in enumerate(shape))
    n = shape[axis]
    return {
        "mask": lambda: {"mask": draws("bool")(rng, shape, axis)[0]},
        "mask of rows": lambda: {"mask": rng.random(thin) < 0.5},
        "offsets": lambda: {"offsets": np.sort(np.r_[0, rng.integers(0, n, n // 9), n])},
        "keys": lambda: {"keys": np.cumsum(rng.random(n) < 0.1)},
        "reset and mask": lambda: {"reset": rng.random(thin) < 0.1, "mask": rng.random(shape) < 0.7},
    }[name]()


BESIDE = ("mask", "mask of rows", "offsets", "keys", "reset and mask")


@simulated
@pytest.mark.parametrize(
    ("name", "way", "op", "flag"), covering(itertools.product(BESIDE, WAYS, ("add", "max", "and"), FLAGS), each, each)
)
def test_masks_and_segments(name: str, way: str, op: str, flag: str) -> None:
    shape, axis, sms = WAYS[way]
    value = PLACES["gaps" if way == "shared" else "dense"](drawn("uint8", shape, 4))  # dense rows are a strip
    keywords: dict[str, Any] = {"axis": axis, **beside(name, value.shape, axis), **FLAGS[flag]}
    if op == "add":
        keywords["dtype"] = "uint8"
    simulation = prepare(value, op, target=Target(90, sms, cluster=0), **keywords)
    assert simulation.plan.config.values[0].type == "word<uint8>"
    for seed in (1, 2):
        assert_same(simulation.run(seed), cuscan.scan(value, op, **keywords))
