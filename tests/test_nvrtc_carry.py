"""Kernels with carries, and totals, compile for every architecture that is promised and do not spill. No GPU needed."""

import itertools

import pytest
from selection import covering, each
from views import operands, view

from cuscan.call import CARRY, Flags, Operands
from cuscan.config import StartsConfig, Target
from cuscan.plan import make_plan
from cuscan.request import make_request

pytest.importorskip("cuscan.compile.module", reason="CuPy does not import, and with it the bindings of NVRTC")
from nvrtc_plans import ARCHS, LAYOUTS, MAX, RECURRENCE, SEGMENTS, figures, report, resources

ADD = ("add", "float32")
HOT = ("rows-long", "cluster", "tiles-grid", "panels-block", "strips-own", "strips-shared", "strips-two", "whole-rows")
# The layouts whose speed with carries is promised: (32768, 32768), 2^28 and (2^20, 100).
PROMISED = {"tiles-block": ADD, "tiles-grid": ADD, "whole-rows": ADD, "strips-own": RECURRENCE}


def config(layout, arch, feature, carry, *, segments=None, mask=False, **flags):
    """`carry`: "in", "out", "both" or "total"."""
    (op, *dtypes), (shape, axis) = feature, LAYOUTS[layout]
    values = tuple(view(shape, dtype) for dtype in dtypes)
    boundaries = view((1001,) if segments == "offsets" else shape, SEGMENTS.get(segments, "bool"))
    arrays = operands(values, view(shape, "bool") if mask else None, (segments, boundaries) if segments else None)
    flags |= {"return_carry": carry != "in", "only_carry": carry == "total"}
    if carry != "out":
        plain = make_request(Flags(op, axis, **flags), arrays, has_initial=False)
        lines = tuple(n for a, n in enumerate(shape) if a != axis)
        fields = [view(lines, f.dtype.name) for f in plain.kind.carry_fields]
        arrays = Operands((*arrays.views, *fields), (*arrays.roles, *CARRY[1 : 1 + len(fields)]))
    return make_plan(make_request(Flags(op, axis, **flags), arrays, has_initial=False), Target(arch, 132)).config


# Bytes of registers that may be spilled, at most: in the pass over the last elements, which each line has once.
SPILLS = {("strips-own", "both"): 272, ("strips-own", "total"): 80}


@pytest.mark.parametrize("layout", PROMISED)
@pytest.mark.parametrize("carry", ["both", "total"])
def test_the_fast_ones_do_not_spill(layout, carry):
    registers, spilled = resources(config(layout, 90, PROMISED[layout], carry), 90)
    assert spilled <= SPILLS.get((layout, carry), 0), f"{registers} registers and {spilled} bytes of spills"


def others():
    """Each layout with each way of a carry, and operators in turn."""
    features = itertools.cycle([ADD, RECURRENCE, ("mul", "bfloat16"), ("max", "float32"), ADD])
    for layout, carry in itertools.product(HOT, ("in", "out", "both", "total")):
        yield layout, carry, next(features)


OTHER_SPILLS = {
    ("tiles-grid", "both"): 64,  # products of bfloat16
    ("panels-block", "out"): 272,  # a recurrence, in strips
    ("strips-shared", "both"): 44,
}


@pytest.mark.full
@pytest.mark.parametrize("layout, carry, feature", list(others()))
def test_others_hardly_spill(layout, carry, feature):
    registers, spilled = resources(config(layout, 90, feature, carry), 90)
    allowed = OTHER_SPILLS.get((layout, carry), 0)
    assert spilled <= allowed, f"{registers} registers and {spilled} bytes of spills"


MIXED = {
    "indices": ((MAX, "bfloat16"), {"segments": "keys", "reverse": True}),
    "indices-masked": ((MAX, "int64"), {"mask": True}),
    "offsets": (ADD, {"segments": "offsets", "exclusive": True}),
    "leading": (("logaddexp", "float64"), {"include_initial": True, "segments": "reset"}),
}


def mixed():
    """Each combination on each kind of layout, for one architecture in turn."""
    layouts = ("rows-long", "cluster", "tiles-grid", "panels-block")
    for (i, name), (k, layout) in itertools.product(enumerate(MIXED), enumerate(layouts)):
        yield name, layout, ARCHS[(i + k) % len(ARCHS)]


@pytest.mark.full
@pytest.mark.parametrize("name, layout, arch", covering(mixed(), each))
def test_combinations_compile(name, layout, arch):
    feature, keywords = MIXED[name]
    made = config(layout, arch, feature, "both", **keywords)
    registers, _ = figures(report(made, arch))
    assert registers * made.block * made.blocks_per_sm <= 65536


def test_bits_of_offsets_beside_a_carry_compile():
    assert resources(StartsConfig("int64", carries=True), 90)[1] <= 64
