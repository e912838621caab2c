"""The pictures of a result file: SVG files beside it."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import distribution
from benchmarks.cases import GROUPS
from benchmarks.distribution import over_torch
from cuscan.bench.measure import Record
from cuscan.bench.report import share

Figure = Any
OURS, THEIRS, FLOOR = "#0b6e4f", "#b0b0b0", "#c0392b"
LINES: dict[str, dict[str, Any]] = {
    "cuscan": {"color": OURS, "linewidth": 2.2},
    "copy": {"color": "black", "linestyle": ":"},
}


def draw(path: Path, groups: dict[str, list[Record]], where: str) -> dict[str, Path]:
    """Draw whatever there are records for; the pictures' paths by name."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "cuscan"  # the same records give the same file
    streams = {group: records for group, records in groups.items() if records[0]["how"] == "stream"}
    rivalled = {group: [r for r in records if over_torch(r)] for group, records in groups.items()}
    rivalled = {group: records for group, records in rivalled.items() if records}
    line = [record for record in groups.get("small", []) if len(record["shape"]) == 1]
    found = {}
    for name, records, picture in (
        ("of-copy", streams, _of_copy),
        ("over-torch", rivalled, _speed_up),
        ("small", line, _small),
        ("sample", groups.get("sample", []), _distribution),
    ):
        if records:
            found[name] = path.with_name(f"{path.stem}-{name}.svg")
            _save(found[name], picture, records, where)
    return found


def _save(path: Path, picture: Callable[[Any, Any, str], None], records: Any, where: str) -> None:
    from matplotlib import pyplot

    height = 1.3 + 0.42 * len(records) if isinstance(records, dict) else 4.2
    figure, axes = pyplot.subplots(figsize=(8, height), layout="constrained")
    picture(axes, records, where)
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def _strip(axes: Any, groups: dict[str, list[Record]], value: Callable[[Record], float | None], **style: Any) -> None:
    """A dot for each record, in a strip for each group; side by side in the order of the matrix."""
    for row, records in enumerate(groups.values()):
        shown = [(value(record), place) for place, record in enumerate(records)]
        dots = [(x, row + 0.56 * (place / max(len(records) - 1, 1) - 0.5)) for x, place in shown if x is not None]
        label = style.get("label") if row == 0 else None
        axes.scatter([x for x, _ in dots], [y for _, y in dots], **{"s": 13, **style, "label": label})


def _rows(axes: Any, groups: dict[str, list[Record]]) -> None:
    axes.set_yticks(range(len(groups)), [f"{GROUPS[group].title}  ({len(groups[group])})" for group in groups])
    axes.set_ylim(len(groups) - 0.4, -0.6)
    axes.grid(axis="x", linewidth=0.3)


def _of_copy(axes: Any, groups: dict[str, list[Record]], where: str) -> None:
    _strip(axes, groups, distribution.torch_share, color=THEIRS, label="torch")
    _strip(axes, groups, lambda record: record.get("must"), color=FLOOR, marker="|", s=26, label="required")
    _strip(axes, groups, lambda record: record["value"], color=OURS, label="cuscan")
    _rows(axes, groups)
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_xlim(0, max([1.05, *(1.02 * record["value"] for records in groups.values() for record in records)]))
    axes.set_xlabel("speed, as a share of a copy of the same bytes; a dot is one scan")
    axes.set_title(f"cuscan on {where}", fontsize=10, loc="left")
    axes.legend(fontsize=8, loc="lower right", bbox_to_anchor=(1, 1), ncols=3, frameon=False)


def _speed_up(axes: Any, groups: dict[str, list[Record]], where: str) -> None:
    _strip(axes, groups, over_torch, color=OURS)
    for row, records in enumerate(groups.values()):
        median = statistics.median(over_torch(record) or 0.0 for record in records)
        axes.plot([median, median], [row - 0.35, row + 0.35], color="black", linewidth=1)
    _rows(axes, groups)
    axes.set_xscale("log")
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_xlabel("time of torch / time of cuscan; a dot is one scan, a line the median")
    axes.set_title(f"Speed-up over torch on {where}", fontsize=10)


def _distribution(axes: Any, records: list[Record], where: str) -> None:
    memory = [record for record in records if not distribution.bounded(record)]
    theirs = [reached for record in memory if (reached := distribution.torch_share(record))]
    lines = {
        "cuscan, all": ([record["value"] for record in memory], {"color": OURS, "linewidth": 2.2}),
        "cuscan, plain sums": ([r["value"] for r in memory if distribution.plain(r)], {"color": OURS, "linewidth": 1}),
        "torch, plain sums": (theirs, {"color": THEIRS, "linewidth": 2.2}),
    }
    for label, (shares, style) in lines.items():
        if not shares:
            continue
        heights = [(place + 1) / len(shares) for place in range(len(shares))]
        axes.step(sorted(shares), heights, where="post", label=label, **style)
    worst = min(memory, key=lambda record: float(record["value"]))
    named = f"{share(worst['value'])}: {worst['name'].partition(': ')[2]}"
    axes.scatter([worst["value"]], [1 / len(memory)], color=FLOOR, s=16, zorder=3, label=named)
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_xscale("log")
    axes.set_xlabel("speed, as a share of a copy of the same bytes")
    axes.set_ylabel("share of scans that are no faster")
    axes.set_title(f"{len(memory)} random scans on {where}", fontsize=10, loc="left")
    axes.grid(linewidth=0.3)
    axes.legend(fontsize=8, loc="upper left", frameon=False)


def _small(axes: Any, records: list[Record], where: str) -> None:
    sizes = [record["shape"][0] for record in records]
    lines = {"copy": [record["copy"]["median_us"] for record in records]}
    for peer in dict.fromkeys(peer for record in records for peer in record["peers"]):
        times = [record["peers"].get(peer, {}).get("time") for record in records]
        lines[peer] = [float("nan") if time is None else time["median_us"] for time in times]
    lines["cuscan"] = [record["time"]["median_us"] for record in records]
    for name, times in lines.items():
        axes.plot(sizes, times, marker=".", label=name, **LINES.get(name, {}))
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xlabel("float32 elements")
    axes.set_ylabel("GPU time of one scan in a replayed graph, us")
    axes.set_title(f"Small inputs on {where}", fontsize=10)
    axes.grid(linewidth=0.3)
    axes.legend(fontsize=8)
