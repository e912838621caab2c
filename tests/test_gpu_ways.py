"""The kernel families that the shapes of the GPU tests select. This is planning, which needs no GPU."""

from __future__ import annotations

import numpy as np
import pytest
from features import FEATURES, LOG_SUMS, Feature, call_for
from gpu import H200, WAYS, config_of, leads_to, numpy_dtype, small_units, way, way_of

from cuscan.planning import make_plan

ALIGNED = {  # the ways that items of 16 bytes take instead; and, below, items of 2 to 8 bytes
    "thread_rows": "rows",
    "staged_rows": "rows",
    "panels-shared": "strips-shared",
    "whole_rows-shared": "strips-shared",
    "cluster in turn": "tiles-shared",
}
UNALIGNED = {"float32": {"panels-shared": "strips-shared"}}
for name in ("float16", "float64", "complex64"):
    UNALIGNED[name] = {"panels-shared": "strips-shared", "cluster in turn": "tiles-shared"}
UNALIGNED["float16"]["panels-shared few"] = "panels-shared"  # rows of 6 bytes


@pytest.mark.parametrize("dtype", ["uint8", "float16", "float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize("kind", WAYS)
def test_the_shapes_lead_where_their_names_say(kind: str, dtype: str) -> None:
    shape, axis = way(kind, dtype)
    config = config_of(np.empty(shape, numpy_dtype(dtype)), axis=axis, dtype=dtype)
    expected = kind.split(maxsplit=1)[0]
    instead = ALIGNED if dtype == "complex128" else UNALIGNED.get(dtype, {})
    assert way_of(config) == instead.get(kind, instead.get(expected, expected))
    assert "bulk" not in kind or all(operand.staged for operand in config.values)


@pytest.mark.full
@pytest.mark.parametrize("feature", [pytest.param(f, id=name) for name, f in (FEATURES | LOG_SUMS).items()])
def test_every_feature_gets_as_far_as_it_can(feature: Feature) -> None:
    with small_units():
        for kind in WAYS:
            assert leads_to(kind, make_plan(call_for(feature, kind).request(), H200).config)
