"""Every kernel family compiles for every supported architecture; hot kernels do not spill. Needs no GPU."""

import itertools
import re
from collections import Counter
from dataclasses import replace

import pytest
from plans import of_shape, request
from selection import covering, each, pairs
from views import operands, view

from cuscan.dtypes import DTYPES, EXACT, Kind
from cuscan.errors import CompileError
from cuscan.operators import INDEXED, LINEAR_RECURRENCE, OPERATORS
from cuscan.planning import make_plan
from cuscan.planning.config import CopyConfig, StartsConfig, Target
from cuscan.request import make_request
from cuscan.request.call import Flags

pytest.importorskip("cuscan.compile.module", reason="CuPy does not import, and with it the bindings of NVRTC")
from nvrtc_plans import ARCHS, H200, LAYOUTS, compiled, figures, plan, report, resources

from cuscan.compile.source import headers, make_source


@pytest.mark.parametrize("dtype", DTYPES)
def test_pairs_of_units_are_what_they_are_called(dtype):
    config = plan("cluster-pairs", dtype, result=dtype).config
    assert (config.family, config.cluster, dict(config.constants)["Units"]) == ("cluster", 16, 2)


def spread():
    """Layouts, dtypes, operators, flags: each pair of layout and dtype once; operators and flags take turns."""
    flags = itertools.cycle(("", "reverse", "exclusive", "mask initial", "reverse exclusive"))
    names = itertools.cycle(OPERATORS)
    for layout, dtype in itertools.product(LAYOUTS, DTYPES.values()):
        op = next(name for name in names if dtype.kind in OPERATORS[name].kinds)
        yield layout, dtype.name, op, next(flags)


@pytest.mark.parametrize(
    "layout, dtype, op, flags",
    covering(
        spread(),
        lambda layout, dtype, op, flags: each(dtype, op, flags),
        lambda layout, *others: (layout, *pairs(layout.split("-")[0], *others)),
    ),
)
def test_every_layout_and_dtype_compiles(layout, dtype, op, flags):
    arch = ARCHS[sum(map(ord, layout + dtype)) % len(ARCHS)]
    config = plan(layout, dtype, op, target=Target(arch, 132), **dict.fromkeys(flags.split(), True)).config
    registers, _ = resources(config, arch)
    assert registers * config.block * config.blocks_per_sm <= 65536


@pytest.mark.parametrize(
    "layout, arch",
    covering(
        itertools.product(LAYOUTS, ARCHS),
        lambda layout, arch: each(layout.split("-")[0], arch),
        lambda layout, arch: (layout, (layout.split("-")[0], arch)),
    ),
)
def test_every_layout_compiles_for_every_architecture(layout, arch):
    resources(plan(layout, target=Target(arch, 132), mask=True).config, arch)


@pytest.mark.full
@pytest.mark.parametrize("op", OPERATORS)
def test_every_operator_compiles(op):
    kinds = OPERATORS[op].kinds
    for dtype in ("int32", "uint8", "float32", "complex64"):
        if DTYPES[dtype].kind in kinds:
            resources(plan("tiles-grid", dtype, op).config, 90)


@pytest.mark.full
@pytest.mark.parametrize(
    "dtype, result",
    [
        ("uint8", "int64"),
        ("bool", "int64"),
        ("float16", "float32"),
        ("int64", "float16"),
        ("float64", "bool"),
        ("float32", "complex128"),
    ],
)
def test_conversions_compile(dtype, result):
    for layout in ("rows-long", "thread-rows", "staged-rows", "cluster", "tiles-grid", "panels-grid", "strips-three"):
        op = "add" if DTYPES[result].kind not in EXACT or DTYPES[result].kind is Kind.BOOL else "max"
        resources(plan(layout, dtype, op, result=result, mask=True, initial=True).config, 90)


@pytest.mark.parametrize("arch", [75, 90])
@pytest.mark.parametrize("op", ["add", "min", "max", "xor", pytest.param("mul", marks=pytest.mark.full)])
def test_operators_on_words_compile(op, arch):
    dtype = "int8" if op in ("min", "max", "mul") else "bool" if op == "xor" else "uint8"
    config = plan("panels-block", dtype, op, result=dtype, strides=(32769, 1), target=Target(arch, 132)).config
    assert config.values[0].type.startswith("word<")
    spilled = resources(config, arch)[1]
    assert op == "mul" or spilled == 0  # products go byte by byte, in more registers


