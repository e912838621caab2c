"""Which arrays have columns with gaps, and what planning makes of them."""

from __future__ import annotations

from typing import Any

import pytest
from plans import constants, dimensions, planned, view


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
    "more columns than a tile has": of_rows(6, 7, rows=500),
}


@pytest.mark.parametrize("rows", OTHERS)
def test_other_rows_are_not(rows):
    made = planned(OTHERS[rows], axis=1)
    assert not dict(made.config.constants).get("Gaps")


def test_results_have_no_gaps():
    x = of_rows(6, 7)
    assert constants(planned(x, axis=1), "Gaps") == (1,)
    assert constants(planned(x, axis=1, out=x), "Gaps") == (0,)
