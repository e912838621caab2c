"""The tables of a result file, as Markdown."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks import cliffs, distribution, floors
from benchmarks.cases import GROUPS
from benchmarks.distribution import markdown
from cuscan.bench.measure import Record
from cuscan.bench.report import duration, ratio, share, spread
from cuscan.bench.timing import AFTER_WORK, BACK_TO_BACK

JUMPS = 20  # neighbours that are named


def grouped(results: dict[str, Any]) -> dict[str, list[Record]]:
    """The records of a result file that have times, by group, in the matrix's order."""
    shown = [record for record in results["records"] if "time" in record]
    groups = {group: [record for record in shown if record["group"] == group] for group in GROUPS}
    return {group: records for group, records in groups.items() if records}


def left_out(results: dict[str, Any]) -> str:
    """The groups that nobody measured: nothing is said of their cells, which may be the worst."""
    titles = [about.title for group, about in GROUPS.items() if group not in grouped(results)]
    return f"**Not measured, and in none of these numbers: {'; '.join(titles)}.**" if titles else ""


def about_all(results: dict[str, Any]) -> str:
    """What was measured, where, how and on what code."""
    facts, records = results["environment"], [each for group in grouped(results).values() for each in group]
    names = ("driver", "nvrtc", "nvcc", "cupy", "torch", "jax")
    versions = ", ".join(f"{name} {facts[name]}" for name in names if facts.get(name))
    where = f"**{facts.get('gpu') or 'NumPy on the CPU'}** ({versions}; {origins(results['records'])})."
    return " ".join(filter(None, [where, ways(records), _coverage(records)]))


def origins(records: list[dict[str, Any]]) -> str:
    """What code was measured, by its first commit, and on how many records of each group where there is more of it."""
    commits: dict[str, str] = {}
    groups: dict[str, Counter[str]] = {}
    for record in records:
        commit = record.get("commit") or "unknown"
        code = record.get("code") or commit
        commits.setdefault(code, commit)
        groups.setdefault(code, Counter())[record["group"]] += 1
    if len(groups) < 2:
        return f"commit {next(iter(commits.values()), 'unknown')}"
    all_of = sum(groups.values(), Counter())

    def named(group: str, count: int) -> str:
        return group if count == all_of[group] else f"{count} of {all_of[group]} {group}"

    return "; ".join(
        f"commit {commits[code]}: {', '.join(named(*item) for item in counts.items())}"
        for code, counts in groups.items()
    )


_WAYS = {
    AFTER_WORK: "right after other work, a copy of 128 MiB between other buffers, as users call",
    BACK_TO_BACK: "back to back, each run right after the same run on other buffers",
}


def ways(records: list[Record]) -> str:
    """How throughput was measured; records that do not say so are back to back."""
    counts = Counter(way(record) for record in records if record["how"] in ("stream", "carry", "sample"))
    if len(counts) < 2:
        return "".join(f"Throughput was measured {_WAYS[each]}; that of the copy alike." for each in counts)
    texts = [f"{count} of {counts.total()} were measured {_WAYS[each]}" for each, count in counts.items()]
    return f"Of the throughputs {', '.join(texts)}; those of the copy alike."


def way(record: Record) -> str:
    """How a record was measured."""
    return str(record.get("measured", BACK_TO_BACK))


def body(group: str, records: list[Record]) -> str:
    """A group's text and table."""
    tables: dict[str, Callable[[list[Record]], str]] = {
        "sample": distribution.section,
        "tasks": _tasks,
        "shapes": _shapes,
        "cliffs": _jumps,
        "training": _training,
    }
    if group in tables:
        return f"{GROUPS[group].meaning}\n\n{tables[group](records)}"
    return f"{GROUPS[group].meaning} {floors.verdict(records)}\n\n{matrix(records)}"


def matrix(records: list[Record]) -> str:
    """A table of one group of the matrix; a value below what is required is bold."""
    how, names = records[0]["how"], peers(records)
    scans = how in ("stream", "carry", "replay")
    others = [name for name in ("cold", "beside") if any(name in record for record in records)]
    middle = ["median", "spread", *(["copy", "GB/s"] if scans else []), *others]
    heads = ["array", "scan", *middle, floors.heading(how), "required", *names]
    lines = [heads, ["---", "---"] + ["---:"] * (len(heads) - 2)]
    for record in records:
        value, must = floors.reached(record), floors.number(record, record["must"])
        lines.append(
            [
                record["array"],
                record["call"].replace("|", "\\|") or record["scan"],
                *_times(record, scans),
                *(duration(record[name]["median_us"]) if name in record else "" for name in others),
                f"**{value}**" if floors.below(record) else value,
                must,
                *(_peer(record, record["peers"].get(name)) for name in names),
            ]
        )
    return markdown(lines)


