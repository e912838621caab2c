"""Records as a table in the terminal, as a plot, and as JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from cuscan.bench.measure import Record


def table(records: list[Record], peers: list[str], title: str) -> Any:
    """Return a rich table: one row per record, one column per peer."""
    from rich.table import Table

    grid = Table(title=title, title_justify="left")
    grid.add_column("array")
    grid.add_column("scan")
    for heading in ("median", "spread", "GB/s", "of copy", *peers):
        grid.add_column(heading, justify="right", no_wrap=True)
    for record in records:
        grid.add_row(
            record["array"], record["call"] or record["scan"], *_cells(record), *(_peer(record, peer) for peer in peers)
        )
    return grid


def _cells(record: Record) -> list[str]:
    if "time" not in record:
        return ["failed", "", "", ""]
    time = record["time"]
    shown = [duration(time["median_us"]), spread(time)]
    if "of_copy" not in record:
        return [*shown, "", ""]
    rate = f"{record['gb_per_s']:.0f}" if record["gb_per_s"] >= 10 else f"{record['gb_per_s']:.1f}"
    return [*shown, rate, share(record["of_copy"])]


def _peer(record: Record, peer: str) -> str:
    result = record.get("peers", {}).get(peer)
    if result is None:
        return ""
    if "ratio" not in result:
        return "failed" if "error" in result else "none"
    return ratio(result["ratio"])


def duration(microseconds: float) -> str:
    """Return a time with three digits and its unit."""
    for unit, size in (("s", 1e6), ("ms", 1e3)):
        if microseconds >= size:
            return f"{microseconds / size:.3g} {unit}"
    return f"{microseconds:.3g} us"


def spread(time: dict[str, float]) -> str:
    """Return the distance of the quartiles as a share of the median."""
    return f"{(time['p75_us'] - time['p25_us']) / time['median_us']:.1%}"


def share(value: float) -> str:
    """Return a share of copy speed as text."""
    return f"{value:.2f}" if value >= 0.1 else f"{value:.1g}"


def ratio(value: float) -> str:
    """Return how many times as long a peer takes, as text."""
    return f"{value:.0f} x" if value >= 10 else f"{value:.2f} x"


def failures(records: list[Record]) -> list[str]:
    """Return one line for every failure."""
    lines = [f"{record['name']}: {record['error']}" for record in records if "error" in record]
    for record in records:
        for peer, result in record.get("peers", {}).items():
            if "ratio" not in result:
                reason = result.get("error") or result["unsupported"]
                lines.append(f"{peer}, {record['name']}: {reason}")
    return lines


def write_json(path: Path, environment: dict[str, Any], command: str, records: list[Record]) -> None:
    """Write a result file atomically; if the process is killed, the old file remains."""
    head = json.dumps({"environment": environment, "command": command}, indent=1).removesuffix("\n}")
    lines = ",\n".join(map(json.dumps, records))  # one record per line
    part = path.with_name(f"{path.name}.part")
    part.write_text(f'{head},\n "records": [\n{lines}\n ]\n}}\n')
    part.replace(path)


def plot(path: Path, records: list[Record], peers: list[str], title: str) -> None:
    """Plot the share of copy speed of every record, for cuscan and the peers; the suffix selects the format."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    shown = [record for record in records if "time" in record][::-1]
    who = ["cuscan", *peers]
    height = 0.8 / len(who)
    figure, axes = pyplot.subplots(figsize=(9, 1.2 + 0.28 * len(shown) * max(len(who), 2) / 2), layout="constrained")
    for place, name in enumerate(who):
        heights = [row + 0.4 - height * (place + 0.5) for row in range(len(shown))]
        axes.barh(heights, [_of_copy(record, name) for record in shown], height, label=name)
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_yticks(range(len(shown)), [record["name"] for record in shown], fontsize=8)
    axes.set_xlim(0, max([1.05, *(record["of_copy"] * 1.05 for record in shown)]))
    axes.set_xlabel("speed, as a share of a copy of the same bytes")
    axes.set_title(title, fontsize=10)
    axes.legend(fontsize=8, loc="lower right")
    figure.savefig(path)
    pyplot.close(figure)


def _of_copy(record: Record, name: str) -> float:
    if name == "cuscan":
        return float(record["of_copy"])
    result = record.get("peers", {}).get(name, {})
    return record["of_copy"] / result["ratio"] if result.get("ratio") else 0.0
