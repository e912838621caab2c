"""Floors, verdicts, tables and plots."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from bench_cases import HOST

from benchmarks import floors, plots, ranks_table, report, store, tables
from benchmarks.cases import GROUPS, MATRIX, Scope, cases
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


def test_the_code_that_was_measured_is_named() -> None:
    one, other = {"group": "rows", "commit": "a"}, {"group": "axes", "commit": "b"}
    assert tables.origins([one, {**one}]) == "commit a" and tables.origins([]) == "commit unknown"
    assert tables.origins([one, other, {"group": "few", "commit": "a"}]) == "commit a: rows, few; commit b: axes"
    assert tables.origins([one, {**one, "commit": "b"}, one]) == "commit a: 2 of 3 rows; commit b: 1 of 3 rows"
    alike = [{**one, "code": "x"}, {**other, "code": "x"}, {"group": "few", "commit": "b", "code": "y"}]
    assert tables.origins(alike[:2]) == "commit a"  # no code changed between these commits
    assert tables.origins(alike) == "commit a: rows, axes; commit b: few"


def test_the_report_says_which_way_was_measured() -> None:
    old = {"how": "stream"}
    new, small = {**old, "measured": "after other work"}, {"how": "replay", "measured": "replayed"}
    assert tables.ways([old, small]).startswith("Throughput was measured back to back")
    assert tables.ways([new, new, small]).startswith("Throughput was measured right after other work")
    text = tables.ways([old, new, new])
    assert "1 of 3 were measured back to back" in text and "2 of 3 were measured right after" in text


def test_verdicts() -> None:
    fine, bad, worse = (record_of("stream", value, 0.9, f"at {value}") for value in (0.95, 0.8, 0.7))
    assert floors.verdict([]) == "Nothing is required."
    text = floors.verdict([fine])
    assert text == "at 0.95: 0.95 of copy speed (required: 0.90)."
    text = floors.verdict([fine, {**fine, "aim": 0.94}])
    assert text.startswith("All 2 reach what is required, 1 what is wanted; the nearest")
    text = floors.verdict([fine, worse, bad])
    assert text.startswith(
        "2 of 3 fall short of what is required, 0 reach what is wanted; the farthest is at 0.7: 0.70 of copy speed "
        "(less than required: 0.90)"
    )
    assert floors.verdict([fine, worse, bad], worse).endswith("0 reach what is wanted.")
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


def synthetic(groups: Iterable[str] = MATRIX) -> list[dict[str, Any]]:
    """A plausible record of every cell of some groups; the first record of each group misses its requirement."""
    time = {**timing.Timing((10.0, 11.0, 12.0), 1).as_json(), "p99_us": 13.0}
    records = []
    for case in cases(groups, Scope(count=40)):
        first = not records or records[-1]["group"] != case.group
        value = (case.must or 0.8) * (0.9 if first == (case.how in ("stream", "carry", "sample")) else 1.05)
        peers = {"torch": {"time": time, "ratio": 2.5, "error_of_tolerance": 0.1}} if case.peers != () else {}
        record = {**describe(case), "time": time, "value": value, "peers": peers, "commit": "abc", "family": "rows"}
        if case.how in ("stream", "carry", "replay", "sample"):
            record |= {"copy": time, "gb_per_s": 4000.0, "of_copy": value}
        if case.how == "carry":
            record["beside"] = time
        if case.how == "shapes":
            record |= {"again": time, "after": time, "calls": 1500, "kernels": 17, "filling": 10_000}
        records.append(record)
    return records


@pytest.fixture
def pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a README that lacks its numbers."""
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    marks = "".join(f"{begin}old{end}\n" for begin, end in report.MARKERS.values())
    (tmp_path / "README.md").write_text(f"title\n{marks}tail\n")
    monkeypatch.setattr(report, "README", tmp_path / "README.md")
    monkeypatch.setattr(report, "PAGE", tmp_path / "docs" / "benchmarks.md")
    monkeypatch.setattr(store, "RESULTS", tmp_path)
    return tmp_path


