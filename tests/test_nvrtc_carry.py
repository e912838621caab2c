"""Kernels with carries, and totals, compile for every supported architecture and do not spill. Needs no GPU."""

import itertools

import pytest
from selection import covering, each
from views import operands, view

from cuscan.planning import make_plan
from cuscan.planning.config import StartsConfig, Target
from cuscan.request import make_request
from cuscan.request.call import CARRY, Flags, Operands

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


@pytest.mark.parametrize("layout", PROMISED)
@pytest.mark.parametrize("carry", ["both", "total"])
def test_the_fast_ones_do_not_spill(layout, carry):
    registers, spilled = resources(config(layout, 90, PROMISED[layout], carry), 90)
    assert spilled == 0, f"{registers} registers and {spilled} bytes of spills"


def room(config):
    """The resources of an SM that determine speed: the shape of a kernel, and how many blocks share the registers."""
    registers, _ = resources(config, 90)
    side_by_side = 65536 // (-(-registers // 8) * 8 * config.block)
    if config.shared_bytes > 100 << 10:  # an SM has room for one such block, whatever its registers
        side_by_side = 1
    return config.family, dict(config.constants), config.block, side_by_side


@pytest.mark.parametrize("layout", PROMISED)
def test_carries_take_nothing_of_an_sm(layout):
    (op, *dtypes), (shape, axis) = PROMISED[layout], LAYOUTS[layout]
    arrays = operands(tuple(view(shape, dtype) for dtype in dtypes))
    plain = make_plan(make_request(Flags(op, axis), arrays, has_initial=False), Target(90, 132)).config
    assert room(config(layout, 90, PROMISED[layout], "both")) == room(plain)


@pytest.mark.parametrize("layout", ["cluster", "cluster-one", "rows-long"])
@pytest.mark.parametrize("feature", [ADD, ("mul", "bfloat16"), ("max", "float32"), RECURRENCE])
def test_totals_leave_registers_for_more_loads(layout, feature):
    """A kernel that only reads needs twice as many loads in flight: those of 1,024 threads per SM."""
    made = config(layout, 90, feature, "total")
    registers, _ = resources(made, 90)
    assert registers <= 64, f"{registers} registers"


def others():
    """Each layout with each kind of carry; operators take turns."""
    features = itertools.cycle([ADD, RECURRENCE, ("mul", "bfloat16"), ("max", "float32"), ADD])
    for layout, carry in itertools.product(HOT, ("in", "out", "both", "total")):
        yield layout, carry, next(features)


OTHER_SPILLS = {
    ("panels-block", "out"): 48,  # a recurrence, which strips take; without a carry it spills 40
    ("strips-shared", "out"): 92,  # recurrences, in the look-back warps of strips, by batches of one unit
    ("whole-rows", "total"): 148,  # strips, the same
}
SHARED_PANELS = 200  # at most, for any layout: test_nvrtc_features.py says why


@pytest.mark.full
@pytest.mark.parametrize("layout, carry, feature", list(others()))
def test_others_hardly_spill(layout, carry, feature):
    made = config(layout, 90, feature, carry)
    registers, spilled = resources(made, 90)
    shares = made.family == "panels" and made.grid
    allowed = SHARED_PANELS if shares else OTHER_SPILLS.get((layout, carry), 0)
    assert spilled <= allowed, f"{registers} registers and {spilled} bytes of spills"


MIXED = {
    "indices": ((MAX, "bfloat16"), {"segments": "keys", "reverse": True}),
    "indices-masked": ((MAX, "int64"), {"mask": True}),
    "offsets": (ADD, {"segments": "offsets", "exclusive": True}),
    "leading": (("logaddexp", "float64"), {"include_initial": True, "segments": "reset"}),
}


def mixed():
    """Each combination with each kind of layout; architectures take turns."""
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
