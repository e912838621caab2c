"""Kernels ahead of time: found by planning, compiled without a GPU, named by a command; and explanations of calls."""

from __future__ import annotations

import math
import random
import sys
import threading
from itertools import islice

import numpy as np
import plans
import pytest
from plans import H200
from views import view

import cuscan
from cuscan import cli
from cuscan.bench import new_shapes
from cuscan.bench.kernel import plan_of
from cuscan.imagined import requests_of
from cuscan.places import Place
from cuscan.planning import make_plan
from cuscan.planning.preparations import preparations
from cuscan.warming import kernels
from cuscan.words import Call, command_of


def but_in_full(names, *slow):
    """Parameters; only `--full` runs slow ones, which take seconds."""
    return [pytest.param(name, marks=pytest.mark.full) if name in slow else name for name in names]


@pytest.mark.parametrize("kind", but_in_full(new_shapes.KINDS, "(B, T, D) axis 1"))
def test_the_kernels_of_shapes_are_those_of_all_their_views(kind):
    """The views of the benchmark have gaps between rows and any alignment."""
    cases = list(islice(new_shapes.draw(kind), 20))
    found = kernels(Call(), H200, [(case.shape, case.axis) for case in cases])
    assert [case for case in cases if plan_of(case, H200).config not in found] == []
    alone = kernels(Call(), H200, [(cases[0].shape, cases[0].axis)])
    assert len(alone) < len(found) and alone.keys() <= found.keys()


@pytest.mark.full
def test_without_shapes_random_calls_of_all_kinds_find_their_kernels():
    found = kernels(Call(), H200)
    for kind in new_shapes.KINDS:
        missed = [c for c in islice(new_shapes.draw(kind), new_shapes.CALLS) if plan_of(c, H200).config not in found]
        assert missed == []


@pytest.mark.full
def test_without_shapes_scans_that_transpose_find_their_kernels():
    found, draw, missed = kernels(Call(), H200), random.Random(3), []
    for _ in range(600):
        shape = int(10 ** draw.uniform(2.8, 6)), draw.choice((draw.randint(2, 32), draw.randint(2, 2000)))
        orders = draw.sample([(0, 1), (1, 0)], 2)
        gaps = draw.choice((0, 1, 4)), draw.choice((0, 1, 4))
        place = Place(draw.randrange(4), draw.randrange(4), 0, gaps[0], 1, gaps[1], *orders)
        (request,) = requests_of(Call(), shape, 0, lambda _, place=place: [place])
        if make_plan(request, H200).config not in found:
            missed.append((shape, place))
    assert missed == []


def test_keys_of_all_lines_are_warmed_for():
    for shape in ((4096, 64), (32, 255, 64), (4096, 256)):
        axis = len(shape) - 2
        keys = view(shape, "int32", [int(a == axis) for a in range(len(shape))])
        asked = plans.request(view(shape), axis=axis, segments=("keys", keys))
        found = kernels(Call(segments="keys"), H200, [(shape, axis)])
        assert found.keys() >= {made.config for made in (make_plan(asked, H200), *preparations(asked, H200))}


CALLS = {
    "plain": Call(),
    "flags": Call("mul", "int8", "int64", reverse=True, exclusive=True, mask=True, initial=True),
    "positions": Call("max", "float64", return_indices=True, ties="last", segments="keys"),
    "offsets": Call("logaddexp", segments="offsets", include_initial=True, return_carry=True),
    "carried": Call("add", "float16", carry=True, return_carry=True, skipna=True),
    "recurrence": Call("linear_recurrence", "float32", segments="reset"),
    "decay": Call("linear_recurrence", "float16", number=True, initial_array=True, return_last=True),
    "totals": Call("add", "uint8", "uint8", total=True, segments="keys", segment_dtype="float64"),
    "bytes": Call("add", "int8", "int8"),
    "a user's": Call(cuscan.Operator("pick", "later", 0), "int32"),
}


@pytest.mark.parametrize("name", but_in_full(CALLS, "recurrence", "decay", "flags"))
def test_a_request_says_how_its_kernel_is_warmed(name, capsys, monkeypatch):
    call, shapes = CALLS[name], [((40, 900), 1), ((900, 40), 0)]
    found = kernels(call, H200, shapes)
    for request in found.values():
        assert found.keys() >= {made.config for made in (make_plan(request, H200), *preparations(request, H200))}
        command = command_of(request, 90)
    if name == "a user's":
        assert command == "cuscan.warm(pick, ..., shapes=[((40, 900), 1)], arch=90)"
        return
    words = {}
    monkeypatch.setattr(cuscan, "warm", lambda **given: words.update(given))
    assert command.startswith("cuscan ") and cli.main(command.split()[1:]) == 0
    assert (words.pop("arch"), words.pop("shapes")) == (90, [(request.shape, request.axis)]) and words.pop("progress")
    assert not words.pop("general")
    assert kernels(Call(**words), H200, shapes).keys() == found.keys()