def written(pages: Path, records: list[dict[str, Any]]) -> tuple[str, str]:
    """The README and the page of benchmarks that the report writes for some records."""
    facts = {"gpu": "Some GPU", "driver": "1.2", "torch": "9.9"}
    store.merge(pages / "some-gpu.json", facts, "python -m benchmarks", records)
    assert report.write() == 0
    readme = (pages / "README.md").read_text()
    assert readme.startswith("title\n") and readme.endswith("tail\n") and "old" not in readme
    return readme, (pages / "docs" / "benchmarks.md").read_text()


def test_report_of_the_whole_matrix(pages: Path) -> None:
    records = synthetic()
    records[0]["peers"] |= {"jax": {"error": "OutOfMemory"}, "cub": {"unsupported": "CUB scans one dense row"}}
    records[1]["peers"]["torch"] |= {"error_of_tolerance": 9.0, "ratio": 4.97}
    records[2] |= {"measured": "after other work"}
    records[2]["peers"]["torch"] |= {"measured": "back to back"}
    readme, page = written(pages, [*records, {**describe(Case((9,), group="rows")), "error": "CUDAError: lost"}])
    assert "# x.flip(1).cumsum(1).flip(1): 5.0 times as fast\n" in readme
    assert "# (x * mask).cumsum(1): 2.5 times as fast\n" in readme
    text = " ".join(readme.split())
    assert "torch 9.9 / time of cuscan on one Some GPU, float32 (32768, 32768), measured back to back ([all" in text
    assert "![Share of copy speed of scans, by group](some-gpu-of-copy.svg)" in readme
    assert "farthest from a copy is float32 (2^20, 2) axis 0, add: 0.11 of copy speed. These are sizes" in text
    assert f"{len(MATRIX)} of {len(records)} fall short of what is required" in page
    assert (
        "| float32 (32768, 32768) axis 1 | add | 11 us | 18.2% | 11 us | 4000 | **0.77** | 0.85 | 2.50 x | failed |"
        in page
    )
    assert "4.97 x\\*" in page and "less exact" in page and "Failed: float32 (9), add: CUDAError: lost." in page
    assert "2.50 x†" in page and "marked † was measured back to back" in page
    for group in MATRIX:
        assert f"### {GROUPS[group].title}\n" in page
    for name in ("of-copy", "over-torch", "small"):
        assert f"../some-gpu-{name}.svg" in page
        assert (pages / f"some-gpu-{name}.svg").read_text().lstrip().startswith("<?xml")


def test_report_of_a_sample_and_what_is_drawn_beside_it(pages: Path) -> None:
    drawn = ["sample", "tasks", "shapes", "cliffs"]
    records = synthetic(["uses", *drawn])
    readme, page = written(pages, records)
    assert "(some-gpu-sample.svg)" in readme and "tuned for" not in readme
    worst = next(record for record in records if record["group"] == "sample")
    assert f"farthest from a copy is {worst['name']}: 0.72." in " ".join(readme.split())
    assert max(map(len, readme.splitlines())) <= 120
    assert "| input and result alike | 0 |" in page and "| transposing | 0 | 7 |" in page
    assert "| (B, T) | 11 us | 13 us | 11 us | 13 us | 11 us | 13 us | 17 |" in page
    assert "| calls | new, median | new, 99 % | again, median | again, 99 % | new, after 10000 more, median |" in page
    assert "thresholds; the 20 largest jumps" in page and "| one row of n | float32 (" in page
    assert "Not measured, and in none of these numbers: (32768, 32768) along the rows; One long row;" in page
    assert "../some-gpu-sample.svg" in page and page.count("### ") == 5
    assert "| routing | 36 |" in page and "| task | scans | worst | median | torch, median |" in page


def test_the_readme_takes_numbers_from_the_first_files_that_have_them(pages: Path) -> None:
    store.merge(pages / "a-gpu.json", {"gpu": "A GPU"}, "python -m benchmarks", synthetic(["sample"]))
    readme, _ = written(pages, synthetic(["uses", "sample"]))
    assert "(a-gpu-sample.svg)" in readme and "cuscan on one Some GPU" in " ".join(readme.split())


