"""The benchmark's own parts: checks that bite, byte counts, runs that survive a crash, reports."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import report, store, worker
from benchmarks.cases import GROUPS, cases, shrink
from cuscan.bench.buffers import make_buffers
from cuscan.bench.cases import VIEWS, Case, short, touched_bytes
from cuscan.bench.check import WrongResultError, check
from cuscan.bench.machine import Host
from cuscan.bench.measure import describe, largest_fitting, measure
from cuscan.bench.providers import run_cuscan

HOST = Host()
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
    assert len({case.name for case in everything}) == len(everything) == sum(len(list(g())) for g in GROUPS.values())
    assert {case.group for case in everything} == set(GROUPS)


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


def test_readme_section(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    readme = tmp_path / "README.md"
    readme.write_text(f"head\n{report.BEGIN}\nold\n{report.END}\ntail\n")
    monkeypatch.setattr(report, "README", readme)
    monkeypatch.setattr(store, "RESULTS", tmp_path)
    records = [
        record
        for case in (Case((9, 9), axis=1, group="rows"), Case((99,), group="long"))
        for step, record in measure(case, HOST, ["numpy"])
        if step == "done"
    ]
    store.merge(tmp_path / "some-gpu.json", {"gpu": "Some GPU", "driver": "1.2"}, "python -m benchmarks", records)
    assert report.write() == 0
    text = readme.read_text()
    assert text.startswith("head\n") and text.endswith("tail\n") and "old" not in text
    assert "| float32 (9, 9) axis 1 | add |" in text
    assert "**Some GPU** (driver 1.2" in text
    assert (tmp_path / "some-gpu-rows.svg").exists()


def test_markers_are_needed() -> None:
    with pytest.raises(ValueError, match="no markers"):
        report.replaced("nothing", "body")
