"""Result files as pictures, and as the text between the README's markers."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks import floors, plots, store
from benchmarks.cases import GROUPS
from cuscan.bench.measure import Record
from cuscan.bench.report import duration, ratio, spread
from cuscan.bench.timing import AFTER_WORK, BACK_TO_BACK

README = Path(__file__).parent.parent / "README.md"
MARKERS = {name: (f"<!-- {name}:begin -->", f"<!-- {name}:end -->") for name in ("headline", "benchmarks")}


def write() -> int:
    """Regenerate the README's tables from the result files, and the pictures beside them.

    The picture and the sentence that lead them stand between markers of their own, where the README has those.
    """
    paths = store.published()
    leads = [headline(path) for path in paths]
    tables = [section(path) for path in paths]
    text = README.read_text()
    if MARKERS["headline"][0] in text:
        text = replaced(text, leads[0] if leads else "", "headline")
    else:
        tables = [part for pair in zip(leads, tables, strict=True) for part in pair]
    body = "\n\n".join(tables) or "No results yet: `python -m benchmarks` writes them."
    README.write_text(replaced(text, body))
    return 0


def replaced(text: str, body: str, marker: str = "benchmarks") -> str:
    """A README's text with another body between two markers."""
    first, last = MARKERS[marker]
    head, begin, rest = text.partition(first)
    _, end, tail = rest.partition(last)
    if not (begin and end):
        raise ValueError(f"the README has no markers {first} and {last}")
    return f"{head}{first}\n\n{body}\n\n{last}{tail}"


def draw(path: Path) -> dict[str, Path]:
    """The pictures of a result file, by name."""
    results = store.load(path)
    return plots.draw(path, grouped(results), results["environment"].get("gpu") or "the CPU (NumPy)")


def grouped(results: dict[str, Any]) -> dict[str, list[Record]]:
    """The records of a result file that have times, by group, in the matrix's order."""
    shown = [record for record in results["records"] if "time" in record]
    groups = {group: [record for record in shown if record["group"] == group] for group in GROUPS}
    return {group: records for group, records in groups.items() if records}


def peers(records: list[Record]) -> list[str]:
    """The peers that any record names."""
    return list(dict.fromkeys(peer for record in records for peer in record["peers"]))


def headline(path: Path) -> str:
    """One picture, and the honest sentence: the cell that is farthest from a copy, and what misses its floor."""
    results = store.load(path)
    records = [record for group in grouped(results).values() for record in group]
    streams = [record for record in records if record["how"] == "stream"]
    if not streams:
        return floors.verdict(records)
    farthest = min(streams, key=lambda record: float(record["value"]))
    picture = _picture(draw(path)["of-copy"], "Share of copy speed of every cell, by group")
    verdict = f"The farthest from a copy is {floors.phrase(farthest)}. {floors.verdict(records, farthest)}"
    return f"{picture}\n\n{verdict}{_left_out(results)}"


def _left_out(results: dict[str, Any]) -> str:
    """The groups that nobody measured: nothing is said of their cells, which may be the worst."""
    titles = [about.title for group, about in GROUPS.items() if group not in grouped(results)]
    return f" **Not measured, and in none of these numbers: {'; '.join(titles)}.**" if titles else ""


def section(path: Path) -> str:
    """One GPU's tables and pictures."""
    results, pictures = store.load(path), draw(path)
    facts, groups = results["environment"], grouped(results)
    failed = [record for record in results["records"] if "error" in record]
    names = ("driver", "nvrtc", "nvcc", "cupy", "torch", "jax")
    versions = ", ".join(f"{name} {facts[name]}" for name in names if facts.get(name))
    parts = [
        f"**{facts['gpu'] or 'NumPy on the CPU'}** ({versions}; {_commits(results['records'])}; "
        "`python -m benchmarks`). A peer's column says how many times as long it takes. "
        f"{ways([record for records in groups.values() for record in records])} "
        f"{_coverage([record for records in groups.values() for record in records])}",
    ]
    if failed:
        parts.append("Failed: " + "; ".join(f"{record['name']}: {record['error']}" for record in failed) + ".")
    for name, text in (("over-torch", "Speed-up over torch, by group"), ("small", "Time of small scans")):
        if name in pictures:
            parts.append(_picture(pictures[name], text))
    for group, records in groups.items():
        about = GROUPS[group]
        body = f"{about.meaning} {floors.verdict(records)}\n\n{markdown(records)}"
        parts.append(f"<details><summary>{about.title}</summary>\n\n{body}\n\n</details>")
    return "\n\n".join(parts)