# Bytes of registers that kernels may spill, by item size; the others must not spill any.
SPILLS = {
    ("tiles-block", 8): 32,  # exclusive, as in the next line
    ("tiles-grid", 8): 32,
    ("tiles-odd", 2): 52,  # masked, as in the next line
    ("tiles-odd", 8): 64,
    ("rows-long", 8): 96,
    ("strips-shared", 2): 60,  # look-back warps
    ("strips-unaligned", 2): 16,  # 22 warps leave each thread 80 registers
}
# The same for sm_100: masked, and not masked.
SPILLS_100 = {
    ("cluster-odd", 2): (16, 0),
    ("tiles-block", 2): (28, 0),
    ("tiles-grid", 2): (28, 0),
    ("tiles-grid", 8): (68, 32),
    ("tiles-odd", 2): (60, 0),
    ("tiles-odd", 4): (32, 0),
    ("tiles-odd", 8): (24, 24),
    ("panels-grid", 2): (0, 28),  # not masked
    ("strips-three", 8): (0, 8),
    ("strips-fifteen", 8): (0, 44),  # look-back warps
    ("strips-two", 4): (0, 8),  # 4 bytes, stored once and loaded once: 23 warps leave each thread 80 registers
}


HOT = itertools.product(
    [
        "rows-short",
        "rows-long",
        "thread-rows",
        "staged-rows",
        "cluster-one",
        "cluster",
        "cluster-pairs",
        "cluster-odd",
        "tiles-block",
        "tiles-grid",
        "tiles-odd",
        "panels-block",
        "panels-grid",
        "strips-own",
        "strips-shared",
        "strips-unaligned",
        "strips-two",
        "strips-three",
        "strips-fifteen",
        "whole-rows",
        "whole-rows-seventeen",
    ],
    ["float32", "bfloat16", "float64", "int64"],
    ["plain", "reverse", "exclusive", "mask", "misaligned"],
    [90, 100],
)


def hot_pairs(layout, dtype, flag, arch):
    """Any two parameters together, and every dtype of each layout on both architectures."""
    return (*pairs(layout, dtype, flag, arch), (layout, dtype, arch))


@pytest.mark.parametrize("layout, dtype, flag, arch", covering(HOT, each, hot_pairs))
def test_hot_kernels_do_not_spill(layout, dtype, flag, arch):
    itemsize = DTYPES[dtype].itemsize
    flags = {"plain": {}, "misaligned": {"pointer": itemsize}}.get(flag, {flag: True})
    config = plan(layout, dtype, target=Target(arch, 132), **flags).config
    log = report(config, arch)
    registers, spilled = figures(log)
    stack = re.search(r"(\d+) bytes stack frame", log)
    assert spilled or (stack and stack[1] == "0"), "an array in local memory: unknown numbers index it"
    if config.family == "panels":  # panels do what strips and whole rows cannot
        layout = "panels-grid" if config.grid else "panels-block"
    masked, plain = SPILLS_100.get((layout, itemsize), (0, 0)) if arch == 100 else (0, 0)
    allowed = max(SPILLS.get((layout, itemsize), 0), masked if "mask" in flags else plain)
    assert spilled <= allowed, f"{registers} registers and {spilled} bytes of spills"


def test_rows_of_every_second_element_do_not_spill():
    """Rows as in the benchmark; longer rows, and 16-bit floats, spill 8 to 132 bytes."""
    arrays = operands(view((16384, 8192), "float32", (16384, 2)))
    config = make_plan(make_request(Flags("add", 1), arrays, has_initial=False), H200).config
    registers, spilled = figures(report(config, 90))
    assert config.family == "tiles" and spilled == 0, f"{registers} registers and {spilled} bytes of spills"


@pytest.mark.parametrize("result", ["int8", "float16", "float64"])
def test_strips_with_little_shared_memory_compile(result):
    """Their tiles have few rows, so that several warps may store parts of one."""
    little = Target(120, 170, shared_bytes=100 * 1024)
    arrays = operands(view((8192, 256), "float64"))
    config = make_plan(make_request(Flags("add", 0, dtype=result), arrays, has_initial=False), little).config
    assert config.family == "strips"
    resources(config, 90)


WIDE = [
    (["float64"], "logaddexp", None),
    (["float64"], INDEXED["max", "first"], None),
    (["int64"], INDEXED["min", "last"], None),
    (["float64", "float64"], LINEAR_RECURRENCE, None),
    (["complex64", "complex64"], LINEAR_RECURRENCE, None),
    (["complex64", "complex64"], LINEAR_RECURRENCE, "reset"),
    (["float64"], "add", "keys"),
    (["uint8"], "add", "reset"),
]