def peers(records: Sequence[Record]) -> list[str]:
    """The peers that any record names."""
    return list(dict.fromkeys(peer for record in records for peer in record["peers"]))


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


def _coverage(records: list[Record]) -> str:
    """How many records each peer is in, and what the marks in the tables mean."""
    counts = [f"{peer} on {sum('ratio' in r['peers'].get(peer, {}) for r in records)}" for peer in peers(records)]
    text = "A peer's column says how many times as long it takes; where it is empty, nothing was measured: "
    text = f"{text}of {len(records)} scans, {', '.join(counts)}." if counts else ""
    if any(_off(result) for record in records for result in record["peers"].values()):
        text += " A result marked * is less exact than the check asks of cuscan."
    if any(_again(record, result) for record in records for result in record["peers"].values()):
        text += " One marked † was measured back to back, and is compared with a scan that was."
    return text


def _off(result: dict[str, Any]) -> bool:
    return bool(result.get("error_of_tolerance", 0) > 1)


def _again(record: Record, result: dict[str, Any]) -> bool:
    """Whether a peer was measured back to back where the scan was not."""
    return way(record) == AFTER_WORK and result.get("measured") == BACK_TO_BACK


# ---- tasks, training, new shapes and thresholds ----------------------------------------------------------------------


def _tasks(records: list[Record]) -> str:
    heads = ["task", "scans", "worst", "median", "torch, median"]
    lines = [heads, ["---", *["---:"] * 4]]
    for task in dict.fromkeys(record["label"] for record in records):
        chosen = [record for record in records if record["label"] == task]
        of = distribution.figures([float(record["value"]) for record in chosen])
        times = [times for record in chosen if (times := distribution.over_torch(record))]
        beside = ratio(statistics.median(times)) if times else ""
        lines.append([task, str(of.number), share(of.worst), share(of.median), beside])
    farthest = distribution.worst_first(records)[: distribution.WORST]
    return f"{markdown(lines)}\n\nThe {len(farthest)} farthest from a copy:\n\n{distribution.named(farthest)}"


def _training(records: list[Record]) -> str:
    names = peers(records)
    heads = ["what", "array", "median", "spread", "of it", "required", "peak memory", *names]
    lines = [heads, ["---", "---"] + ["---:"] * (len(heads) - 2)]
    for record in records:
        value, must = floors.reached(record), floors.number(record, record["must"])
        theirs = [_with_memory(record, record["peers"].get(name)) for name in names]
        what = [f"{record['label']}: {record['scan']}", record["array"], *_times(record, False)]
        lines.append([*what, f"**{value}**" if floors.below(record) else value, must, _mebibytes(record), *theirs])
    return f"{floors.verdict(records)}\n\n{markdown(lines)}"


def _with_memory(record: Record, result: dict[str, Any] | None) -> str:
    return " and ".join(filter(None, [_peer(record, result), _mebibytes(result or {})]))


def _mebibytes(result: dict[str, Any]) -> str:
    peak = result.get("peak_bytes")
    return "" if peak is None else f"{peak / 2**20:.0f} MiB"


def _shapes(records: list[Record]) -> str:
    parts = {"time": "new", "again": "again", "after": f"new, after {records[0]['filling']} more"}
    heads = [f"{text}, {figure}" for text in parts.values() for figure in ("median", "99 %")]
    heads += [f"kernels of {records[0]['calls']} calls", "general ones"]
    lines = [["calls", *heads], ["---", *["---:"] * len(heads)]]
    for record in records:
        times = [duration(record[part][f"{figure}_us"]) for part in parts for figure in ("median", "p99")]
        lines.append([record["label"], *times, str(record["kernels"]), str(record.get("general", ""))])
    return markdown(lines)


def _jumps(records: list[Record]) -> str:
    found = cliffs.jumps(records)
    shown = found[:JUMPS]
    for jump in found[JUMPS:]:
        if jump.sweep not in {each.sweep for each in shown}:
            shown.append(jump)
    lines = [["sizes", "from", "to", "of copy", "factor"], ["---", "---", "---", "---:", "---:"]]
    for jump in shown:
        sides = [f"{side['array']}, `{side['family']}`" for side in (jump.below, jump.above)]
        shares = " to ".join(share(float(side["value"])) for side in (jump.below, jump.above))
        lines.append([jump.sweep, *sides, shares, f"{jump.factor:.2f}"])
    text = f"{len(found)} thresholds; the {JUMPS} largest jumps, and the largest of each kind of size:"
    return f"{text}\n\n{markdown(lines)}"
