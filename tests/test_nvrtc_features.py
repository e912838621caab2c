"""The features compile for every supported architecture, and do not spill. Needs no GPU."""

import itertools
import re

import pytest
from operator_examples import BRACKETS, MATRIX_PRODUCT, MODULAR_PRODUCT
from selection import covering, each
from views import operands, view

import cuscan
from cuscan.compile.source import make_source
from cuscan.errors import CompileError
from cuscan.operators import INDEXED, LINEAR_RECURRENCE
from cuscan.planning import make_plan
from cuscan.planning.config import CopyConfig, StartsConfig, Target
from cuscan.request import make_request
from cuscan.request.call import Flags

pytest.importorskip("cuscan.compile.module", reason="CuPy does not import, and with it the bindings of NVRTC")
from nvrtc_plans import ARCHS, LAYOUTS, MAX, RECURRENCE, SEGMENTS, compiled, resources

HOT = (
    "rows-short",
    "rows-long",
    "cluster-one",
    "cluster",
    "tiles-block",
    "tiles-grid",
    "panels-block",
    "panels-grid",
    "strips-unaligned",
)
MIN = INDEXED["min", "last"]

BYTES = cuscan.Operator("bytes", "later", (0,) * 16, state={f"f{i}": "int8" for i in range(16)})

# Operator and dtypes of the values; keywords of `config`.
FLOAT32 = {
    "max": (("max", "float32"), {}),
    "indices": ((MAX, "float32"), {}),
    "recurrence": (RECURRENCE, {}),
    "recurrence-scalar": (RECURRENCE, {"still": True}),
    "reset": (("add", "float32"), {"segments": "reset"}),
    "keys": (("add", "float32"), {"segments": "keys"}),
    "offsets": (("add", "float32"), {"segments": "offsets"}),
}
OTHERS = {
    "logaddexp": (("logaddexp", "float32"), {}),
    "skipna": (("add", "float32"), {"skipna": True}),
    "leading": (("add", "float32"), {"include_initial": True}),
    "recurrence-bfloat16": ((LINEAR_RECURRENCE, "bfloat16", "bfloat16"), {}),
    "recurrence-float64": ((LINEAR_RECURRENCE, "float64", "float64"), {}),
    "recurrence-complex64": ((LINEAR_RECURRENCE, "complex64", "complex64"), {}),
    "recurrence-reset": (RECURRENCE, {"segments": "reset"}),
    "indices-bfloat16": ((MIN, "bfloat16"), {"reverse": True}),
    "matrices": ((MATRIX_PRODUCT.operator(), *["float32"] * 4), {}),
    "brackets": ((BRACKETS.operator(), "int32", "int32"), {"reverse": True}),
    "modular": ((MODULAR_PRODUCT.operator(), "int64"), {}),
}
# Bytes of registers that kernels may spill: the most that NVRTC 12.9 and 13 spill.
FLOAT32_SPILLS = {
    ("recurrence", "panels-block"): 40,  # strips
    ("recurrence-scalar", "panels-block"): 40,
    ("recurrence", "panels-grid"): 8,
    ("recurrence-scalar", "panels-grid"): 8,
    ("keys", "panels-grid"): 16,  # 8 bytes, stored once and loaded once
    ("offsets", "panels-grid"): 16,
    ("recurrence", "strips-unaligned"): 84,  # look-back warps, whose carries have 16 bytes
    ("recurrence-scalar", "strips-unaligned"): 60,
    ("reset", "strips-unaligned"): 212,
    ("offsets", "strips-unaligned"): 224,
    ("keys", "strips-unaligned"): 16,  # panels
}
SPILLS = {
    ("recurrence-complex64", "tiles-grid"): 592,
    ("modular", "tiles-grid"): 88,
    ("recurrence-float64", "tiles-grid"): 52,  # with 12, rows took up to 1.06 x the time, one dimension 0.93
}  # others spill at most 32
# The kernel of bits has at most 32 registers, so that an SM runs 2,048 of its threads, because it waits for memory.
BITS_SPILLS = {("offsets", "int64", 90): 28, ("offsets", "int32", 100): 32, ("offsets", "int64", 100): 56}

# Combinations of everything, which only have to compile.
MIXED = {
    "recurrence-complex128": (
        (LINEAR_RECURRENCE, "complex128", "complex128"),
        {"segments": "offsets", "reverse": True, "return_last": True, "rows": True},
    ),
    "recurrence-float16": (
        (LINEAR_RECURRENCE, "float32", "float16"),
        {"segments": "keys", "return_last": True, "still": True},
    ),
    "indices-int8": ((MIN, "int8"), {"segments": "offsets", "reverse": True, "mask": True, "initial": True}),
    "logaddexp-float64": (
        ("logaddexp", "float64"),
        {"segments": "reset", "exclusive": True, "mask": True, "skipna": True},
    ),
    "matrices-in-segments": (
        (MATRIX_PRODUCT.operator(), *["float32"] * 4),
        {"segments": "keys", "include_initial": True},
    ),
    "mul-complex128": (("mul", "complex128"), {"segments": "reset", "skipna": True, "include_initial": True}),
    "add-bfloat16": (("add", "bfloat16"), {"segments": "offsets", "reverse": True, "exclusive": True, "initial": True}),
    "bytes": ((BYTES, *["int8"] * 16), {"segments": "offsets", "reverse": True}),
    "or-bool": (("or", "bool"), {"segments": "keys", "mask": True}),
}


