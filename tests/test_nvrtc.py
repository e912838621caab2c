"""Every kernel family compiles for every architecture that is promised; hot kernels do not spill. No GPU needed."""

import itertools
import re
from collections import Counter
from dataclasses import replace

import pytest
from views import operands, view

from cuscan.call import Flags
from cuscan.config import StartsConfig, Target
from cuscan.dtypes import DTYPES, EXACT, Kind
from cuscan.errors import CompileError
from cuscan.operators import OPERATORS
from cuscan.plan import make_plan
from cuscan.request import make_request
from cuscan.tuning import CONTIGUOUS

cupy = pytest.importorskip("cupy", reason="CuPy is not installed, and with it the bindings of NVRTC")
module = pytest.importorskip("cuscan.compile.module", reason="CuPy does not import")
from cuscan.compile.source import headers, make_source  # noqa: E402

ARCHS = (75, 80, 90, 100)
H200 = Target(90, 132)
BARRIERS = 64  # of an SM of sm_90

# A shape and axis for each family, and for each way in which its blocks share the work.
LAYOUTS = {
    "rows-short": ((1000, 16), 1),
    "rows-long": ((1000, 1000), 1),
    "thread-rows": ((2**20, 31), 1),
    "warp-rows": ((2**20, 501), 1),
    "cluster-one": ((100, 8192), 1),
    "cluster": ((2**14,), 0),
    "cluster-pairs": ((18,), 0),  # units, which are shorter of wide items
    "cluster-odd": ((7, 3 * 8192 + 5), 1),
    "tiles-one": ((10000, 8192), 1),
    "tiles-block": ((32768, 32768), 1),
    "tiles-grid": ((2**28,), 0),
    "tiles-odd": ((2**14, 65537), 1),
    "columns-one": ((1000, 7, 64), 1),
    "columns-block": ((32768, 32768), 0),
    "columns-grid": ((2**18, 641), 0),
    "strips-own": ((32768, 32768), 0),
    "strips-shared": ((65536, 256), 0),
    "strips-two": ((2**22, 2), 0),
    "strips-three": ((7, 2**20, 3), 1),
    "strips-fifteen": ((2**22, 15), 0),
    "whole-rows": ((2**22, 41), 0),
    "whole-rows-short": ((29, 4099, 257), 1),
    "whole-rows-sixteen": ((2**22, 16), 0),
}


def plan(
    layout,
    dtype="float32",
    op="add",
    *,
    target=H200,
    mask=False,
    initial=False,
    pointer=0,
    strides=None,
    result=None,
    **call,
):
    shape, axis = LAYOUTS[layout]
    if layout == "cluster-pairs":
        shape = (shape[0] * CONTIGUOUS[DTYPES[dtype].itemsize].unit,)
    arrays = operands(view(shape, dtype, strides, pointer), view(shape, "bool") if mask else None)
    request = make_request(Flags(op, axis, dtype=result, **call), arrays, has_initial=initial)
    return make_plan(request, target)


@pytest.mark.parametrize("dtype", DTYPES)
def test_pairs_of_units_are_what_they_are_called(dtype):
    config = plan("cluster-pairs", dtype, result=dtype).config
    assert (config.family, config.cluster, dict(config.constants)["Units"]) == ("cluster", 16, 2)


def report(config, arch):
    """What the compiler says of a configuration that it has compiled."""
    cubin, log = module.compile_source(make_source(config), arch, ("--ptxas-options=-v",))
    assert cubin[:4] == b"\x7fELF"
    barriers = re.search(r"used (\d+) barriers", log)
    taken = config.blocks_per_sm * int(barriers[1] if barriers else 0)
    assert taken <= BARRIERS, "an SM has few barriers to share out among its blocks"
    return log


def figures(log):
    """Registers, and bytes of spilled registers."""
    registers = re.search(r"Used (\d+) registers", log)
    spills = re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", log)
    assert registers and spills, log
    return int(registers[1]), int(spills[1]) + int(spills[2])


def resources(config, arch):
    """The figures of a compiled configuration."""
    return figures(report(config, arch))