def _commits(records: list[dict[str, Any]]) -> str:
    """The commits that cells were measured at, and of how many cells of each group where there are several."""
    groups: dict[str, Counter[str]] = {}
    for record in records:
        groups.setdefault(record.get("commit") or "unknown", Counter())[record["group"]] += 1
    if len(groups) < 2:
        return f"commit {next(iter(groups), 'unknown')}"
    all_of = sum(groups.values(), Counter())

    def named(group: str, count: int) -> str:
        return group if count == all_of[group] else f"{count} of {all_of[group]} {group}"

    return "; ".join(
        f"commit {commit}: {', '.join(named(*item) for item in counts.items())}" for commit, counts in groups.items()
    )


_WAYS = {
    AFTER_WORK: "right after other work (a copy of 128 MiB between other buffers), as users call; a copy alike",
    BACK_TO_BACK: "back to back: each run right after the same run on other buffers; a copy alike",
}


def ways(records: list[Record]) -> str:
    """How throughput was measured; records that do not say so are back to back."""
    counts = Counter(_way(record) for record in records if record["how"] == "stream")
    if len(counts) == 1:
        return f"Throughput was measured {_WAYS[next(iter(counts))]}."
    return " ".join(f"{count} throughputs were measured {_WAYS[way]}." for way, count in counts.items())


def _way(record: Record) -> str:
    return str(record.get("measured", BACK_TO_BACK))


def _picture(path: Path, text: str) -> str:
    """A picture's Markdown."""
    return f"![{text}]({path.relative_to(README.parent).as_posix()})"


def _coverage(records: list[Record]) -> str:
    """On how many cells each peer was measured, and what the marks in the tables mean."""
    counts = [f"{peer} on {sum('ratio' in r['peers'].get(peer, {}) for r in records)}" for peer in peers(records)]
    text = f"An empty cell was not measured: of {len(records)} cells, {', '.join(counts)}." if counts else ""
    if any(_off(result) for record in records for result in record["peers"].values()):
        text += " A result marked * is less exact than the check asks of cuscan."
    if any(_again(record, result) for record in records for result in record["peers"].values()):
        text += " One marked † was measured back to back, and is compared with a scan that was."
    return text


def _again(record: Record, result: dict[str, Any]) -> bool:
    """Whether a peer was measured back to back where the scan was not."""
    return _way(record) == AFTER_WORK and result.get("measured") == BACK_TO_BACK


def _off(result: dict[str, Any]) -> bool:
    return bool(result.get("error_of_tolerance", 0) > 1)


def markdown(records: list[Record]) -> str:
    """A table of one group; a value below its floor is bold."""
    how, names = records[0]["how"], peers(records)
    scans = how in ("stream", "replay")
    middle = ["median", "spread", *(["copy", "GB/s"] if scans else [])]
    heads = ["array", "scan", *middle, floors.heading(how), "floor", *names]
    lines = [heads, ["---", "---"] + ["---:"] * (len(heads) - 2)]
    for record in records:
        value, must = floors.reached(record), floors.number(record, record["must"])
        lines.append(
            [
                record["array"],
                record["call"].replace("|", "\\|") or record["scan"],
                *_times(record, scans),
                f"**{value}**" if floors.below(record) else value,
                must,
                *(_peer(record, record["peers"].get(name)) for name in names),
            ]
        )
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _times(record: Record, scans: bool) -> list[str]:
    time = record["time"]
    shown = [duration(time["median_us"]), spread(time)]
    return [*shown, duration(record["copy"]["median_us"]), f"{record['gb_per_s']:.0f}"] if scans else shown


def _peer(record: Record, result: dict[str, Any] | None) -> str:
    if result is None:
        return ""
    if "ratio" not in result:
        return "failed" if "error" in result else "none"
    return ratio(result["ratio"]) + ("\\*" if _off(result) else "") + ("†" if _again(record, result) else "")
