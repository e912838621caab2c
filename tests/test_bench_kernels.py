"""Benchmark data besides the time of a scan: small inputs, host time, kernels, what is compiled."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bench_cases import CASES, H200, HOST

import cuscan
from benchmarks import prepare
from benchmarks.cases import MATRIX, cases
from cuscan import backends
from cuscan.backends import repeats
from cuscan.bench import cub_peer, latency
from cuscan.bench.buffers import make_buffers, untouched_buffers
from cuscan.bench.cases import Case, short
from cuscan.bench.check import WrongResultError, check
from cuscan.bench.kernel import describe_kernel, parse, plan_of, request_of
from cuscan.bench.layouts import Layout
from cuscan.bench.measure import largest_fitting, measure
from cuscan.bench.ours import run_cuscan
from cuscan.bench.peer import UnsupportedError
from cuscan.bench.providers import PEERS
from cuscan.interop import adopt
from cuscan.request import make_request

BY_KEY = Case((99,), segments="keys", split="4096 even")

# ---- small inputs, host time, first calls ----------------------------------------------------------------------------


def test_small_scans_are_held_against_the_better_rival(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PEERS, "cub", PEERS["numpy"])
    monkeypatch.setitem(PEERS, "torch", PEERS["numpy"])
    *_, (_, record) = measure(Case((256,), how="replay", must=1.0), HOST, ["torch", "cub"])
    ratios = [record["peers"][name]["ratio"] for name in ("torch", "cub")]
    assert record["value"] == pytest.approx(1 / min(ratios), rel=1e-2, abs=1e-3)
    *_, (_, record) = measure(Case((256,), how="replay"), HOST, [])
    assert record["value"] is None and "error" not in record


@pytest.mark.parametrize("call", ["numpy.cumsum(x, 0, out=y)", "torch.cumsum(x, 0, out=y)", "torch.cumsum(x, 0)"])
def test_host_time(call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    library = call.partition(".")[0]
    pytest.importorskip(library, reason=f"{library} is not installed")
    monkeypatch.setattr(latency, "CALLS", 3)
    *_, (_, record) = measure(Case((100,), how="queue", call=call, must=1.0), HOST, [])
    ours, theirs = record["time"]["median_us"], record["peers"][library]["time"]["median_us"]
    assert record["value"] == pytest.approx(ours / theirs, rel=1e-2)


def test_first_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(latency, "PROCESSES", 1)
    *_, (_, record) = measure(Case((100,), how="first"), HOST, [])
    kernel = record["peers"]["numpy"]["time"]["median_us"]
    assert record["value"] == pytest.approx((record["time"]["median_us"] - kernel) / 1e3, abs=1e-2)
    assert record["cold"]["samples"] == 1
    with_cache: list[bool] = []
    monkeypatch.setattr(latency, "first_call", lambda **k: with_cache.append(bool(k["cache"])) or 0.1)
    list(measure(Case((100,), how="first"), HOST, []))
    assert with_cache == [False, False, True] * 2  # the scan, another library's kernel, the scan with no kernel on disk


def test_a_failing_process_says_why() -> None:
    with pytest.raises(RuntimeError, match="No module named 'nonsense'"):
        latency.first_call(library="nonsense", imports="", size=3, dtype="float32", call="x", expected=1)
    with pytest.raises(WrongResultError):
        latency.first_call(library="numpy", imports="", size=3, dtype="float32", call="x", expected=2)


# ---- kernels and CUB -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_plans_need_no_memory(case: Case) -> None:
    real, planned = make_buffers(case, HOST), untouched_buffers(case)
    for one, other in zip(real.arrays(), planned.arrays(), strict=True):
        assert (one.shape, one.strides, one.dtype) == (other.shape, other.strides, other.dtype)
    assert adopt(planned.out).pointer % 256 == 0 or case.view != Layout()


def test_plans_are_those_of_the_real_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    run = backends.run
    monkeypatch.setattr(backends, "run", lambda *call: asked.append(call) or run(*call))
    monkeypatch.setattr(repeats, "repeat", lambda *call: (None, None))  # no call resembles an earlier one
    for case in CASES:
        run_cuscan(case, make_buffers(case, HOST))()
        flags, operands, initial = asked.pop()
        real, planned = make_request(flags, operands, has_initial=initial is not None), request_of(case)
        assert not asked and (real.op, real.shape, real.axis) == (planned.op, planned.shape, planned.axis)
        for name in ("reverse", "exclusive", "include_initial", "skip_nan", "has_initial"):
            assert getattr(real, name) == getattr(planned, name)
        kinds = [each.segments and each.segments.kind for each in (real, planned)]
        assert kinds == [case.segments or None] * 2
        pairs = zip((*real.values, *real.results), (*planned.values, *planned.results), strict=True)
        assert all((a.dtype, a.shape, a.strides) == (b.dtype, b.shape, b.strides) for a, b in pairs)
        assert (real.mask is None) == (planned.mask is None) == (not case.masked)


def test_a_planned_call_is_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even after a similar call: its arrays have no memory."""
    case = Case((30,))
    run_cuscan(case, make_buffers(case, HOST))()
    with monkeypatch.context() as patch:
        patch.setattr(repeats, "calls", None)
        request_of(case)
    buffers = make_buffers(case, HOST)
    run_cuscan(case, buffers)()
    assert check(case, np, buffers) <= 1
    with pytest.raises(cuscan.ScanTypeError, match="op='xor' is defined on"):
        request_of(Case((30,), op="xor"))
    run_cuscan(case, buffers)()  # after any error, calls run again
    assert check(case, np, buffers) <= 1


