"""New shapes and cliffs: what is drawn and swept, which kernels are counted, and the report on jumps."""

from __future__ import annotations

from itertools import islice, pairwise

import numpy as np
import pytest
from bench_cases import H200, HOST

from benchmarks import cliffs, prepare
from cuscan.bench import new_shapes
from cuscan.bench.cases import Case
from cuscan.bench.kernel import plan_of
from cuscan.bench.measure import measure

# ---- new shapes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", new_shapes.KINDS)
def test_no_call_is_drawn_twice(kind: str) -> None:
    drawn = list(islice(new_shapes.draw(kind), 400))
    assert len(set(drawn)) == 400 and drawn == list(islice(new_shapes.draw(kind), 400))
    assert len({case.view for case in drawn}) > 20  # strides and alignments vary
    for case in drawn:
        asked: list[int] = []
        case.view.of(case.shape, np, lambda count, asked=asked: asked.append(count) or np.empty(count, np.uint8))
        assert asked[0] <= new_shapes.ROOM


def test_kernels_are_counted_and_compiled_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(new_shapes, "CALLS", 40)
    kernels = new_shapes.counted("(N, k) axis 0", H200)
    assert 3 < len(kernels) < 40
    assert all(plan_of(case, H200).config == config for config, case in kernels.items())
    found = prepare.jobs([Case((9,), how="shapes", label="(N, k) axis 0")], [], H200)
    assert {config for _, config in found} == set(kernels)


def test_new_shapes_are_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, count in {"CALLS": 12, "TIMED": 5, "FILLING": 7, "CHECKED": 1}.items():
        monkeypatch.setattr(new_shapes, name, count)
    monkeypatch.setattr(new_shapes, "ELEMENTS", 1 << 10)
    steps = list(measure(Case((9,), how="shapes", label="(T,)"), HOST, []))
    assert [step for step, _ in steps] == ["kernels", "new", "filling", "after", "done"]
    record = steps[-1][1]
    assert "error" not in record, record
    assert record["calls"] == 12 and 0 < record["kernels"] <= 12 and record["filling"] == 7
    for part in ("time", "again", "after"):
        assert record[part]["samples"] == 5
        assert record[part]["median_us"] <= record[part]["p99_us"] <= record[part]["max_us"]


def test_no_timed_call_was_made_before(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, count in {"CALLS": 12, "TIMED": 5, "FILLING": 7}.items():
        monkeypatch.setattr(new_shapes, name, count)
    made: list[Case] = []
    original = new_shapes._run
    monkeypatch.setattr(new_shapes, "_run", lambda case, *rest: made.append(case) or original(case, *rest))
    *_, (_, record) = measure(Case((9,), how="shapes", label="(B, T)"), HOST, [])
    warm, rest = made[: record["kernels"]], made[record["kernels"] :]
    assert rest[:5] == rest[5:10] and len(rest) == 22  # new shapes, the same again, shapes that fill tables, others
    assert len({*warm, *rest}) == len(warm) + 5 + 7 + 5


@pytest.mark.gpu
def test_new_shapes_on_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    from cuscan.bench.gpu import Gpu

    for name, count in {"CALLS": 12, "TIMED": 5, "FILLING": 7, "CHECKED": 1}.items():
        monkeypatch.setattr(new_shapes, name, count)
    for kind in new_shapes.KINDS:
        *_, (_, record) = measure(Case((9,), how="shapes", label=kind), Gpu(), [])
        assert "error" not in record, record


# ---- cliffs ----------------------------------------------------------------------------------------------------------


def test_sizes_are_swept_in_even_steps() -> None:
    sizes = list(cliffs.swept(2, 1 << 12))
    assert sizes[:5] == [2, 3, 4, 5, 6] and sizes[-1] == 1 << 12
    assert all(a < b <= max(1.0625 * a, a + 1) for a, b in pairwise(sizes))


def test_both_sides_of_a_threshold_are_measured() -> None:
    found = [Case((size,)) for size in range(6)]
    assert cliffs.at_thresholds(found, "aabbba") == [found[i] for i in (1, 2, 4, 5)]
    assert cliffs.at_thresholds(found, "aaaaaa") == []


def test_every_family_of_large_inputs_has_a_threshold() -> None:
    swept = list(cliffs.cliffs(H200))
    assert len({case.name for case in swept}) == len(swept) < 1300
    families = {plan_of(case, H200).config.family for case in swept}
    assert families >= {"rows", "thread_rows", "cluster", "tiles", "strips", "whole_rows", "panels"}


def test_jumps_are_between_neighbours_of_a_sweep() -> None:
    records = [
        {"label": f"{sweep}/{size}", "value": value}
        for sweep, size, value in (
            ("rows", 100, 0.9), ("rows", 106, 0.3), ("rows", 200, 0.1), ("panels", 2, 0.5), ("panels", 3, 1.0),
        )
    ]  # fmt: skip
    first, second = cliffs.jumps(records)
    assert (first.sweep, first.factor) == ("rows", pytest.approx(3)) and first.above["value"] == 0.3
    assert (second.sweep, second.factor) == ("panels", pytest.approx(2))
