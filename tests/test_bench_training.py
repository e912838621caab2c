"""The benchmark of training: what it measures, and that it checks every gradient."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from bench_cases import HOST

import cuscan
from benchmarks import tables
from benchmarks.cases import Scope, cases
from cuscan.bench import training
from cuscan.bench.cases import Case
from cuscan.bench.measure import Record, measure

torch = pytest.importorskip("torch", reason="torch is not installed")

QUICK = cases(["training"], Scope(limit=1 << 9))


def measured(case: Case, peers: tuple[str, ...] = ()) -> Record:
    *_, (_, record) = measure(dataclasses.replace(case, peers=None), HOST, peers)
    return record


@pytest.fixture(autouse=True)
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "queue_times", lambda runs, machine: [machine.time([run], 0.01) for run in runs])


@pytest.mark.parametrize("case", QUICK, ids=lambda case: f"{case.label}-{case.array}")
def test_every_cell(case: Case) -> None:
    record = measured(case)
    assert "error" not in record, record
    assert record["time"]["median_us"] > 0
    assert (record["value"] is None) == (case.label == "layer")
    assert case.label == "host" or record["error_of_tolerance"] <= 1
    assert case.label in tables.body("training", [record])


def of(label: str) -> Case:
    return next(case for case in QUICK if case.label == label)


@pytest.mark.parametrize("label", ["layer", "backward", "backward of b", "host"])
def test_wrong_gradients_are_noticed(label: str, monkeypatch: pytest.MonkeyPatch) -> None:
    right, total = cuscan.linear_recurrence, cuscan.cumsum

    def wrong(a: Any, b: Any, **call: Any) -> Any:
        return right(a, b, **call) + 2 * b

    monkeypatch.setattr(cuscan, "linear_recurrence", wrong)
    monkeypatch.setattr(cuscan, "cumsum", lambda x, axis: total(x, axis) * 2)
    assert "WrongResultError" in measured(of(label))["error"]


def test_a_peer_that_fails_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing() -> Any:
        raise RuntimeError("no such kernel")

    peers = {"right": lambda: training._loop, "wrong": lambda: lambda a, b: a + b, "failing": failing}
    monkeypatch.setattr(training, "_PEERS", peers)
    record = measured(of("layer"), tuple(peers))
    assert record["peers"]["right"]["ratio"] == pytest.approx(1 / record["value"], rel=1e-2)
    assert "off by" in record["peers"]["wrong"]["error"]
    assert record["peers"]["failing"] == {"error": "RuntimeError: no such kernel"}


@pytest.mark.full
def test_what_torch_compiles_has_the_same_gradients() -> None:
    record = measured(of("layer"), ("torch",))
    assert "error" not in record and record["peers"]["torch"].get("ratio"), record
