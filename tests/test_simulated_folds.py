"""The operators that fold totals with positions, in the simulated kernels compared with NumPy."""

from __future__ import annotations

import numpy as np
import pytest
import simulator
from draws import Array, tied
from feature_cases import of_family

from cuscan.distributed.pieces import joining
from cuscan.dtypes import DTYPES
from cuscan.operators import INDEXED

pytestmark = pytest.mark.skipif(
    not simulator.HAS_COMPILER, reason="g++, which compiles the simulated kernels, is missing"
)


def states(rng: np.random.Generator, shape: tuple[int, ...], axis: int) -> tuple[Array, ...]:
    """Equal values, NaN, and elements without a position (-1)."""
    return *tied("float32", nan=0.01)(rng, shape, axis), rng.integers(-1, 9, shape)


@pytest.mark.parametrize("op, ties", [("max", "last"), pytest.param("min", "first", marks=pytest.mark.full)])
def test_totals_with_positions(op: str, ties: str) -> None:
    joined = joining(INDEXED[op, ties], DTYPES["float32"])
    of_family("panels-shared", f"{op}-{ties}", joined, draw=states, carry="out", segments="reset").check()
