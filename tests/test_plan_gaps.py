"""Which arrays have columns with gaps, and what planning makes of them; tiles of three axes."""

from __future__ import annotations

import random
from typing import Any
from unittest import mock

import pytest
from plans import H200, constants, dimensions, gaps_of, planned, request
from test_plan_panels import beside
from views import view

from cuscan.planning.config import Target
from cuscan.planning.gaps import with_gaps
from cuscan.request.layout import layout_of


def of_rows(columns: int, pitch: int, rows: int = 6, dtype: str = "float32", item: int = 1) -> Any:
    """An array (100,000, 5, rows, columns) whose rows are `pitch` elements apart."""
    return view((100_000, 5, rows, columns), dtype, strides=(5 * rows * pitch, rows * pitch, pitch, item))


@pytest.mark.parametrize(("columns", "pitch", "dtype"), [(6, 7, "float32"), (3, 4, "float16"), (2, 6, "float64")])
def test_rows_with_gaps_are_one_axis(columns, pitch, dtype):
    made = planned(of_rows(columns, pitch, dtype=dtype), axis=1)
    (gaps,) = constants(made, "Gaps")
    _, (size, *strides), batch = dimensions(made)
    item = {"float16": 2, "float32": 4, "float64": 8}[dtype]
    assert made.config.family == "panels" and gaps
    assert (size, strides[:2]) == (6 * columns, [item, item])
    assert [of[0] for of in batch] == [100_000]


OTHERS = {
    "no gaps": of_rows(6, 6),
    "more than a sector": of_rows(6, 15),
    "five times as far apart as they are wide": of_rows(1, 5),
    "long rows": of_rows(40, 41),
    "columns that lie apart": of_rows(3, 8, item=2),
}


@pytest.mark.parametrize("rows", OTHERS)
def test_other_rows_are_not(rows):
    wanted = request(OTHERS[rows], axis=1)
    assert with_gaps(wanted, layout_of(wanted)) is None


def test_more_columns_than_a_tile_has_are_not():
    assert constants(planned(of_rows(6, 7, rows=500), axis=1), "Gaps") == (0,)


def test_results_have_no_gaps():
    x = of_rows(6, 7)
    for out, found in ((view(x.shape), True), (x, False)):
        wanted = request(x, axis=1, out=out)
        assert (with_gaps(wanted, layout_of(wanted)) is not None) == found


# ---- three axes beside the steps ------------------------------------------------------------------------------------


def turned(shape: tuple[int, ...], axis: int, order: tuple[int, ...], dtype: str = "float32", **keywords: Any) -> Any:
    """The plan of a scan whose results have their axes in another order in memory, the last one the fastest."""
    strides = [0] * len(shape)
    step = 1
    for a in reversed(order):
        strides[a], step = step, step * shape[a]
    return planned(view(shape, dtype), axis=axis, out=view(shape, dtype, strides=tuple(strides)), **keywords)


@pytest.mark.parametrize("target", [H200, Target(80, 108, 164 * 1024), Target(86, 84, 100 * 1024)])
def test_tiles_span_a_third_axis_where_much_less_moves_then(target):
    """Results lie side by side along two short axes, values along a third one."""
    made = turned((1492, 3, 10, 1568), 0, (3, 0, 2, 1), target=target)
    _, (size, *_), batch = dimensions(made)
    every, (value, result, *_), _ = gaps_of(made)
    assert constants(made, "Gaps") == (1,) and (size, every) == (30, 3)
    assert (value, result) == (4 * (1568 - 3 * 15680), 0)  # rows of three columns, each 15,680 values after the other
    assert [of[0] for of in batch] == [1568]


def test_tiles_of_two_axes_suffice_where_little_less_would_move():
    assert constants(turned((16, 159, 128, 45), 2, (3, 0, 2, 1)), "Gaps") == (0,)


def test_tiles_span_two_axes_where_rows_of_three_do_not_fit():
    with mock.patch("cuscan.planning.crossing.WASTEFUL", 0):
        small, large = (
            turned((4000, 2, 5, 2), 0, (1, 3, 2, 0), "complex128", target=target)
            for target in (Target(75, 40, 65536), H200)
        )
    assert constants(small, "Gaps") == (0,) and constants(large, "Gaps") == (1,)


def test_no_tile_is_narrower_than_a_row():
    x = view((300, 7, 4000, 5), "complex128", strides=(160_040, 1, 8, 32_008))
    out = view(x.shape, "complex128", strides=(1, 300, 2100, 8_400_000))
    assert constants(planned(x, axis=0, out=out, target=Target(75, 40, 65536)), "Gaps") == (0,)


@pytest.mark.parametrize("seed", range(40))
def test_tiles_have_whole_rows(seed):
    rng = random.Random(seed)
    shape = tuple(rng.choice([2, 3, 5, 7, 12, 60, 300, 4000]) for _ in range(4))
    target = Target(*rng.choice([(90, 132, 228 * 1024), (86, 84, 100 * 1024), (75, 40, 64 * 1024)]))
    with mock.patch("cuscan.planning.crossing.WASTEFUL", 0):
        made = turned(
            shape,
            0,
            tuple(rng.sample(range(4), 4)),
            rng.choice(["uint8", "float16", "float64", "complex128"]),
            target=target,
        )
    if made.config.family == "panels" and constants(made, "Gaps")[0]:
        assert beside(made)[0]["columns"] % gaps_of(made)[0] == 0