def any_view(draw, dtype=np.float32, most=3):
    """An array with random axes, order of axes, gaps, steps and alignment."""
    shape = [int(2 ** draw.uniform(0, 18 / most)) for _ in range(draw.randint(1, most))]
    return view_of(draw, shape, dtype, (1, 1, 1, 1, -1, 2))


def view_of(draw, shape, dtype, steps=(1,)):
    """An array of a shape with a random order of axes, random gaps and alignment."""
    order = draw.sample(range(len(shape)), len(shape))
    steps = [draw.choice(steps) for _ in order]
    taken = [shape[axis] * abs(step) for axis, step in zip(order, steps, strict=True)]
    padded = [size + draw.choice((0, 0, 1, 4)) for size in taken]
    count = math.prod(padded)
    base = np.zeros(count + 16, dtype)[draw.randrange(16) :][:count].reshape(padded)
    cut = base[tuple(map(slice, taken))][tuple(slice(None, None, step) for step in steps)]
    return cut.transpose(np.argsort(order))


def warmed(made):
    """The kernels of the command that the error of a call names."""
    words = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cuscan, "warm", lambda **given: words.update(given))
        assert cli.main(command_of(made.request, 90).split()[1:]) == 0
    shapes = words.pop("shapes")
    del words["arch"], words["progress"], words["general"]
    return kernels(Call(**words), made.target, shapes)


@pytest.mark.parametrize("dtype", but_in_full(["float32", "int8", "complex128"], "int8"))
def test_the_kernels_of_a_shape_are_those_of_any_strides(dtype):
    draw = random.Random(dtype)
    for _ in range(12):
        x = any_view(draw, dtype)
        out = draw.choice((None, np.empty(x.size + 4, x.dtype)[draw.randrange(4) :][: x.size].reshape(x.shape)))
        made = cuscan.explain(cuscan.cumsum, x, axis=draw.randrange(x.ndim), out=out, dtype=dtype, arch=90)
        assert made.plan.config in warmed(made), f"{x.shape} {x.strides} {made}"


@pytest.mark.parametrize(
    ("shape", "axis", "role", "dtype"),
    [((9000, 27), 1, "mask", bool), ((300, 40), 0, "reset", bool), ((70, 500), 1, "keys", np.int32)],
)
def test_the_kernels_of_a_shape_are_those_of_flags_and_keys_in_any_place(shape, axis, role, dtype):
    draw = random.Random(role)
    there = None
    for _ in range(40):
        x, beside = view_of(draw, shape, np.float32), view_of(draw, shape, dtype)
        out = draw.choice((None, view_of(draw, shape, np.float32)))
        made = cuscan.explain(cuscan.scan, x, axis=axis, out=out, arch=90, **{role: beside})
        there = there or warmed(made)
        assert made.plan.config in there, f"{x.strides} {beside.strides} {made}"


X = np.ones((40, 900), np.float32)
BESIDE = {
    "a mask for each row": (cuscan.cumsum, (X,), {"mask": np.ones((40, 1), bool)}),
    "a mask for all rows": (cuscan.cumsum, (X,), {"mask": np.ones(900, bool)}),
    "a mask anywhere": (
        cuscan.cumprod,
        (X[:, :24].astype("int8"),),
        {"mask": np.ones(40 * 24 + 4, bool)[4:].reshape(40, 24), "dtype": "int8"},
    ),
    "rows apart, twice": (cuscan.cumsum, (X.reshape(20, 50, 36)[:, :5, :30],), {"axis": 2}),
    "one value": (cuscan.cumsum, (np.broadcast_to(X[:, :1], X.shape),), {}),
    "a number": (cuscan.linear_recurrence, (0.5, X.astype("float16")), {}),
    "a decay for each row": (cuscan.linear_recurrence, (X[:, :1], X), {}),
    "a first value for each row": (cuscan.linear_recurrence, (X, X), {"initial": X[:, 0], "return_last": True}),
    "a number before it": (cuscan.cumsum, (X,), {"initial": 3, "exclusive": True, "reverse": True}),
    "a sum more": (cuscan.cumulative_sum, (X,), {"include_initial": True}),
    "a carry": (cuscan.scan, (X,), {"carry": X[:, 0].astype("float64"), "return_carry": True, "skipna": True}),
    "keys": (cuscan.scan, (X,), {"keys": np.ones(900, np.int64)}),
    "a total": (cuscan.total, (X,), {"offsets": np.array([0, 5, 900], np.int32)}),
}