def test_plans_of_the_whole_matrix() -> None:
    families = {
        plan_of(case, H200).config.family for case in cases(MATRIX) if case.how in ("stream", "carry", "replay")
    }
    assert families == {"rows", "thread_rows", "staged_rows", "cluster", "tiles", "strips", "whole_rows"}


def test_kernels_are_described(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert describe_kernel(Case((99,)), None) == {"family": "host"}
    pytest.importorskip("cuscan.compile.module", reason="CuPy does not import")
    monkeypatch.setenv("CUSCAN_CACHE_DIR", str(tmp_path))
    kernel = describe_kernel(Case((2**22, 16), axis=1), H200)["kernel"]
    assert kernel["registers"] > 0 and kernel["spill_stores"] == kernel["spill_loads"] == 0
    (kept,) = (tmp_path / "resources").iterdir()
    assert [path.suffix for path in tmp_path.iterdir() if path.is_file()] == [".cubin"]  # compiled only once, for both
    kept.write_text('{"registers": 7}')
    assert describe_kernel(Case((2**22, 16), axis=1), H200)["kernel"]["registers"] == 7


def test_compiler_logs() -> None:
    log = """ptxas info    : Function properties for cuscan_tiles
    16 bytes stack frame, 20 bytes spill stores, 24 bytes spill loads
ptxas info    : Used 80 registers, used 1 barriers, 16 bytes cumulative stack size, 2048 bytes smem"""
    numbers = {"registers": 80, "spill_stores": 20, "spill_loads": 24, "stack": 16, "static_shared": 2048}
    assert parse(log) == numbers
    assert parse("") == {}


def test_what_is_compiled_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepare, "nvcc", lambda: "nvcc")
    chosen = [Case((2**power,), peers=("cub",)) for power in (26, 27)] + [Case((9,), how="first")]
    chosen.append(Case((9,), segments="nonsense", split="4 even"))
    functions = [function.__name__ for function, _ in prepare.jobs(chosen, ["cub"], H200)]
    assert functions[0] == "build" and sorted(functions) == ["build", "compile_kernel", "fail"]
    chosen = [case for case in cases(MATRIX) if "cub" in (case.peers or ())]
    sources = [what for function, what in prepare.jobs(chosen, ["cub"], H200) if function is cub_peer.build]
    types = {(case.dtype, case.result_dtype, case.op, case.segments) for case in chosen}
    assert len(sources) == len(types)


@pytest.mark.full  # each takes nvcc seconds
@pytest.mark.parametrize(
    "case",
    [Case((99,)), Case((1, 99), axis=1, dtype="bfloat16", op="max"), Case((99,), dtype="bool", result="int64"), BY_KEY],
    ids=["sum", "max", "widening", "by key"],
)
def test_cub_compiles(case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if cub_peer.nvcc() is None:
        pytest.skip("nvcc is not installed")
    monkeypatch.setenv("CUSCAN_CACHE_DIR", str(tmp_path))
    library = cub_peer.build(cub_peer.cub_source(case), 90)
    assert cub_peer.build(cub_peer.cub_source(case), 90) == library
    assert cub_peer.load(library).cuscan_bench_cub.argtypes[-2] is ctypes.c_int


def test_cub_takes_plain_rows_alone() -> None:
    by_reset = Case((9,), segments="reset", split="4096 even")
    others = (Case((9,), op="xor", dtype="int32"), Case((9,), op="logaddexp"), Case((9,), skipna=True), by_reset)
    for case in (Case((9, 9)), Case((9,), reverse=True), Case((9,), masked=True), *others):
        with pytest.raises(UnsupportedError):
            cub_peer.cub_source(case)


def test_largest_fitting() -> None:
    assert largest_fitting((1024, 1024), 8 << 30, HOST) == (128, 128)
    assert largest_fitting((64, 64), 1 << 15, HOST) == (64, 64)


def test_names() -> None:
    assert short(1 << 28) == "2^28"
    assert short(32768) == "32768"
    assert Case((2**28,), dtype="uint8").name == "uint8 to uint64 (2^28), add"
    assert Case((8, 9), axis=0, dtype="int32", result="int32", masked=True).name == "int32 (8, 9) axis 0, add masked"
