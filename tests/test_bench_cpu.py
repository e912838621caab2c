"""The benchmark of NumPy arrays: it checks every cell, reports missing peers, and applies limits."""

from __future__ import annotations

import json

import numpy as np
import pytest

from benchmarks import cpu


@pytest.mark.parametrize("cell", list(cpu.cells(30, 2000)), ids=lambda cell: f"{cell.kind}: {cell.name}")
def test_every_cell_is_measured(cell: cpu.Cell) -> None:
    record = cpu.measure(cell, seconds=0)
    assert record["time"] > 0 and ("peer" in record) is (cell.peer is not None)
    assert record["elements"] == (30 if cell.kind == "call" else 2000)


def test_a_wrong_result_is_no_number() -> None:
    x = np.ones(1000)
    for wrong in (x, np.cumsum(x) + 1e-6, np.cumsum(x)[:-1]):
        with pytest.raises(AssertionError):
            cpu.measure(cpu.Cell("add", "float", lambda wrong=wrong: wrong, lambda: np.cumsum(x)), seconds=0)


def test_a_missing_peer_is_said_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu.importlib.util, "find_spec", lambda name: None)
    loops = [cell for cell in cpu.cells(30, 100) if cell.kind == "loop"]
    assert loops and all(cell.peer is None for cell in loops)
    record = cpu.measure(loops[0], seconds=0)
    assert cpu.value_of(record) is None and not cpu.is_over(record)
    assert f"| {cpu.NOT_COMPILED} |" in cpu.table([record])


def test_limits_are_judged() -> None:
    small = {"name": "add", "kind": "call", "elements": 100, "time": 29e-6, "peer": 1e-6}
    large = {"name": "mul", "kind": "float", "elements": 10**6, "time": 3.1e-3, "peer": 1e-3}
    assert not cpu.is_over(small) and cpu.is_over({**small, "time": 31e-6})
    assert cpu.is_over(large) and not cpu.is_over({**large, "time": 2.9e-3})
    assert "| mul | 1,000,000 | 3.1 ms | 1 ms (the ufunc) | 3.10 x | 3 x (over) |" in cpu.table([small, large])


def test_results_are_written_and_shown(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "cells", lambda: list(CELLS))
    path = tmp_path / "cpu" / "ratios.json"
    assert cpu.section(path) == ""
    status = cpu.run({"numpy": "2.0", "commit": "abc"}, "python -m benchmarks --group cpu", path, seconds=0)
    assert status == 0 and [record["name"] for record in json.loads(path.read_text())["records"]] == ["add, float64"]
    text = cpu.section(path)
    assert "commit abc" in text and "None is over" in text and "| add, float64 |" in text


CELLS = [cpu.Cell("add, float64", "float", lambda: np.cumsum(np.ones(100)), lambda: np.cumsum(np.ones(100)))]
