"""The benchmark of one case: checks notice wrong results, byte counts, peers."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import sys
import types
from typing import Any

import numpy as np
import pytest
from bench_cases import CASES, HOST

from benchmarks.cases import cases, runnable
from cuscan.bench import cub_peer, latency, timing
from cuscan.bench.buffers import make_buffers
from cuscan.bench.cases import Case
from cuscan.bench.check import WrongResultError, check, error_of
from cuscan.bench.layouts import touched_bytes
from cuscan.bench.machine import Host, Yardstick
from cuscan.bench.measure import measure
from cuscan.bench.ours import run_cuscan, with_results
from cuscan.bench.peer import Waiting
from cuscan.bench.providers import PACKAGES, PEERS
from cuscan.bench.reference import doubling, scan_along
from cuscan.bench.segments import SPLITS, count_of, make_segments, offsets_of, starts_of


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
@pytest.mark.parametrize("budget", [1 << 25, 700])
def test_check_accepts_right_and_refuses_wrong(case: Case, budget: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cuscan.bench.check.BUDGET", budget)
    buffers = make_buffers(case, HOST)
    run_cuscan(case, buffers)()
    assert check(case, np, buffers) <= 1
    spoiled = buffers.out[(0,) * (case.axis % len(case.shape))]  # one row or column, which is never thinned out
    spoiled[...] = spoiled == 0
    with pytest.raises(WrongResultError, match="further off than rounding explains"):
        check(case, np, buffers)


@pytest.mark.parametrize("op", ["add", "max", "linear_recurrence"])
@pytest.mark.parametrize("carry", ["in and out", "total"])
def test_carries_are_checked(carry: str, op: str) -> None:
    case = Case((5, 30, 4), axis=1, op=op, carry=carry)
    buffers = make_buffers(case, HOST)
    assert len(buffers.outs) == (carry != "total") and len(buffers.carry) == len(case.operator.inputs) * (
        carry != "total"
    )
    done = with_results(case, buffers, run_cuscan(case, buffers)())
    assert error_of(case, np, done) <= 1
    wrong = done.behind[-1].copy()
    wrong[2, 3] += 1
    assert error_of(case, np, done._replace(behind=(*done.behind[:-1], wrong))) > 1
    if carry == "in and out":
        others = tuple(field + 1 for field in done.carry)
        assert error_of(case, np, done._replace(carry=others)) > 1


def test_carries_are_held_against_the_call_without_and_totals_against_reading() -> None:
    calls: list[str] = []

    class Machine(Host):
        def read(self, arrays: Any) -> Yardstick:
            return Yardstick(lambda: calls.append(f"read {sum(array.nbytes for array in arrays)}"))

        def after_work(self, runs: Any, budget: float = 0) -> list[timing.Timing]:
            seen = [run() for run in runs]
            calls.extend(str(each.shape if hasattr(each, "shape") else type(each).__name__) for each in seen)
            return [timing.Timing((time,), 1) for time in (5.0, 8.0, 10.0)]

    for carry, others in (("in and out", ["(6, 50)", "tuple"]), ("total", ["NoneType", "(6,)"])):
        calls.clear()
        *_, (_, record) = measure(Case((6, 50), how="carry", carry=carry, must=0.9), Machine(), [])
        assert (record["of_copy"], record["value"], record["beside"]["median_us"]) == (0.5, 0.8, 8.0)
        assert calls[-2:] == others and ("read 1200" in calls) == (carry == "total")


@pytest.mark.parametrize("scan", [doubling, scan_along])
@pytest.mark.parametrize("size", [1, 2, 15, 16, 17, 32, 300])
def test_reference_scans_keep_the_order(scan: Any, size: int) -> None:
    def append(earlier: Any, later: Any) -> Any:  # digits modulo a prime: it does not commute, and a lost digit shows
        return (earlier[0] * later[1] + later[0]) % 10007, earlier[1] * later[1] % 10007

    digits = np.random.default_rng(size).integers(1, 10, (3, size))
    numbers, _ = scan(append, (digits.copy(), np.full_like(digits, 10)))
    for row, expected in zip(numbers, digits, strict=True):
        assert row.tolist() == [int("".join(map(str, expected[: i + 1]))) % 10007 for i in range(size)]


def test_spoiled_results_are_noticed() -> None:
    for dtype in ("float32", "bfloat16", "int32"):
        case = Case((40, 9), axis=1, dtype=dtype, result=dtype)
        buffers = make_buffers(case, HOST)
        run_cuscan(case, buffers)()
        buffers.spoil()
        assert error_of(case, np, buffers) > 1


def test_first_and_last_rows_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cuscan.bench.check.BUDGET", 100)
    for rows in (2, 3, 8, 100):
        case = Case((rows, 400), axis=1)
        for row in (0, rows - 1):
            buffers = make_buffers(case, HOST)
            run_cuscan(case, buffers)()
            assert error_of(case, np, buffers) <= 1
            buffers.out[row, 7] = 99
            assert error_of(case, np, buffers) > 1


def test_rows_of_every_residue_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cuscan.bench.check.BUDGET", 128 * 16)
    case = Case((512, 16), axis=1)  # every fourth row is within the budget
    for row in (5, 10, 15, 20, 35):
        buffers = make_buffers(case, HOST)
        run_cuscan(case, buffers)()
        assert error_of(case, np, buffers) <= 1
        buffers.out[row, 3] = 99
        assert error_of(case, np, buffers) > 1


def test_products_and_bits_are_exact_far_along() -> None:
    for case in (Case((1 << 16,), op="mul", dtype="complex64"), Case((1 << 16,), op="or", dtype="int32")):
        buffers = make_buffers(case, HOST)
        run_cuscan(case, buffers)()
        assert error_of(case, np, buffers) == 0
        buffers.out[60_000] += 1
        assert error_of(case, np, buffers) == np.inf


def test_subnormal_numbers_are_rounded_to_their_own_steps() -> None:
    case = Case((2, 40), axis=1, dtype="float16", op="linear_recurrence")
    buffers = make_buffers(case, HOST)
    decay, b = buffers.values
    decay[...], b[...] = 0.7, 0
    b[:, 0] = 2.0**-12
    run_cuscan(case, buffers)()
    (out,) = buffers.outs
    assert 0 < out[0, -20] < np.finfo(np.float16).smallest_normal
    assert check(case, np, buffers) <= 1
    out[1, -20] += 2 * np.finfo(np.float16).smallest_subnormal
    with pytest.raises(WrongResultError):
        check(case, np, buffers)


def test_nan_is_wrong() -> None:
    case = Case((40,))
    buffers = make_buffers(case, HOST)
    buffers.out[...] = np.nan
    with pytest.raises(WrongResultError):
        check(case, np, buffers)


def test_touched_bytes() -> None:
    x = np.zeros((64, 64), np.float32)
    assert touched_bytes(x) == touched_bytes(x.T) == touched_bytes(x[:, ::-1]) == 64 * 64 * 4
    assert touched_bytes(x[:, ::2]) == 64 * 64 * 4
    assert touched_bytes(x[:, ::16]) == 64 * 4 * 32  # each takes a sector
    assert touched_bytes(np.broadcast_to(x[:1], (100, 64))) == 64 * 4


def test_measure_reports_what_fails() -> None:
    *_, (step, record) = measure(Case((10, 10), segments="keys", split="4 nonsense"), HOST, [])
    assert step == "done"
    assert record["error"].startswith("KeyError")


@pytest.mark.parametrize("peer", ["torch", "torch.compile", "numpy"])
def test_peers_are_checked(peer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if peer != "numpy":
        pytest.importorskip("torch", reason="torch is not installed")
    case = Case((6, 40), axis=1, dtype="int32", result="int32", reverse=True)
    if peer == "torch.compile":  # compiling takes seconds: run its expression uncompiled
        monkeypatch.setattr("cuscan.bench.torch_peer._compiled", run_expression)
    *_, (_, record) = measure(case, HOST, [peer])
    assert record["peers"][peer]["ratio"] > 0
    assert record["peers"][peer]["error_of_tolerance"] == 0
    monkeypatch.setitem(PEERS, peer, lambda case, buffers: lambda: None)  # never writes a result
    *_, (_, record) = measure(case, HOST, [peer])
    assert record["peers"][peer] == {"error": "its result is wrong"}


FEATURES = [
    Case((6, 40), op="logaddexp", dtype="float64"),
    Case((6, 40), op="max", axis=0),
    Case((6, 40), op="max with indices"),
    Case((6, 40), skipna=True),
    Case((6, 40), skipna=True, masked=True, op="mul"),
    Case((6, 40), masked=True),
    Case((6, 40), include_initial=True),
    Case((6, 40), include_initial=True, axis=0, reverse=True),
    Case((6, 40), exclusive=True, reverse=True),
    Case((6, 40), op="mul", dtype="complex64"),
    Case((2, 6, 40), op="linear_recurrence"),
    Case((2, 40, 6), op="linear_recurrence", axis=1),
]


@pytest.mark.parametrize("case", FEATURES, ids=[case.name for case in FEATURES])
def test_torch_scans_what_cases_ask_for(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    peer = "torch.compile" if case.op == "linear_recurrence" else "torch"
    if peer == "torch.compile":  # uncompiled, in the mode that needs no GPU
        module = importlib.import_module("torch._higher_order_ops.associative_scan")
        generic = functools.partial(module.associative_scan, combine_mode="generic")
        monkeypatch.setattr(module, "associative_scan", generic)
        monkeypatch.setattr("cuscan.bench.torch_peer._compiled", run_expression)
    *_, (_, record) = measure(case, HOST, [peer])
    assert "error" not in record, record
    assert record["peers"][peer].get("error_of_tolerance", 9) <= 1, record["peers"]


def test_accelerated_scan_is_called_as_its_readme_says(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")

    def scan(gates: Any, tokens: Any) -> Any:
        states = [tokens[..., 0]]
        for t in range(1, tokens.shape[-1]):
            states.append(gates[..., t] * states[-1] + tokens[..., t])
        return torch.stack(states, -1)

    monkeypatch.setitem(sys.modules, "accelerated_scan", types.ModuleType("accelerated_scan"))
    monkeypatch.setitem(sys.modules, "accelerated_scan.scalar", types.SimpleNamespace(scan=scan))
    *_, (_, record) = measure(Case((2, 3, 32), op="linear_recurrence"), HOST, ["accelerated-scan"])
    assert record["peers"]["accelerated-scan"]["error_of_tolerance"] <= 1
    for case in (
        Case((3, 32), op="linear_recurrence"),
        Case((2, 3, 32)),
        Case((2, 32, 3), op="linear_recurrence", axis=1),
    ):
        *_, (_, record) = measure(case, HOST, ["accelerated-scan"])
        assert "unsupported" in record["peers"]["accelerated-scan"]


def test_bytes_of_everything_that_is_read_and_written() -> None:
    def nbytes(case: Case) -> int:
        return make_buffers(case, HOST).nbytes

    assert nbytes(Case((1000,), op="max with indices")) == 1000 * (4 + 4 + 8)
    assert nbytes(Case((10, 100), op="linear_recurrence", dtype="bfloat16")) == 1000 * 3 * 2
    assert nbytes(Case((1000,), op="matrix_product")) == 1000 * 32
    assert nbytes(Case((1000,), include_initial=True, masked=True)) == 1000 * (4 + 1 + 4) + 4
    assert nbytes(Case((10, 100), segments="offsets", split="4096 even")) == 1000 * 8 + 4097 * 4
    assert nbytes(Case((10, 100), segments="reset", split="4096 even")) == 1000 * 8 + 100
    assert nbytes(Case((10, 100), segments="keys", split="4096 even")) == 1000 * 8 + 100 * 4


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("length", [1000, 1 << 20])
def test_splits(split: str, length: int) -> None:
    offsets, starts = offsets_of(split, length), starts_of(np, split, length)
    assert len(offsets) == count_of(split) + 1
    assert offsets[0] == 0 and offsets[-1] == length and (np.diff(offsets) >= 0).all()
    assert starts.sum() == len(np.unique(offsets[offsets < length]))
    keys = make_segments(np, "keys", split, (3, length), 1)
    np.testing.assert_array_equal(np.flatnonzero(np.diff(keys)) + 1, np.flatnonzero(starts)[1:])


def test_the_skewed_split_is_skewed() -> None:
    lengths = np.diff(offsets_of("2^18 skewed", 1 << 28))
    assert lengths.max() > 1 << 24 and (lengths == 0).mean() >= 0.25 and np.median(lengths) < 300


def run_expression(case: Case) -> Any:
    from cuscan.bench.torch_peer import _torch_expression

    return _torch_expression(case)


def test_peers_that_have_no_such_scan() -> None:
    *_, (_, record) = measure(Case((6, 40), axis=1), HOST, ["cub", "cuda.compute"])
    assert record["peers"]["cub"] == {"unsupported": "CUB scans one dense row"}
    assert record["peers"]["cuda.compute"] == {"unsupported": "cuda.compute scans one dense row"}


def test_peers_of_a_case() -> None:
    *_, (_, record) = measure(Case((40,), peers=()), HOST, ["numpy"])
    assert record["peers"] == {}


def test_runs_come_right_after_other_work_and_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    monkeypatch.setattr(Host, "yardstick", lambda self, nbytes: Yardstick(lambda: seen.append("work")))
    copy, scan = Host().after_work([lambda: seen.append("copy"), lambda: seen.append("scan")], budget=1e-9)
    rounds = ["work", "copy", "work", "scan"]
    assert seen == rounds * (len(seen) // 4) and len(copy.samples) == len(scan.samples) == 3


def test_records_say_how_they_were_measured() -> None:
    *_, (_, record) = measure(Case((300,), must=0.5), HOST, ["numpy"])
    assert record["measured"] == record["peers"]["numpy"]["measured"] == "after other work"
    for way in (record, record["back to back"]):
        assert way["of_copy"] == pytest.approx(way["copy"]["median_us"] / way["time"]["median_us"], rel=1e-2, abs=1e-3)
    theirs = record["peers"]["numpy"]["back to back"]
    assert theirs["ratio"] == pytest.approx(
        theirs["time"]["median_us"] / record["back to back"]["time"]["median_us"], rel=1e-2, abs=1e-3
    )
    *_, (_, record) = measure(Case((300,), how="replay"), HOST, [])
    assert record["measured"] == "replayed" and "back to back" not in record


def test_a_peer_with_a_stream_of_its_own_runs_back_to_back(monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = lambda case, buffers: Waiting(PEERS["numpy"](case, buffers), lambda result: None)  # noqa: E731
    monkeypatch.setitem(PEERS, "jax", waiting)
    *_, (_, record) = measure(Case((300,)), HOST, ["jax"])
    theirs, ours = record["peers"]["jax"], record["back to back"]
    assert theirs["measured"] == "back to back"
    assert theirs["ratio"] == pytest.approx(theirs["time"]["median_us"] / ours["time"]["median_us"], rel=1e-2, abs=1e-3)


def test_slow_runs_are_sampled_once() -> None:
    calls: list[int] = []
    assert timing.sample(2.0, lambda launches: calls.append(launches) or 2.0, calls.clear).samples == (2e6,)
    assert calls == [1]
    assert len(timing.sample(0.5, lambda launches: 0.4, calls.clear, budget=0.1).samples) == 1
    assert len(timing.sample(0.5, lambda launches: 1e-3, calls.clear, budget=0).samples) == 3
    calls.clear()
    (slow,) = timing.in_turn([lambda: None], lambda run: calls.append(1) or 2.0)
    assert slow.samples == (2e6,) and len(calls) == 1
    assert timing.Timing((4.0, 6.0), 1).divided(2) == timing.Timing((2.0, 3.0), 2)


# ---- on a GPU --------------------------------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.parametrize(
    "how, peer", [("stream", peer) for peer in PEERS if peer != "numpy"] + [("replay", "torch"), ("replay", "cub")]
)
def test_peers_on_the_gpu(how: str, peer: str) -> None:
    from cuscan.bench.gpu import Gpu

    if peer == "cub" and cub_peer.nvcc() is None:
        pytest.skip("nvcc is not installed")
    pytest.importorskip(PACKAGES.get(peer, peer), reason=f"{peer} is not installed")
    case = Case((100_000,), how=how, must=1.0, slack_us=6)
    if peer == "accelerated-scan":
        case = dataclasses.replace(case, shape=(2, 3, 4096), op="linear_recurrence")
    *_, (_, record) = measure(case, Gpu(), [peer])
    assert "error" not in record and "ratio" in record["peers"][peer], record
    assert record["peers"][peer]["error_of_tolerance"] <= 1
    assert record["kernel"]["registers"] > 0 and record["value"] > 0
    assert record["must"] != 1 or how == "replay"


EVERY_KIND = list({(case.op, case.segments, case.skipna): case for case in CASES}.values())


@pytest.mark.gpu
@pytest.mark.parametrize("case", EVERY_KIND, ids=[case.name for case in EVERY_KIND])
def test_checks_on_the_gpu(case: Case) -> None:
    import cupy

    from cuscan.bench.gpu import Gpu

    buffers = make_buffers(case, Gpu())
    run_cuscan(case, buffers)()
    assert check(case, cupy, buffers) <= 1
    buffers.out[...] = buffers.out == 0
    assert error_of(case, cupy, buffers) > 1


@pytest.mark.gpu
@pytest.mark.parametrize("case", [case for case in FEATURES if case.op == "linear_recurrence"], ids=["last", "middle"])
def test_torch_compiles_recurrences(case: Case) -> None:
    from cuscan.bench.gpu import Gpu

    pytest.importorskip("torch", reason="torch is not installed")
    *_, (_, record) = measure(dataclasses.replace(case, shape=(4, 256, 256)), Gpu(), ["torch.compile"])
    assert record["peers"]["torch.compile"].get("error_of_tolerance", 9) <= 1, record


@pytest.mark.gpu
def test_cub_sums_by_key() -> None:
    from cuscan.bench.gpu import Gpu

    if cub_peer.nvcc() is None:
        pytest.skip("nvcc is not installed")
    case = Case((1 << 20,), segments="keys", split="4096 even")
    *_, (_, record) = measure(case, Gpu(), ["cub"])
    assert record["peers"]["cub"].get("error_of_tolerance", 9) <= 1, record


@pytest.mark.gpu
@pytest.mark.parametrize("case", cases(["host", "first"]), ids=lambda case: case.name)
def test_latencies_on_the_gpu(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    from cuscan.bench.gpu import Gpu

    monkeypatch.setattr(latency, "PROCESSES", 1)

    if not runnable(case, on_gpu=True):
        pytest.skip("torch is not installed")
    *_, (_, record) = measure(case, Gpu(), [])
    assert "error" not in record, record
    assert record["value"] is not None


@pytest.mark.gpu
def test_the_yardstick_after_other_work_is_no_faster_than_back_to_back() -> None:
    from cuscan.bench.gpu import Gpu

    gpu = Gpu()
    yardstick = gpu.yardstick(1 << 30)
    (after,) = gpu.after_work([yardstick.run])
    assert gpu.copy(1 << 30).median < 1.1 * after.median < 1.5 * gpu.copy(1 << 30).median
