"""Floors, verdicts, tables and pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from bench_cases import HOST

from benchmarks import floors, plots, report, store
from benchmarks.cases import GROUPS, cases
from cuscan.bench import timing
from cuscan.bench.cases import Case
from cuscan.bench.machine import Host, Yardstick
from cuscan.bench.measure import describe, measure


def record_of(how: str, value: float | None, must: float | None, name: str = "cell") -> dict[str, Any]:
    return {"how": how, "value": value, "must": must, "name": name}


def test_floors() -> None:
    assert not floors.below(record_of("stream", 0.9, 0.9))
    assert floors.below(record_of("stream", 0.89, 0.9))
    assert floors.below(record_of("replay", 1.01, 1.0)) and not floors.below(record_of("queue", 0.4, 0.4))
    assert not floors.below(record_of("first", -3.0, 150)) and floors.below(record_of("first", 151, 150))
    assert not floors.below(record_of("stream", 0.1, None)) and floors.margin(record_of("replay", None, 1)) is None


def test_spills_are_named() -> None:
    tight = {"group": "rows", "name": "a", "kernel": {"spill_stores": 4, "spill_loads": 8}}
    fine = {"group": "rows", "name": "b", "kernel": {"spill_stores": 0, "spill_loads": 0}}
    assert floors.spilling([tight, fine, {"group": "first", "name": "c"}]) == [
        "rows: a: its kernel spills 4 bytes, loads 8"
    ]


def test_the_commits_that_cells_were_measured_at_are_named() -> None:
    one, other = {"group": "rows", "commit": "a"}, {"group": "axes", "commit": "b"}
    assert report._commits([one, {**one}]) == "commit a" and report._commits([]) == "commit unknown"
    assert report._commits([one, other, {"group": "few", "commit": "a"}]) == "commit a: rows, few; commit b: axes"
    assert report._commits([one, {**one, "commit": "b"}, one]) == "commit a: 2 of 3 rows; commit b: 1 of 3 rows"


def test_the_report_says_which_way_was_measured() -> None:
    old = {"how": "stream"}
    new, small = {**old, "measured": "after other work"}, {"how": "replay", "measured": "replayed"}
    assert report.ways([old, small]).startswith("Throughput was measured back to back")
    assert report.ways([new, new, small]).startswith("Throughput was measured right after other work")
    text = report.ways([old, new, new])
    assert "1 throughputs were measured back to back" in text and "2 throughputs were measured right after" in text


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
    assert floors.verdict([fine, worse, bad], worse) == "2 of 3 cells miss their floors, 0 reach the aim."
    assert floors.verdict([fine, worse, bad], bad) == text
    assert floors.reached(record_of("stream", 0.8996, 0.9)) == "0.8996"
    slow = record_of("replay", 1.5, 1.0)
    assert floors.worst_first([worse, record_of("replay", None, 1.0), slow]) == [slow, worse]
    lines = floors.lowest([{**record, "group": "rows"} for record in (worse, fine, bad)], 1)
    assert [line.partition(":")[2][:8] for line in lines] == [" at 0.7:", " at 0.8:"]


def test_small_axes_get_a_floor_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    def after_work(self: Host, runs: list[Any], budget: float = 0) -> list[timing.Timing]:
        return [timing.Timing((250.0 if str(run()) == str(1 << 30) else 10.0,), 1) for run in runs]

    monkeypatch.setattr(Host, "yardstick", lambda self, nbytes: Yardstick(lambda: nbytes))
    monkeypatch.setattr(Host, "after_work", after_work)
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
    records[2] |= {"measured": "after other work"}
    records[2]["peers"]["torch"] |= {"measured": "back to back"}
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
    assert "The farthest from a copy is float32 (2^20, 2) axis 0, add: 0.11 of copy speed (floor, 0.10)" in lead
    assert f"{len(GROUPS)} of {len(cases(GROUPS))} cells miss their floors" in lead
    assert "Not measured" not in lead
    assert (
        "| float32 (32768, 32768) axis 1 | add | 11 us | 18.2% | 11 us | 4000 | **0.77** | 0.85 | 2.50 x | failed |"
        in body
    )
    assert "2.50 x†" in body and "marked †" in body
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
    left_out = text.partition("Not measured, and in none of these numbers: ")[2].partition(".**")[0].split("; ")
    assert left_out == [about.title for name, about in GROUPS.items() if name not in ("rows", "small")]


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