def test_the_readme_has_the_samples_of_all_gpus_and_the_picture_of_the_one_farthest_from_a_copy(pages: Path) -> None:
    store.merge(pages / "a-gpu.json", {"gpu": "A GPU"}, "python -m benchmarks", synthetic(["sample"]))
    slower = [{**record, "value": record["value"] / 2} for record in synthetic(["sample"])]
    text = " ".join(written(pages, slower)[0].split())
    assert "(some-gpu-sample.svg)" in text and "(a-gpu-sample.svg)" not in text
    for gpu, worst in {"A GPU": "0.72", "Some GPU": "0.36"}.items():
        assert f"{gpu}: of " in text and f": {worst}." in text.partition(f"{gpu}: of")[2]


def test_report_of_a_part(pages: Path) -> None:
    chosen = (Case((9, 9), axis=1, group="rows"), Case((99,), group="small", how="replay"))
    records = [record for case in chosen for step, record in measure(case, HOST, ["numpy"]) if step == "done"]
    readme, page = written(pages, records)
    assert "times as fast" not in readme and "# (x * mask).cumsum(1)\n" in readme
    assert "| float32 (9, 9) axis 1 | add |" in page and "Throughput was measured right after other work" in page
    assert "Nothing is required." in page
    left_out = page.partition("Not measured, and in none of these numbers: ")[2].partition(".**")[0].split("; ")
    assert left_out == [about.title for name, about in GROUPS.items() if name not in ("rows", "small")]


def test_the_first_call_without_a_kernel_on_disk_is_shown() -> None:
    (record,) = synthetic(["first"])
    text = tables.matrix([{**record, "cold": {"median_us": 912_000.0}}])
    assert "| median | spread | cold | ms more |" in text and "| 912 ms |" in text


def test_a_section_for_shards_on_ranks(tmp_path: Path) -> None:
    case = {"elements": 2**20, "single_us": 9.6, "allowed_us": 94.8}
    cases = [
        {"name": "add", "sharded_us": 90.0, "met": True, **case},
        {"name": "linear_recurrence", "sharded_us": 223.3, "met": False, **case},
    ]
    facts = {"gpu": "A GPU", "backend": "nccl", "torch": "2.11", "commit": "1234567", "ranks": 2, "cases": cases}
    (tmp_path / ranks_table.FOLDER).mkdir()
    for name in ("a-gpu", f"a-gpu{store.QUICK}"):  # the quick one is not shown
        (tmp_path / ranks_table.FOLDER / f"{name}.json").write_text(json.dumps(facts))
    (section,) = ranks_table.sections(tmp_path)
    assert "**2 x A GPU** (nccl, torch 2.11; commit 1234567)" in section
    rows = ["| add | 1,048,576 | 9.6 us | 90 us | 94.8 us |"]
    rows += ["| linear_recurrence | 1,048,576 | 9.6 us | 223 us | 94.8 us (over) |"]
    assert section.endswith("\n".join(rows))


def test_report_without_results(pages: Path) -> None:
    assert report.write() == 0
    assert "No results yet" in (pages / "docs" / "benchmarks.md").read_text()
    assert "times as fast" not in (pages / "README.md").read_text()


def test_pictures_are_reproducible(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    groups = tables.grouped({"records": synthetic(["uses", "small", "sample"])})
    one, two = (plots.draw(tmp_path / name / "gpu.json", groups, "Some GPU") for name in folders(tmp_path))
    assert set(one) == {"of-copy", "over-torch", "small", "sample"}
    assert [path.read_text() for path in one.values()] == [path.read_text() for path in two.values()]


def folders(parent: Path) -> list[str]:
    for name in ("one", "two"):
        (parent / name).mkdir()
    return ["one", "two"]


def test_markers_are_needed() -> None:
    with pytest.raises(ValueError, match="no markers"):
        report.replaced("nothing", "body", "headline")
