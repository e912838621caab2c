"""The benchmark's own parts: checks that bite, byte counts, runs that survive a crash, reports."""

from __future__ import annotations

import ctypes
import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import floors, plots, prepare, report, store, worker
from benchmarks.cases import GROUPS, cases, runnable, shrink
from cuscan.bench import cub_peer, latency, timing
from cuscan.bench.buffers import make_buffers, untouched_buffers
from cuscan.bench.cases import VIEWS, Case, short, touched_bytes
from cuscan.bench.check import WrongResultError, check, doubling, error_of
from cuscan.bench.kernel import describe_kernel, parse, plan_of
from cuscan.bench.machine import Host
from cuscan.bench.measure import describe, largest_fitting, measure
from cuscan.bench.peer import UnsupportedError
from cuscan.bench.providers import PACKAGES, PEERS, run_cuscan
from cuscan.interop import adopt
from cuscan.plan import Target

HOST = Host()
H200 = Target(90, 132)
CASES = [
    Case((300,)),
    Case((7, 300), axis=1, reverse=True, exclusive=True),
    Case((300, 3, 5), axis=0, masked=True, dtype="int32"),
    Case((20, 30), axis=1, op="min", exclusive=True, masked=True),
    Case((20, 30), axis=0, op="mul", dtype="complex64"),
    Case((20, 30), dtype="uint8", op="and", masked=True),
    Case((20, 30), dtype="bool", op="xor"),
    Case((20, 30), dtype="float16"),
    *(Case((16, 24), axis=1, view=view) for view in VIEWS),
]


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
@pytest.mark.parametrize("budget", [1 << 25, 100])
def test_check_accepts_right_and_refuses_wrong(case: Case, budget: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cuscan.bench.check.BUDGET", budget)
    buffers = make_buffers(case, HOST)
    run_cuscan(case, buffers)()
    assert check(case, np, buffers) <= 1
    spoiled = buffers.out[(0,) * (case.axis % len(case.shape))]  # one row or column: never thinned out
    spoiled[...] = spoiled == 0
    with pytest.raises(WrongResultError, match="further off than rounding explains"):
        check(case, np, buffers)


def test_doubling_is_a_scan() -> None:
    for size in (1, 2, 31, 32, 33):
        values = np.random.default_rng(size).integers(-9, 9, (3, size))
        np.testing.assert_array_equal(doubling(np, np.maximum, values), np.maximum.accumulate(values, axis=-1))


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
    assert touched_bytes(x[:, ::16]) == 64 * 4 * 32  # a sector each
    assert touched_bytes(np.broadcast_to(x[:1], (100, 64))) == 64 * 4


def test_measure_reports_what_fails() -> None:
    *_, (step, record) = measure(Case((10, 10), view="nonsense"), HOST, [])
    assert step == "done"
    assert record["error"].startswith("KeyError")


@pytest.mark.parametrize("peer", ["torch", "torch.compile", "numpy"])
def test_peers_are_checked(peer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if peer != "numpy":
        pytest.importorskip("torch", reason="torch is not installed")
    case = Case((6, 40), axis=1, dtype="int32", result="int32", reverse=True)
    if peer == "torch.compile":  # it takes seconds: its expression, uncompiled
        monkeypatch.setattr("cuscan.bench.torch_peer._compiled", run_expression)
    *_, (_, record) = measure(case, HOST, [peer])
    assert record["peers"][peer]["ratio"] > 0
    assert record["peers"][peer]["error_of_tolerance"] == 0
    monkeypatch.setitem(PEERS, peer, lambda case, buffers: lambda: None)  # never writes a result
    *_, (_, record) = measure(case, HOST, [peer])
    assert record["peers"][peer] == {"error": "its result is wrong"}


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


def test_slow_runs_are_sampled_once() -> None:
    calls: list[int] = []
    assert timing.sample(2.0, lambda launches: calls.append(launches) or 2.0, calls.clear).samples == (2e6,)
    assert calls == [1]
    assert len(timing.sample(0.5, lambda launches: 0.4, calls.clear, budget=0.1).samples) == 1
    assert len(timing.sample(0.5, lambda launches: 1e-3, calls.clear, budget=0).samples) == 3
    assert timing.Timing((4.0, 6.0), 1).divided(2) == timing.Timing((2.0, 3.0), 2)


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


def test_a_failing_process_says_why() -> None:
    with pytest.raises(RuntimeError, match="No module named 'nonsense'"):
        latency.first_call(library="nonsense", imports="", size=3, dtype="float32", call="x", expected=1)
    with pytest.raises(WrongResultError):
        latency.first_call(library="numpy", imports="", size=3, dtype="float32", call="x", expected=2)


# ---- kernels and CUB -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_plans_need_no_memory(case: Case) -> None:
    real, planned = make_buffers(case, HOST), untouched_buffers(case)
    for one, other in zip(real, planned, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            assert (one.shape, one.strides, one.dtype) == (other.shape, other.strides, other.dtype)
    assert adopt(planned.out).pointer % 256 == 0 or case.view != "dense"


def test_plans_of_the_whole_matrix() -> None:
    families = {plan_of(case, H200).config.family for case in cases(GROUPS) if case.how in ("stream", "replay")}
    assert families == {"rows", "tiles", "columns", "narrow"}


def test_kernels_are_described(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert describe_kernel(Case((99,)), None) == {"family": "host"}
    pytest.importorskip("cuscan.compile.module", reason="CuPy does not import")
    monkeypatch.setenv("CUSCAN_CACHE_DIR", str(tmp_path))
    kernel = describe_kernel(Case((2**22, 16), axis=1), H200)["kernel"]
    assert kernel["registers"] > 0 and kernel["spill_stores"] == kernel["spill_loads"] == 0
    (kept,) = (tmp_path / "resources").iterdir()
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
    chosen.append(Case((9,), view="nonsense"))
    functions = [function.__name__ for function, _ in prepare.jobs(chosen, ["cub"], H200)]
    assert sorted(functions) == ["build", "compile_kernel", "fail"]
    chosen = [case for case in cases(GROUPS) if "cub" in (case.peers or ())]
    sources = [what for function, what in prepare.jobs(chosen, ["cub"], H200) if function is cub_peer.build]
    assert len(sources) == len({(case.dtype, case.result, case.op) for case in chosen if len(case.shape) == 1}) - 1


@pytest.mark.parametrize(
    "case",
    [Case((99,)), Case((1, 99), axis=1, dtype="bfloat16", op="max"), Case((99,), dtype="bool", result="int64")],
    ids=["sum", "max", "widening"],
)
def test_cub_compiles(case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if cub_peer.nvcc() is None:
        pytest.skip("nvcc is not installed")
    monkeypatch.setenv("CUSCAN_CACHE_DIR", str(tmp_path))
    library = cub_peer.build(cub_peer.cub_source(case), 90)
    assert cub_peer.build(cub_peer.cub_source(case), 90) == library
    assert cub_peer.load(library).cuscan_bench_cub.argtypes[-2] is ctypes.c_int


def test_cub_takes_plain_rows_alone() -> None:
    for case in (Case((9, 9)), Case((9,), reverse=True), Case((9,), op="xor", dtype="int32"), Case((9,), masked=True)):
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


# ---- the matrix ------------------------------------------------------------------------------------------------------


def test_matrix_has_no_twins() -> None:
    everything = cases(GROUPS)
    assert len(everything) == sum(len(list(group.cells())) for group in GROUPS.values())
    assert {case.group for case in everything} == set(GROUPS)


def test_every_cell_has_a_floor_and_known_peers() -> None:
    for case in cases(GROUPS):
        assert case.must is not None and case.aim is not None, case.name
        assert case.aim >= case.must if case.how == "stream" else case.aim <= case.must
        assert set(case.peers or ()) <= set(PEERS)
        assert Case.from_json(json.loads(json.dumps(dataclasses.asdict(case)))) == case


def test_quick_cells_have_no_floors() -> None:
    quick = [case for case in cases(GROUPS, 1 << 12) if runnable(case, on_gpu=False)]
    assert not [case for case in quick if case.must or np.prod(case.shape) > 1 << 12 or "cupy" in case.call]


def test_shrink() -> None:
    assert shrink((32768, 32768), 1 << 20) == (1024, 1024)
    assert shrink((2**24, 7), 1 << 20) == (2**17, 7)


def test_a_crash_is_reported_and_the_run_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = [Case((size,)) for size in (1, 2, 3, 4)]
    lives: list[int] = []

    def steps(left: list[Case], peers: object, errors: Any) -> Iterator[tuple[str, dict[str, Any]]]:
        lives.append(len(left))
        for case in list(left):
            size = case.shape[0]
            if size == 4:
                return  # dies before its first step
            yield "arrays", describe(case)
            if size == 2:
                errors.write("illegal access\n")
                return
            if size == 3:
                yield "torch", {**describe(case), "time": {}, "peers": {}}
                errors.write("killed\n")
                return
            yield "done", {**describe(case), "time": {}, "peers": {}}

    monkeypatch.setattr(worker, "_steps", steps)
    records = [record for step, record in worker.run(chosen, ["torch"]) if step == "done"]
    assert [record["shape"] for record in records] == [[1], [2], [3], [4]]
    assert "error" not in records[0]
    assert records[1]["error"] == "arrays: its process died or hung: illegal access"
    assert records[2]["peers"]["torch"]["error"] == "its process died or hung: killed"
    assert records[3]["error"] == "start: its process died or hung: no message"
    assert lives == [4, 2, 1]


def test_worker_process() -> None:
    done = [record for step, record in worker.run([Case((50,)), Case((60,))], ["numpy"]) if step == "done"]
    assert [record["shape"] for record in done] == [[50], [60]]
    assert all("time" in record for record in done)


# ---- reports ---------------------------------------------------------------------------------------------------------


def test_results_merge_by_cell(tmp_path: Path) -> None:
    path = tmp_path / "gpu.json"
    one, two = ({"group": "rows", "name": name, "value": 1} for name in ("a", "b"))
    store.merge(path, {}, "first", [one, two])
    store.merge(path, {}, "second", [{**one, "value": 2}])
    assert [(r["name"], r["value"]) for r in json.loads(path.read_text())["records"]] == [("a", 2), ("b", 1)]
    store.merge(path, {}, "third", [{**one, "value": 3}], {("rows", "a")})
    assert [(r["name"], r["value"]) for r in json.loads(path.read_text())["records"]] == [("a", 3)]


def test_cells_that_are_measured(tmp_path: Path) -> None:
    path = tmp_path / "gpu.json"
    records = [{"group": "rows", "name": name, "commit": "abc"} for name in ("a", "b")]
    store.merge(path, {}, "", [records[0], {**records[1], "error": "x"}, {**records[1], "name": "c", "commit": "d"}])
    assert store.measured(path, "abc") == {("rows", "a")}


def record_of(how: str, value: float | None, must: float | None, name: str = "cell") -> dict[str, Any]:
    return {"how": how, "value": value, "must": must, "name": name}


def test_floors() -> None:
    assert not floors.below(record_of("stream", 0.9, 0.9))
    assert floors.below(record_of("stream", 0.89, 0.9))
    assert floors.below(record_of("replay", 1.01, 1.0)) and not floors.below(record_of("queue", 0.4, 0.4))
    assert not floors.below(record_of("first", -3.0, 150)) and floors.below(record_of("first", 151, 150))
    assert not floors.below(record_of("stream", 0.1, None)) and floors.margin(record_of("replay", None, 1)) is None


def test_verdicts() -> None:
    fine, bad, worse = (record_of("stream", value, 0.9, f"at {value}") for value in (0.95, 0.8, 0.7))
    assert floors.verdict([]) == "No cell has a floor."
    text = floors.verdict([fine])
    assert text == "at 0.95: 0.95 of copy speed (floor, 0.90)."
    text = floors.verdict([fine, {**fine, "aim": 0.94}])
    assert text.startswith("All 2 cells reach their floors, 1 the aim; the nearest")
    text = floors.verdict([fine, worse, bad])
    assert text.startswith(
        "2 of 3 cells miss their floors, 0 reach the aim; the farthest is at 0.7: 0.70 of copy speed"
    )
    assert floors.reached(record_of("stream", 0.8996, 0.9)) == "0.8996"
    slow = record_of("replay", 1.5, 1.0)
    assert floors.worst_first([worse, record_of("replay", None, 1.0), slow]) == [slow, worse]
    lines = floors.lowest([{**record, "group": "rows"} for record in (worse, fine, bad)], 1)
    assert [line.partition(":")[2][:8] for line in lines] == [" at 0.7:", " at 0.8:"]


def test_small_axes_get_a_floor_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    copied = {(1 << 30): 250.0}
    monkeypatch.setattr(Host, "copy", lambda self, nbytes, **_: timing.Timing((copied.get(nbytes, 10.0),), 1))
    *_, (_, record) = measure(Case((1000,), must=0.85, slack_us=6), HOST, [])
    assert record["must"] == pytest.approx(10 / (8000 / (2**30 / 250) + 6), abs=1e-4)
    *_, (_, record) = measure(Case((1000,), must=0.85), HOST, [])
    assert record["must"] == 0.85


def synthetic() -> list[dict[str, Any]]:
    """A record for every cell of the matrix, as a GPU might give it; the first cell of each group misses its floor."""
    time = timing.Timing((10.0, 11.0, 12.0), 1).as_json()
    records = []
    for case in cases(GROUPS):
        first = not records or records[-1]["group"] != case.group
        value = (case.must or 1) * (0.9 if first == (case.how == "stream") else 1.05)
        peer = {"time": time, "ratio": 2.5, "error_of_tolerance": 0.1}
        record = {**describe(case), "time": time, "value": value, "peers": {"torch": peer}, "commit": "abc"}
        if case.how in ("stream", "replay"):
            record |= {"copy": time, "gb_per_s": 4000.0, "of_copy": value}
        records.append(record)
    records[0]["peers"] |= {"jax": {"error": "OutOfMemory"}, "cub": {"unsupported": "CUB scans one dense row"}}
    records[1]["peers"]["torch"] = {**records[1]["peers"]["torch"], "error_of_tolerance": 9.0}
    return [*records, {**describe(Case((9,), group="rows")), "error": "CUDAError: lost"}]


@pytest.fixture
def readme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "README.md"
    monkeypatch.setattr(report, "README", path)
    monkeypatch.setattr(store, "RESULTS", tmp_path)
    return path


def test_readme_of_the_whole_matrix(readme: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    (head, head_end), (begin, end) = report.MARKERS["headline"], report.MARKERS["benchmarks"]
    readme.write_text(f"title\n{head}\n{head_end}\nmiddle\n{begin}\nold\n{end}\ntail\n")
    path = readme.with_name("some-gpu.json")
    store.merge(path, {"gpu": "Some GPU", "driver": "1.2"}, "python -m benchmarks", synthetic())
    assert report.write() == 0
    lead, body = readme.read_text().split("middle")
    assert lead.startswith("title\n") and body.endswith("tail\n") and "old" not in body
    assert "![Share of copy speed of every cell, by group](some-gpu-of-copy.svg)" in lead
    assert "The farthest from a copy is float32 (16384, 16384) axis 1 x.T, add: 0.63 of copy speed (misses" in lead
    assert f"{len(GROUPS)} of {len(cases(GROUPS))} cells miss their floors" in lead
    assert (
        "| float32 (32768, 32768) axis 1 | add | 11 us | 18.2% | 11 us | 4000 | **0.85** | 0.95 | 2.50 x | failed |"
        in body
    )
    assert "2.50 x\\*" in body and "less exact" in body and "Failed: float32 (9), add: CUDAError: lost." in body
    for group in GROUPS.values():
        assert f"<summary>{group.title}</summary>" in body
    for name in ("of-copy", "over-torch", "small"):
        assert path.with_name(f"some-gpu-{name}.svg").read_text().lstrip().startswith("<?xml")


def test_readme_of_a_part(readme: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    begin, end = report.MARKERS["benchmarks"]
    readme.write_text(f"head\n{begin}\nold\n{end}\ntail\n")
    chosen = (Case((9, 9), axis=1, group="rows"), Case((99,), group="small", how="replay"))
    records = [record for case in chosen for step, record in measure(case, HOST, ["numpy"]) if step == "done"]
    store.merge(readme.with_name("some-gpu.json"), {"gpu": "Some GPU"}, "python -m benchmarks", records)
    assert report.write() == 0
    text = readme.read_text()
    assert text.startswith("head\n") and text.endswith("tail\n") and "old" not in text
    assert "| float32 (9, 9) axis 1 | add |" in text
    assert text.index("some-gpu-of-copy.svg") < text.index("**Some GPU**")
    assert "No cell has a floor." in text


def test_readme_without_results(readme: Path) -> None:
    begin, end = report.MARKERS["benchmarks"]
    readme.write_text(f"{begin}{end}")
    assert report.write() == 0
    assert "No results yet" in readme.read_text()


def test_pictures_are_reproducible(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    groups = report.grouped({"records": synthetic()})
    one, two = (plots.draw(tmp_path / name / "gpu.json", groups, "Some GPU") for name in folders(tmp_path))
    assert [path.read_text() for path in one.values()] == [path.read_text() for path in two.values()]


def folders(parent: Path) -> list[str]:
    for name in ("one", "two"):
        (parent / name).mkdir()
    return ["one", "two"]


def test_markers_are_needed() -> None:
    with pytest.raises(ValueError, match="no markers"):
        report.replaced("nothing", "body")


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
    *_, (_, record) = measure(Case((100_000,), how=how, must=1.0, slack_us=6), Gpu(), [peer])
    assert "error" not in record and "ratio" in record["peers"][peer], record
    assert record["peers"][peer]["error_of_tolerance"] <= 1
    assert record["kernel"]["registers"] > 0 and record["value"] > 0
    assert record["must"] != 1 or how == "replay"


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


def test_the_model_tells_designs_apart() -> None:
    from benchmarks.model import DESIGNS, Model

    three, two, *_ = (Model(design, 3000, walk=2.2, jitter=0.3).run() for design in DESIGNS[:2])
    assert 0.9 < three <= 1.05 and 0.5 < two < 0.8
    assert Model(DESIGNS[4], 3000, 1.0, 1.0).run() > Model(DESIGNS[3], 3000, 2.2, 1.0).run()
