"""The benchmark of programs of JAX: what it measures, and that it checks every result."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import pytest
from bench_cases import HOST

import cuscan
from benchmarks import tables
from benchmarks.cases import Scope, cases
from cuscan.bench import jax_scans
from cuscan.bench.cases import Case
from cuscan.bench.measure import Record, measure
from cuscan.bench.timing import Timing
from cuscan.planning.config import Target

pytest.importorskip("jax", reason="JAX is not installed")

QUICK = {case.label: case for case in cases(["programs"], Scope(limit=1 << 8))}


@pytest.fixture(autouse=True)
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jax_scans, "SCANS", 2)

    taken = itertools.count(1)

    def once(run: Any, budget: float = 0) -> Timing:
        run()
        return Timing((float(next(taken)),), 1)

    monkeypatch.setattr(jax_scans, "_time", once)
    monkeypatch.setattr(jax_scans, "_WAYS", {"jax.lax.scan": jax_scans._step_by_step})


def measured(case: Case, peers: tuple[str, ...] = ("jax",)) -> Record:
    *_, (_, record) = measure(dataclasses.replace(case, peers=None), HOST, peers)
    return record


@pytest.mark.parametrize("label", ["host", "GPU", "training"])
def test_every_cell(label: str) -> None:
    record = measured(QUICK[label])
    assert "error" not in record, record
    assert record["value"] is not None and record["time"]["median_us"] >= 0
    assert QUICK[label].call in tables.body("programs", [record])
    if label == "training":
        assert record["peers"]["jax"]["way"] == "jax.lax.scan" and record["value"] == 0.5


@pytest.mark.parametrize("label", ["host", "GPU", "training"])
def test_wrong_results_are_noticed(label: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("cummin", "cumsum", "linear_recurrence"):
        right = getattr(cuscan, name)
        monkeypatch.setattr(cuscan, name, lambda *x, right=right, **call: right(*x, **call) * 2)
    assert "WrongResultError" in measured(QUICK[label], ())["error"]


class Gpu(type(HOST)):  # type: ignore[misc]
    """A machine that has a GPU."""

    target = Target(90, 132, 227 << 10)


def test_programs_on_the_cpu_are_not_measured_where_there_is_a_gpu() -> None:
    if jax_scans._sees_gpu():
        pytest.skip("JAX sees a GPU here")
    *_, (_, record) = measure(dataclasses.replace(QUICK["host"], peers=None), Gpu(), ())
    assert "JAX sees no GPU" in record["error"]