@pytest.mark.parametrize("name", BESIDE)
def test_the_kernels_of_a_shape_are_those_of_what_is_beside_it(name):
    function, arrays, keywords = BESIDE[name]
    made = cuscan.explain(function, *arrays, **{"axis": 1, "arch": 90, **keywords})
    found = warmed(made)
    assert made.plan.config in found and (found.keys() >= {before.config for before in made.preparations})


def test_kernels_are_compiled_once_and_without_a_gpu(tmp_path, monkeypatch):
    pytest.importorskip("cupy", reason="CuPy is not installed, and with it the bindings of NVRTC")
    monkeypatch.setenv("CUSCAN_CACHE_DIR", str(tmp_path))
    steps = []
    call = dict(shapes=[((100,), 0)], arch=90, reverse=True)
    first = cuscan.warm("max", np.int16, progress=lambda *step: steps.append(step), **call)
    files = list(tmp_path.iterdir())
    assert first.kernels == first.compiled == len(files) > 0
    assert first.nbytes == sum(path.stat().st_size for path in files)
    assert steps == [(i, first.kernels) for i in range(first.kernels + 1)]
    again = cuscan.warm("max", "int16", **call)
    assert (again.kernels, again.compiled, again.nbytes) == (first.kernels, 0, first.nbytes)
    assert str(again) == f"{again.kernels} kernels of {again.nbytes / 2**20:.1f} MiB, 0 of them compiled now"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ({"op": "no such"}, "op must be one of"),
        ({"dtype": "float128"}, "dtype must be one of"),
        ({"op": "and"}, "op='and' is defined on"),
        ({"shapes": [((3, 4), 2)]}, "axis 2 is out of range"),
        ({"return_indices": True}, "return_indices is for"),
        ({"number": True}, "number, initial_array and return_last are for linear_recurrence"),
    ],
)
def test_a_wrong_call_is_an_error_of_a_scan(call, message):
    with pytest.raises(cuscan.ScanError, match=message):
        cuscan.warm(**{"shapes": [((3, 4), 1)], "arch": 90, **call})


def test_a_plan_in_words():
    x = np.broadcast_to(np.float32(1), (3, 50_000_000))
    made = cuscan.explain(cuscan.cumsum, x, axis=1, mask=np.ones(50_000_000, bool), arch=90)
    assert (made.read_bytes, made.written_bytes) == (4 + 50_000_000, 600_000_000)
    assert made.plan == make_plan(made.request, made.target) and made.workspace_bytes == made.plan.workspace_bytes > 0
    lines = dict(line.split(maxsplit=1) for line in str(made).splitlines())
    assert lines.keys() == {
        "scan", "family", "tile", "access", "carry", "kernels", "workspace", "bytes", "expected"
    }  # fmt: skip
    assert lines["scan"] == "add of float32 (3, 50000000) along axis 1, in float32"
    assert lines["family"] == made.plan.config.family and lines["kernels"].startswith(f"cuscan_{lines['family']}: ")
    assert lines["bytes"] == "619.9 MiB: 47.7 MiB read, 572.2 MiB written"
    assert lines["carry"].startswith("float64")
    small = cuscan.explain(cuscan.cumsum, np.ones(100, np.float32), arch=90)
    assert "none: a line ends in its tile" in str(small) and small.expected_share < 0.1 < made.expected_share <= 1


def explained(*shape, axis):
    """The explanation of a sum of this shape; there is memory for only one element."""
    x = np.ones(1, np.float32)
    x = np.lib.stride_tricks.as_strided(x, shape, [4 * int(np.prod(shape[d + 1 :])) for d in range(len(shape))])
    return cuscan.explain(cuscan.cumsum, x, axis=axis, arch=90)


CARRIES = {
    "none": "none: a line ends in its tile",
    "kept": "float64, kept by the block that has the line",
    "cluster": "float64, handed on in the cluster that has the line",
    "shared": "float64, looked up in the workspace: blocks share a line",
}


@pytest.mark.parametrize(
    ("family", "shape", "axis", "carry"),
    [
        ("rows", (1000, 1000), 1, "none"),
        ("thread_rows", (4096, 37), 1, "none"),
        ("staged_rows", (4096, 157), 1, "none"),
        ("cluster", (10, 5000), 1, "none"),
        ("cluster", (2, 20_000), 1, "cluster"),
        ("tiles", (300, 5000), 1, "none"),
        ("tiles", (2**28,), 0, "shared"),
        ("panels", (1000, 7, 64), 1, "none"),
        ("panels", (32768, 32767), 0, "kept"),
        ("strips", (2**18, 641), 0, "shared"),
        ("strips", (4096, 4096), 0, "kept"),
        ("strips", (2**20, 8), 0, "shared"),
        ("whole_rows", (2**20, 100), 0, "shared"),
    ],
)
def test_how_tiles_learn_what_precedes_them(family, shape, axis, carry):
    made = explained(*shape, axis=axis)
    assert made.plan.config.family == family
    assert dict(made._lines())["carry"] == CARRIES[carry]