def config(layout, arch, feature, *, segments=None, still=False, rows=False, mask=False, initial=False, **flags):
    """`still`: only the last value varies along the axis. `rows`: each row has an initial value."""
    (op, *dtypes), (shape, axis) = feature, LAYOUTS[layout]
    strides = (2 * shape[1], 2) if layout == "panels-grid" else None  # as in nvrtc_plans.py
    values = [view(shape, dtype, strides) for dtype in dtypes]
    if still:
        short = tuple(1 if a == axis else n for a, n in enumerate(shape))
        values[:-1] = [view(short, dtype) for dtype in dtypes[:-1]]
    boundaries = view((1001,) if segments == "offsets" else shape, SEGMENTS.get(segments, "bool"))
    arrays = operands(
        tuple(values),
        view(shape, "bool") if mask else None,
        (segments, boundaries) if segments else None,
        view(tuple(n for a, n in enumerate(shape) if a != axis), dtypes[-1]) if rows else None,
    )
    request = make_request(Flags(op, axis, **flags), arrays, has_initial=initial)
    return make_plan(request, Target(arch, 132)).config


@pytest.mark.parametrize("name, layout", covering(itertools.product(FLOAT32, HOT), each))
def test_float32_does_not_spill(name, layout):
    feature, keywords = FLOAT32[name]
    registers, spilled = resources(config(layout, 90, feature, **keywords), 90)
    assert spilled <= FLOAT32_SPILLS.get((name, layout), 0), f"{registers} registers and {spilled} bytes of spills"


@pytest.mark.parametrize(
    "name, layout",
    covering(
        itertools.product(OTHERS, ["rows-long", "cluster", "tiles-grid", "panels-grid"]), lambda _, layout: [layout]
    ),
)
def test_others_hardly_spill(name, layout):
    feature, keywords = OTHERS[name]
    registers, spilled = resources(config(layout, 90, feature, **keywords), 90)
    assert spilled <= SPILLS.get((name, layout), 32), f"{registers} registers and {spilled} bytes of spills"


# What gives segment starts, with the C++ types that it may have.
GIVEN = {
    "offsets": ("int32", "int64"),
    "reset": ("boolean",),
    "keys": ("uint8", "float16", "int32", "int64", "float64"),
}


@pytest.mark.parametrize("arch", ARCHS)
def test_flags_are_copied_without_spills(arch):
    registers, spilled = resources(CopyConfig(), arch)
    assert spilled == 0, f"{registers} registers and {spilled} bytes of spills"


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("given, item", [(given, item) for given, items in GIVEN.items() for item in items])
def test_segment_starts_become_bits(given, item, arch):
    registers, spilled = resources(StartsConfig(item, given), arch)
    assert spilled <= BITS_SPILLS.get((given, item, arch), 0), f"{registers} registers and {spilled} bytes of spills"


def mixed():
    """Each combination with each kind of layout; architectures take turns."""
    archs = itertools.cycle(ARCHS)
    for i, name in enumerate(MIXED):
        for layout in HOT[i % 2 :: 2]:
            yield name, layout, next(archs)


@pytest.mark.full
@pytest.mark.parametrize("name, layout, arch", list(mixed()))
def test_combinations_compile(name, layout, arch):
    feature, keywords = MIXED[name]
    made = config(layout, arch, feature, **keywords)
    registers, _ = resources(made, arch)
    assert registers * made.block * made.blocks_per_sm <= 65536


@pytest.mark.full
@pytest.mark.parametrize("name", ["bytes", "recurrence-complex128"])
@pytest.mark.parametrize("arch, still", [(80, False), (90, False), (90, True)])
def test_the_largest_states_have_shared_memory(name, arch, still):
    feature, keywords = MIXED[name]
    resources(config("tiles-block", arch, feature, still=still, **keywords), arch)


@pytest.mark.parametrize("layout", ["rows-long", "cluster", "tiles-grid", "panels-block"])
def test_recurrences_round_products_and_sums_one_by_one(layout):
    ptx, _ = compiled(make_source(config(layout, 999, RECURRENCE)), 999)
    assert b".ftz" not in ptx and b"fma.rn" not in ptx and b"add.rn.f" in ptx and b"mul.rn.f" in ptx


@pytest.mark.parametrize(
    "operator, dtypes",
    [
        (cuscan.Operator("oops", "earlier + nonsense", 0), ["float32"]),
        (cuscan.Operator("oops", "\n  float32 kept = earlier.a;\n  return State{kept, nonsense};\n", (0, 0),
                         state={"a": "float32", "b": "float32"}), ["float32", "float32"]),
    ],
    ids=["expression", "body"],
)  # fmt: skip
def test_a_mistake_of_the_user_is_shown_with_their_own_line(operator, dtypes):
    with pytest.raises(CompileError) as caught:
        compiled(make_source(config("rows-short", 90, (operator, *dtypes))), 90)
    line = 1 if len(dtypes) == 1 else 3
    shown = str(caught.value).split("namespace cuscan")[0]  # the log, before the source
    assert re.search(rf"combine of oops\({line}\): error", shown), shown
    assert 'identifier "nonsense" is undefined' in shown
    assert ("earlier + nonsense" if line == 1 else "return State{kept, nonsense};") in shown