@pytest.mark.parametrize("dtypes, op, segments", WIDE)
def test_tiles_of_wide_states_hardly_spill(dtypes, op, segments):
    shape = 3, 2**22  # with flags for each element: those of all lines would become bits
    beside = segments and (segments, view(shape, "bool" if segments == "reset" else "int32"))
    made = request(of_shape(shape, *dtypes), op, segments=beside)
    config = make_plan(made, H200).config
    registers, spilled = resources(config, 90)
    assert config.family == "tiles" and spilled <= 64, f"{registers} registers and {spilled} bytes of spills"


SHARED = {"strips": "StripsShared", "tiles": "TilesShared", "whole_rows": "WholeRowsShared"}


@pytest.mark.full
@pytest.mark.parametrize("dtype", ["int8", "float16", "float32", "float64", "complex64"])
def test_blocks_take_no_more_shared_memory_than_they_ask_for(dtype):
    """The memory of a block depends mostly on the shape: so this tests many shapes, but only their sizes."""
    shapes = [
        *itertools.product((600, 70_000, 2**20), range(2, 321, 5)),
        *itertools.product((600, 2**15), (512, 2**15)),
    ]
    calls = [(shape, 0) for shape in shapes] + [((m, n), 1) for m in (30, 3000) for n in (9001, 16_501, 65_537)]
    seen = Counter()
    for shape, axis in calls:
        request = make_request(Flags("add", axis, dtype=dtype), operands(view(shape, dtype)), has_initial=False)
        config = make_plan(request, H200).config
        if config.family not in SHARED:
            continue
        shared = f"sizeof(cuscan::{SHARED[config.family]}<cuscan::Config>)"
        fits = f'static_assert({shared} <= cuscan::Config::kSharedBytes, "too little shared memory");'
        source = make_source(config)
        compiled(source[: source.rindex("CUSCAN_KERNEL(")] + fits, 90)
        seen[config.family] += 1
    assert seen["strips"] > 10 and seen["whole_rows"] > 30 and seen["tiles"] > 2


PACKED = itertools.product(
    ["rows-long", "staged-rows", "cluster", "tiles-block", "tiles-grid"],
    ["uint8", "int16"],
    ["", "reverse", "exclusive", "mask initial"],
)


@pytest.mark.parametrize("layout, dtype, flags", covering(PACKED, each))
def test_packed_sums_do_not_spill(layout, dtype, flags):
    config = plan(layout, dtype, result=dtype, **dict.fromkeys(flags.split(), True)).config
    registers, spilled = resources(config, 90)
    allowed = 56 if layout.startswith("tiles") and "mask" in flags else 0  # NVRTC 13 spills nothing
    assert spilled <= allowed, f"{registers} registers and {spilled} bytes of spills"


def test_a_compile_error_shows_the_log_with_file_and_line():
    config = replace(plan("rows-short").config, op="NoSuchOperator")
    with pytest.raises(CompileError, match=r"(?s)cuscan_kernel\.cu\(\d+\): error.*NoSuchOperator"):
        compiled(make_source(config), 90)


def test_a_newer_gpu_gets_ptx():
    code, _ = compiled(make_source(plan("rows-short").config), 999)
    assert b".target sm_" in code


SINGLY = itertools.product(
    ["rows-long", "cluster", "tiles-grid", "panels-grid", "strips-two"],
    [("float32", "add"), ("float64", "mul"), ("complex64", "mul"), ("bfloat16", "mul")],
)


@pytest.mark.parametrize(
    "layout, dtype, op",
    covering(((layout, *typed) for layout, typed in SINGLY), lambda layout, dtype, op: each(layout, dtype)),
)
def test_denormals_are_kept_and_nothing_is_fused(layout, dtype, op):
    ptx, _ = compiled(make_source(plan(layout, dtype, op).config), 999)
    assert b".ftz" not in ptx and b"fma.rn" not in ptx and (b"add.rn.f" in ptx or b"mul.rn.f" in ptx)


FAMILIES = sorted(name[8:-4] for name in headers() if name.startswith("kernels/"))


@pytest.mark.parametrize("family", FAMILIES)
def test_every_kernel_waits_for_those_before_it_and_lets_the_next_begin(family):
    configs = {
        config.family: config
        for config in (StartsConfig("int64"), CopyConfig(), *(plan(layout).config for layout in LAYOUTS))
    }
    ptx, _ = compiled(make_source(configs[family]), 999)
    wait, launch = (ptx.find(b"griddepcontrol." + name) for name in (b"wait;", b"launch_dependents;"))
    assert 0 < wait < launch
    if family not in ("strips", "tiles"):  # in these one warp waits for all
        assert b"ld.global" not in ptx[:wait] and b"st.global" not in ptx[:wait]
