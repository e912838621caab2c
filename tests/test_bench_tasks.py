"""Scans of everyday tasks: what they are, and that every one has a plan."""

from __future__ import annotations

import pytest
from plans import H200

from benchmarks import sample, tasks
from benchmarks.cases import Scope, cases
from cuscan.bench.kernel import plan_of

FOUND = list(tasks.cases())


def test_every_scan_is_named_once_by_its_task() -> None:
    assert len({case.name for case in FOUND}) == len(FOUND) < 300
    assert {case.label for case in FOUND} == set(tasks.TASKS)
    assert all(case.how == "sample" for case in FOUND)


def test_plain_scans_are_measured_beside_torch() -> None:
    assert {case.op for case in FOUND if case.peers} == {"add", "max", "min with indices", "logaddexp"}
    assert all(case.peers == () for case in FOUND if case.features or case.op == "linear_recurrence")


@pytest.mark.parametrize("task", tasks.TASKS)
def test_every_scan_has_a_plan_and_fits_in_memory(task: str) -> None:
    for case in FOUND:
        if case.label == task:
            assert plan_of(case, H200).grid > 0 and sample.moved_bytes(case) < 1 << 31, case.name


def test_a_quick_look_takes_small_arrays() -> None:
    small = cases(["tasks"], Scope(limit=1 << 12))
    assert {case.label for case in small} == set(tasks.TASKS)
    assert all(sample.moved_bytes(case) < 1 << 18 for case in small)
