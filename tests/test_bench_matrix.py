"""The matrix of cells, the processes that measure them, and the files that hold the results."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import benchmarks.__main__ as main
from benchmarks import report, store, worker
from benchmarks.cases import GROUPS, MATRIX, Scope, cases, runnable, shrink
from cuscan.bench import environment
from cuscan.bench.cases import Case
from cuscan.bench.measure import describe
from cuscan.bench.providers import PEERS

# ---- the matrix ------------------------------------------------------------------------------------------------------


def test_matrix_has_no_twins() -> None:
    everything = cases(MATRIX)
    assert len(everything) == sum(len(list(GROUPS[name].cells())) for name in MATRIX)
    assert {case.group for case in cases(GROUPS, Scope(count=1))} == set(GROUPS)


def test_every_cell_has_a_floor_and_known_peers() -> None:
    for case in cases(MATRIX):
        assert case.must is not None and case.aim is not None, case.name
        assert case.aim >= case.must if case.how in ("stream", "carry") else case.aim <= case.must
        assert set(case.peers or ()) <= set(PEERS)
        assert Case.from_json(json.loads(json.dumps(case.as_json()))) == case


def test_quick_cells_have_no_floors() -> None:
    quick = [case for case in cases(MATRIX, Scope(limit=1 << 12)) if runnable(case, on_gpu=False)]
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


def test_a_hang_is_ended_and_the_run_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    cases_of_it = [Case((1,)), Case((2,)), Case((3,))]
    script = """
import json, sys, time
for line in sys.stdin.read().splitlines():
    size = json.loads(line)["shape"][0]
    record = {"shape": [size], "peers": {}}
    print(json.dumps({"step": "cuscan", "record": record}), flush=True)
    time.sleep(60 * (size == 2))
    print(json.dumps({"step": "done", "record": record}), flush=True)
"""
    monkeypatch.setattr(worker, "_command", lambda peers: [sys.executable, "-c", script])
    monkeypatch.setattr(worker, "STEP_SECONDS", 2)
    start = time.monotonic()
    records = [record for step, record in worker.run(cases_of_it, []) if step == "done"]
    assert [record["shape"] for record in records] == [[1], [2], [3]]
    assert ["error" in record for record in records] == [False, True, False]
    assert records[1]["error"] == "cuscan: its process died or hung: no message"
    assert time.monotonic() - start < 30


def test_a_worker_that_never_listens_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "_command", lambda peers: [sys.executable, "-c", "import time; time.sleep(60)"])
    monkeypatch.setattr(worker, "STEP_SECONDS", 1)
    long_name = Case((1,), call="x" * 200_000)  # more than fits into a pipe
    (record,) = [record for step, record in worker.run([long_name], []) if step == "done"]
    assert record["error"] == "start: its process died or hung: no message"


@pytest.mark.full
def test_the_run_stops_in_time_and_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("rich", reason="rich is not installed")
    monkeypatch.setattr(report, "draw", lambda path: None)
    monkeypatch.setattr(main, "environment", lambda: {"gpu": None, "commit": "abc", "code": "def"})
    monkeypatch.setattr(main, "devices", list)
    few = ["benchmarks", "--quick", "--group", "items", "--against", "none", "--results", str(tmp_path / "new")]

    def run(*options: str) -> list[str]:
        monkeypatch.setattr(sys, "argv", [*few, *options])
        assert main.main() == 0
        records = [json.loads(file.read_text())["records"] for file in (tmp_path / "new").glob("*.json")]
        return [record["name"] for record in (records or [[]])[0]]

    assert len(run("--cell", "int8", "--seconds", "0.01")) < 3
    assert len(run("--cell", "int8")) == 3
    assert len(run("--resume")) == 7
    assert len(run("--resume")) == 7  # no cell is left


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
    store.merge(path, {}, "third", [{**one, "value": 3}], lambda record: record["name"] == "a")
    assert [(r["name"], r["value"]) for r in json.loads(path.read_text())["records"]] == [("a", 3)]


def test_cells_that_are_measured(tmp_path: Path) -> None:
    path = tmp_path / "gpu.json"
    records = [{"group": "rows", "name": name, "code": "abc"} for name in ("a", "b")]
    store.merge(path, {}, "", [records[0], {**records[1], "error": "x"}, {**records[1], "name": "c", "code": "d"}])
    store.merge(path, {}, "", [{"group": "rows", "name": "old"}])  # from the time before records had a code
    assert store.measured(path, "abc") == {("rows", "a"): records[0]}


def test_code_is_what_decides_results_and_speed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "cuscan"
    for name in ("__init__.py", "plan.py", "cli.py", "cuda/types.cuh", "bench/timing.py", "notes.txt"):
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text("first")
    monkeypatch.setattr(environment.cuscan, "__file__", str(package / "__init__.py"))
    digests = [environment.code()]
    for name in ("cli.py", "bench/timing.py", "notes.txt"):
        (package / name).write_text("second")
        assert environment.code() == digests[0]
    for name in ("plan.py", "cuda/types.cuh"):
        (package / name).write_text("second")
        digests.append(environment.code())
    (package / "plan.py").rename(package / "order.py")
    assert len({*digests, environment.code()}) == 4


def test_the_model_tells_designs_apart() -> None:
    from benchmarks.model import DESIGNS, Model

    three, two, *_ = (Model(design, 3000, walk=2.2, jitter=0.3).run() for design in DESIGNS[:2])
    assert 0.9 < three <= 1.05 and 0.5 < two < 0.8
    assert Model(DESIGNS[4], 3000, 1.0, 1.0).run() > Model(DESIGNS[3], 3000, 2.2, 1.0).run()
