"""Result files as plots, and as the tables between the README's markers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks import store
from benchmarks.cases import GROUPS, TITLES
from cuscan.bench.measure import Record
from cuscan.bench.report import duration, plot, ratio, share, spread

README = Path(__file__).parent.parent / "README.md"
BEGIN, END = "<!-- benchmarks:begin -->", "<!-- benchmarks:end -->"
HEADLINE = "rows"


def write() -> int:
    """Regenerate the README's tables from the result files, and the plots beside them."""
    paths = store.published()
    for path in paths:
        draw(path)
    body = "\n\n".join(section(path) for path in paths) or "No results yet: `python -m benchmarks` writes them."
    README.write_text(replaced(README.read_text(), body))
    return 0


def replaced(text: str, body: str) -> str:
    """A README's text with another body between the markers."""
    head, begin, rest = text.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"the README has no markers {BEGIN} and {END}")
    return f"{head}{BEGIN}\n\n{body}\n\n{END}{tail}"


def draw(path: Path) -> None:
    """Plot every group of a result file, as an SVG beside it."""
    results = store.load(path)
    for group, records in grouped(results).items():
        title = f"{TITLES[group]}: {results['environment']['gpu'] or 'NumPy'}"
        plot(plot_path(path, group), records, peers(records), title)


def plot_path(path: Path, group: str) -> Path:
    """Where the plot of a group lies."""
    return path.with_name(f"{path.stem}-{group}.svg")


def grouped(results: dict[str, Any]) -> dict[str, list[Record]]:
    """The records of a result file that have times, by group, in the matrix's order."""
    groups = {group: [r for r in results["records"] if r["group"] == group and "time" in r] for group in GROUPS}
    return {group: records for group, records in groups.items() if records}


def peers(records: list[Record]) -> list[str]:
    """The peers that any record names."""
    return list(dict.fromkeys(peer for record in records for peer in record["peers"]))


def section(path: Path) -> str:
    """One GPU's part of the README."""
    results = store.load(path)
    facts, groups = results["environment"], grouped(results)
    versions = ", ".join(
        f"{label} {facts[key]}"
        for key, label in (("driver", "driver"), ("nvrtc", "NVRTC"), ("cupy", "CuPy"), ("torch", "torch"))
        if facts.get(key)
    )
    worst = min((r for records in groups.values() for r in records), key=lambda r: float(r["of_copy"]))
    parts = [
        f"**{facts['gpu'] or 'NumPy on the CPU'}** ({versions}; commit {facts.get('commit') or 'unknown'}; "
        f"`{results['command']}`). *Of copy* is the time of a copy of the same bytes over the time of the scan; a "
        f"peer's column says how many times as long it takes. The farthest from a copy is {worst['name']}: "
        f"{share(worst['of_copy'])}.",
    ]
    for group, records in groups.items():
        body = markdown(records)
        if group == HEADLINE:
            name = plot_path(path, group).relative_to(README.parent).as_posix()
            parts.append(f"![Share of copy speed: {TITLES[group]}]({name})\n\n{body}")
        else:
            parts.append(f"<details><summary>{TITLES[group]}</summary>\n\n{body}\n\n</details>")
    return "\n\n".join(parts)


def markdown(records: list[Record]) -> str:
    """A table of one group."""
    names = peers(records)
    heads = ["array", "scan", "median", "spread", "GB/s", "of copy", *names]
    lines = [heads, ["---", "---"] + ["---:"] * (len(heads) - 2)]
    for record in records:
        time, results = record["time"], record["peers"]
        shown = [results.get(name, {}) for name in names]
        cells = ["failed" if "error" in one else ratio(one["ratio"]) if one else "" for one in shown]
        figures = [duration(time["median_us"]), spread(time), f"{record['gb_per_s']:.0f}", share(record["of_copy"])]
        lines.append([record["array"], record["scan"], *figures, *cells])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