def spread():
    """Layouts, dtypes, operators, flags: each pair of layout and dtype once, the rest in turn."""
    flags = itertools.cycle(
        [
            {},
            {"reverse": True},
            {"exclusive": True},
            {"mask": True, "initial": True},
            {"reverse": True, "exclusive": True},
        ]
    )
    names = itertools.cycle(OPERATORS)
    for layout, dtype in itertools.product(LAYOUTS, DTYPES.values()):
        op = next(name for name in names if dtype.kind in OPERATORS[name].kinds)
        yield pytest.param(layout, dtype.name, op, next(flags), id=f"{layout}-{dtype.name}-{op}")


@pytest.mark.parametrize("layout, dtype, op, flags", list(spread()))
def test_every_layout_and_dtype_compiles(layout, dtype, op, flags):
    arch = ARCHS[sum(map(ord, layout + dtype)) % len(ARCHS)]
    config = plan(layout, dtype, op, target=Target(arch, 132), **flags).config
    registers, _ = resources(config, arch)
    assert registers * config.block * config.blocks_per_sm <= 65536


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_compiles_for_every_architecture(layout, arch):
    resources(plan(layout, target=Target(arch, 132), mask=True).config, arch)


@pytest.mark.parametrize("op", OPERATORS)
def test_every_operator_compiles(op):
    kinds = OPERATORS[op].kinds
    for dtype in ("int32", "uint8", "float32", "complex64"):
        if DTYPES[dtype].kind in kinds:
            resources(plan("tiles-grid", dtype, op).config, 90)


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
    for layout in ("rows-long", "thread-rows", "warp-rows", "cluster", "tiles-grid", "columns-grid", "strips-three"):
        op = "add" if DTYPES[result].kind not in EXACT or DTYPES[result].kind is Kind.BOOL else "max"
        resources(plan(layout, dtype, op, result=result, mask=True, initial=True).config, 90)


# Bytes of registers that may be spilled, by item size: none where it was possible to have none.
SPILLS = {
    ("tiles-block", 8): 32,  # exclusive, as in the next
    ("tiles-grid", 8): 32,
    ("tiles-odd", 2): 52,  # masked, as in the next
    ("tiles-odd", 8): 64,
    ("rows-long", 8): 96,
    ("columns-grid", 2): 48,  # masked, as in the next
    ("columns-grid", 4): 48,
    ("strips-shared", 2): 60,  # of those who look
    ("strips-two", 8): 20,  # misaligned: the columns family
    ("strips-three", 8): 24,  # the same, and masked
}
# The same for sm_100, of what is masked and of what is not.
SPILLS_100 = {
    ("cluster-odd", 2): (16, 0),
    ("tiles-block", 2): (28, 0),
    ("tiles-grid", 2): (28, 0),
    ("tiles-grid", 8): (68, 32),
    ("tiles-odd", 2): (36, 172),
    ("tiles-odd", 4): (20, 116),
    ("tiles-odd", 8): (64, 72),
}


@pytest.mark.parametrize("arch", [90, 100])
@pytest.mark.parametrize(
    "flags",
    [{}, {"reverse": True}, {"exclusive": True}, {"mask": True}, {"pointer": 1}],
    ids=["plain", "reverse", "exclusive", "masked", "misaligned"],
)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64", "int64"])
@pytest.mark.parametrize(
    "layout",
    [
        "rows-short",
        "rows-long",
        "thread-rows",
        "warp-rows",
        "cluster-one",
        "cluster",
        "cluster-pairs",
        "cluster-odd",
        "tiles-block",
        "tiles-grid",
        "tiles-odd",
        "columns-block",
        "columns-grid",
        "strips-own",
        "strips-shared",
        "strips-two",
        "strips-three",
        "strips-fifteen",
        "whole-rows",
        "whole-rows-sixteen",
    ],
)
def test_hot_kernels_do_not_spill(layout, dtype, flags, arch):
    itemsize = DTYPES[dtype].itemsize
    flags = {name: itemsize if name == "pointer" else flag for name, flag in flags.items()}
    config = plan(layout, dtype, target=Target(arch, 132), **flags).config
    log = report(config, arch)
    registers, spilled = figures(log)
    stack = re.search(r"(\d+) bytes stack frame", log)
    assert spilled or (stack and stack[1] == "0"), "an array in local memory: unknown numbers index it"
    masked, plain = SPILLS_100.get((layout, itemsize), (0, 0)) if arch == 100 else (0, 0)
    allowed = max(SPILLS.get((layout, itemsize), 0), masked if "mask" in flags else plain)
    assert spilled <= allowed, f"{registers} registers and {spilled} bytes of spills"


