"""What random scans reach: the figures of a sample, and its tables."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from cuscan.bench.measure import Record
from cuscan.bench.report import duration, ratio, share

WORST = 20  # scans that are named


class Figures(NamedTuple):
    """Of some shares of copy speed."""

    number: int
    worst: float
    p5: float
    p25: float
    median: float
    p75: float
    geometric_mean: float


def figures(shares: Sequence[float]) -> Figures:
    """The figures of at least one share."""
    if len(shares) == 1:
        return Figures(1, *list(shares) * 6)
    quantiles = statistics.quantiles(shares, n=20, method="inclusive")
    mean = math.exp(statistics.fmean(map(math.log, shares)))
    return Figures(len(shares), min(shares), quantiles[0], quantiles[4], quantiles[9], quantiles[14], mean)


def bounded(record: Record) -> bool:
    """Whether arithmetic is what bounds a scan, not memory: nothing else does."""
    return record["op"] in ("matrix_product", "modular_product") or (record["op"], record["dtype"]) == (
        "logaddexp",
        "float64",
    )


def seed_of(record: Record) -> str:
    """The seed that drew a record."""
    return str(int(record["label"].partition("/")[0], 16))


def plain(record: Record) -> bool:
    """Whether it is a plain forward sum, which torch is measured beside."""
    return "torch" in record["peers"]


def parts(records: Sequence[Record]) -> dict[str, list[Record]]:
    """The records that figures are given of, by what they have in common."""
    memory = [record for record in records if not bounded(record)]
    straight = [record for record in memory if not record["transposing"]]
    found = {
        "input and result alike": straight,
        "transposing": [record for record in memory if record["transposing"]],
        "last axis": [record for record in straight if record["axis"] == len(record["shape"]) - 1],
        "other axes": [record for record in straight if record["axis"] != len(record["shape"]) - 1],
        "plain sums": [record for record in straight if plain(record)],
    }
    for family in sorted({record["family"] for record in straight}):
        found[f"`{family}`"] = [record for record in straight if record["family"] == family]
    found["bounded by arithmetic"] = [record for record in records if bounded(record)]
    return {name: chosen for name, chosen in found.items() if chosen}


def over_torch(record: Record) -> float | None:
    """How many times as long torch takes."""
    found = record["peers"].get("torch", {}).get("ratio")
    return None if found is None else float(found)


def torch_share(record: Record) -> float | None:
    """The share that torch reaches."""
    times = over_torch(record)
    return None if times is None else float(record["value"]) / times


def section(records: Sequence[Record]) -> str:
    """All tables of a sample; the records have values."""
    bound = worst_first(filter(bounded, records))
    farthest = worst_first(record for record in records if not bounded(record))[:WORST]
    texts = [f"{_seeds(records)}.", _summary(records), _beside_torch(records)]
    texts.append(f"The {len(farthest)} farthest from a copy:\n\n{named(farthest)}")
    if bound:
        texts.append(f"Bounded by arithmetic, in none of the figures above but their own:\n\n{named(bound)}")
    return "\n\n".join(texts)


def headline(records: Sequence[Record], gpu: str) -> str:
    """The figures of all seeds together, and the worst scan."""
    straight = parts(records)["input and result alike"]
    of = figures([float(record["value"]) for record in straight])
    worst = worst_first(record for record in records if not bounded(record))[0]
    return (
        f"{gpu}: of {of.number} random scans whose input and result lie alike, half reach {share(of.median)} of copy "
        f"speed or more, and 95 % {share(of.p5)}. Of all, the farthest from a copy is {worst['name']}: "
        f"{share(worst['value'])}."
    )


def median(records: Sequence[Record]) -> float:
    """The median share of copy speed of scans whose input and result lie alike."""
    return statistics.median(float(record["value"]) for record in parts(records)["input and result alike"])


def _seeds(records: Sequence[Record]) -> str:
    counts: dict[str, int] = {}
    for record in records:
        counts[seed_of(record)] = counts.get(seed_of(record), 0) + 1
    return "; ".join(f"seed {seed}: {count} scans" for seed, count in counts.items())


def worst_first(records: Iterable[Record]) -> list[Record]:
    """The records, those with the lowest shares first."""
    return sorted(records, key=lambda record: float(record["value"]))


def _summary(records: Sequence[Record]) -> str:
    """The figures of each part: of all seeds together, then of each."""
    heads = ["scans", "seed", "number", "worst", "5 %", "25 %", "median", "75 %", "geometric mean"]
    lines = [heads, ["---", "---", *["---:"] * 7]]
    seeds = list(dict.fromkeys(map(seed_of, records)))
    for name, chosen in parts(records).items():
        for seed in seeds:
            values = [float(record["value"]) for record in chosen if seed_of(record) == seed]
            if values:
                number, *rest = figures(values)
                lines.append([name, seed, str(number), *map(share, rest)])
    return markdown(lines)


def _beside_torch(records: Sequence[Record]) -> str:
    """How plain sums compare with torch's; those that are slower, by name."""
    measured = [record for record in records if over_torch(record)]
    if not measured:
        return "No plain sum was measured beside torch."
    times = sorted(over_torch(record) or 0.0 for record in measured)
    slower = worst_first(record for record in measured if (over_torch(record) or 0.0) < 1)
    text = (
        f"Of {len(measured)} plain sums {len(slower)} are slower than torch's; torch takes {ratio(times[0])} as long "
        f"at least, {ratio(statistics.median(times))} in the median, {ratio(times[-1])} at most."
    )
    return f"{text}\n\nSlower than torch:\n\n{named(slower)}" if slower else text


def named(records: Sequence[Record]) -> str:
    """A table of some scans."""
    lines = [["scan", "of copy", "time", "copy", "kernel", "torch"], ["---", *["---:"] * 3, "---", "---:"]]
    for record in records:
        times = over_torch(record)
        lines.append(
            [
                record["name"],
                share(record["value"]),
                duration(record["time"]["median_us"]),
                duration(record["copy"]["median_us"]),
                record["family"],
                ratio(times) if times else "",
            ]
        )
    return markdown(lines)


def markdown(lines: Sequence[Sequence[str]]) -> str:
    """A table."""
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