def test_few_blocks_leave_memory_idle():
    """Half of the 132 SMs keep memory busy."""
    for rows, blocks in ((4, 1), (132, 33), (264, 66), (268, 67), (100_000, 25_000)):
        made = explained(rows, 1000, axis=1)
        assert made.plan.grid == blocks
        assert made.expected_share == min(blocks / 66, 1)
        assert f"at most {made.expected_share:.2f} of a copy's speed on 132 SMs" in str(made)


def test_bytes_are_those_of_the_arrays_that_move():
    x, first = np.ones((100, 30), np.float32), np.ones(100, np.float32)
    made = cuscan.explain(cuscan.linear_recurrence, x, x, axis=1, initial=first, return_last=True, arch=90)
    assert (made.read_bytes, made.written_bytes) == (2 * x.nbytes + first.nbytes, x.nbytes + first.nbytes)
    made = cuscan.explain(cuscan.linear_recurrence, 0.5, x, axis=1, arch=90)
    assert (made.read_bytes, made.written_bytes) == (x.nbytes, x.nbytes)
    carry = np.ones(100)
    made = cuscan.explain(cuscan.scan, x, axis=1, carry=carry, return_carry=True, arch=90)
    assert (made.read_bytes, made.written_bytes) == (x.nbytes + carry.nbytes, x.nbytes + carry.nbytes)
    made = cuscan.explain(cuscan.total, x, axis=1, offsets=np.array([0, 7, 30]), arch=90)
    assert (made.read_bytes, made.written_bytes) == (x.nbytes + 24, carry.nbytes)
    assert made.workspace_bytes == sum(before.nbytes for before in made.preparations) > 0


def test_what_no_launch_can_take_has_no_kernel():
    assert kernels(Call(), H200, [((2**46,), 0)]).keys() == set()


def test_other_threads_run_while_a_call_is_explained():
    results = []

    def elsewhere(x):
        other = threading.Thread(target=lambda: results.append(cuscan.cumsum(x)))
        other.start()
        other.join()
        return cuscan.cumprod(x)

    made = cuscan.explain(elsewhere, np.ones(3), arch=90)
    assert made.request.op.name == "mul" and [list(result) for result in results] == [[1, 2, 3]]


def test_offsets_are_a_kernel_more_and_no_elements_none():
    x = np.ones(5000)
    made = cuscan.explain(cuscan.scan, x, "max", offsets=np.array([0, 7, 5000]), arch=90)
    assert str(made).count("kernels ") == 2 and "cuscan_segment_starts" in str(made)
    assert "none: there are no elements" in str(cuscan.explain(cuscan.cumprod, x[:0], arch=90))


def test_flags_across_rows_are_a_kernel_more_that_is_warmed():
    x, flags = np.ones((1024, 1024)), np.ones((1024, 1024), bool).T
    for given in ({"mask": flags}, {"reset": flags}):
        made = cuscan.explain(cuscan.cumsum, x, axis=1, arch=90, **given)
        assert str(made).count("kernels ") == 2 and "cuscan_flag_copies" in str(made)
        assert made.workspace_bytes >= flags.nbytes
        call = Call("add", "float64", mask="mask" in given, segments="reset" if "reset" in given else None)
        assert kernels(call, H200, [((1024, 1024), 1)]).keys() >= {made.plan.config, made.preparations[0].config}


def test_explaining_runs_nothing_and_says_what_is_wrong():
    x = np.ones(7)
    out = np.zeros(7)
    cuscan.explain(cuscan.cumsum, x, out=out, arch=90)
    assert not out.any() and cuscan.cumsum(x)[-1] == 7
    with pytest.raises(cuscan.ScanValueError, match="axis 3 is out of range"):
        cuscan.explain(cuscan.cumsum, x, axis=3, arch=90)
    with pytest.raises(cuscan.ScanTypeError, match="function must be one of cuscan"):
        cuscan.explain(np.cumsum, x, arch=90)


def test_warm_without_cupy_names_what_to_install(monkeypatch):
    for name in [name for name in sys.modules if name.startswith("cuscan.compile")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr(cuscan, "compile", raising=False)
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(cuscan.MissingDependencyError, match=r"pip install 'cuscan\[cuda12\]'"):
        cuscan.warm("add", "float32", shapes=[((9,), 0)], arch=90)