def test_rows_of_every_second_element_do_not_spill():
    """As the benchmark has them; longer rows, and 16-bit floats, spill 8 to 132 bytes."""
    arrays = operands(view((16384, 8192), "float32", (16384, 2)))
    config = make_plan(make_request(Flags("add", 1), arrays, has_initial=False), H200).config
    registers, spilled = figures(report(config, 90))
    assert config.family == "tiles" and spilled == 0, f"{registers} registers and {spilled} bytes of spills"


SHARED = {"strips": "StripsShared", "tiles": "TilesShared", "whole_rows": "WholeRowsShared"}


@pytest.mark.parametrize("dtype", ["int8", "float16", "float32", "float64", "complex64"])
def test_blocks_take_no_more_shared_memory_than_they_ask_for(dtype):
    """What a block takes depends on the shape most of all: so many shapes, and of each the size alone."""
    shapes = [
        *itertools.product((600, 70_000, 2**20), range(2, 321, 5)),
        *itertools.product((600, 2**15), (512, 2**15)),
    ]
    calls = [(shape, 0) for shape in shapes] + [((m, n), 1) for m in (30, 3000) for n in (4097, 8200, 65537)]
    seen = Counter()
    for shape, axis in calls:
        request = make_request(Flags("add", axis, dtype=dtype), operands(view(shape, dtype)), has_initial=False)
        config = make_plan(request, H200).config
        if config.family not in SHARED:
            continue
        shared = f"sizeof(cuscan::{SHARED[config.family]}<cuscan::Config>)"
        fits = f'static_assert({shared} <= cuscan::Config::kSharedBytes, "too little shared memory");'
        source = make_source(config)
        module.compile_source(source[: source.rindex("CUSCAN_KERNEL(")] + fits, 90)
        seen[config.family] += 1
    assert seen["strips"] > 10 and seen["whole_rows"] > 30 and seen["tiles"] > 2


@pytest.mark.parametrize("flags", [{}, {"reverse": True}, {"exclusive": True}, {"mask": True, "initial": True}])
@pytest.mark.parametrize("dtype", ["uint8", "int16"])
@pytest.mark.parametrize("layout", ["rows-long", "warp-rows", "cluster", "tiles-block", "tiles-grid"])
def test_packed_sums_do_not_spill(layout, dtype, flags):
    registers, spilled = resources(plan(layout, dtype, result=dtype, **flags).config, 90)
    allowed = 32 if layout.startswith("tiles") and "mask" in flags else 0  # as above
    assert spilled <= allowed, f"{registers} registers and {spilled} bytes of spills"


def test_a_compile_error_shows_the_log_with_file_and_line():
    config = replace(plan("rows-short").config, op="NoSuchOperator")
    with pytest.raises(CompileError, match=r"(?s)cuscan_kernel\.cu\(\d+\): error.*NoSuchOperator"):
        module.compile_source(make_source(config), 90)


def test_a_newer_gpu_gets_ptx():
    code, _ = module.compile_source(make_source(plan("rows-short").config), 999)
    assert b".target sm_" in code


@pytest.mark.parametrize("layout", ["rows-long", "cluster", "tiles-grid", "columns-grid", "strips-two"])
@pytest.mark.parametrize(
    "dtype, op", [("float32", "add"), ("float64", "mul"), ("complex64", "mul"), ("bfloat16", "mul")]
)
def test_denormals_are_kept_and_nothing_is_fused(layout, dtype, op):
    ptx, _ = module.compile_source(make_source(plan(layout, dtype, op).config), 999)
    assert b".ftz" not in ptx and b"fma.rn" not in ptx and (b"add.rn.f" in ptx or b"mul.rn.f" in ptx)


FAMILIES = sorted(name[8:-4] for name in headers() if name.startswith("kernels/"))


@pytest.mark.parametrize("family", FAMILIES)
def test_every_kernel_waits_for_those_before_it_and_lets_the_next_begin(family):
    configs = {
        config.family: config for config in (StartsConfig("int64"), *(plan(layout).config for layout in LAYOUTS))
    }
    ptx, _ = module.compile_source(make_source(configs[family]), 999)
    wait, launch = (ptx.find(b"griddepcontrol." + name) for name in (b"wait;", b"launch_dependents;"))
    assert 0 < wait < launch
    if family not in ("strips", "tiles"):  # there a warp waits for all
        assert b"ld.global" not in ptx[:wait] and b"st.global" not in ptx[:wait]
