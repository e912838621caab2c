"""What a record reached, in words, and against its floor."""

from __future__ import annotations

from collections.abc import Iterable

from cuscan.bench.measure import Record
from cuscan.bench.report import share

_SHORT = {
    "stream": "of copy",
    "carry": "of beside",
    "replay": "of best peer",
    "queue": "of the peer",
    "first": "ms more",
    "train": "of it",
    "jax": "of it",
}
_LONG = {
    "stream": "of copy speed",
    "carry": "of the speed beside",
    "replay": "times the best peer's time",
    "queue": "times the peer's host time",
    "first": "ms more than a CuPy kernel",
    "train": "times what it is held against",
    "jax": "times what it is held against",
}


def heading(how: str) -> str:
    """The name of what is reached, as the head of a column."""
    return _SHORT[how]


def number(record: Record, value: float | None) -> str:
    """A reached value or a floor, with its digits; empty where there is none."""
    if value is None:
        return ""
    return f"{value:.0f}" if record["how"] == "first" else share(value)


def margin(record: Record) -> float | None:
    """How far a record is above its floor: 1 is just reached, less is below. None where there is nothing to compare."""
    value, must = record.get("value"), record.get("must")
    if value is None or must is None:
        return None
    if record["how"] in ("stream", "carry"):
        return float(value / must)
    return float(must / value) if value > 0 else float("inf")


def below(record: Record) -> bool:
    """Whether a record misses its floor."""
    reached = margin(record)
    return reached is not None and reached < 1


def aimed(record: Record) -> bool:
    """Whether a record reaches its aim."""
    aim = record.get("aim")
    return aim is not None and not below({**record, "must": aim})


def worst_first(records: Iterable[Record]) -> list[Record]:
    """The records that have floors: the deepest below its own first."""
    return sorted((r for r in records if margin(r) is not None), key=lambda record: margin(record) or 0.0)


def reached(record: Record) -> str:
    """What a record reached, with digits enough to tell it from a floor that it misses."""
    text = number(record, record.get("value"))
    close = below(record) and text == number(record, record["must"])
    return f"{record['value']:.4f}" if close else text


def phrase(record: Record) -> str:
    """A record in one phrase: what it is, what it reached, its floor."""
    text = f"{record['name']}: {reached(record)} {_LONG[record['how']]}"
    if record.get("must") is None:
        return text
    return f"{text} ({'less than ' * below(record)}required: {number(record, record['must'])})"


def lowest(records: Iterable[Record], count: int = 10) -> list[str]:
    """Lines about the cells below their floors, and of the others the nearest, `count` at least."""
    judged = worst_first(records)
    return [f"{r['group']}: {phrase(r)}" for r in judged[: max(sum(map(below, judged)), count)]]


def spilling(records: Iterable[Record]) -> list[str]:
    """A line about every cell whose kernel spills registers."""
    found = []
    for record in records:
        kernel = record.get("kernel", {})
        stores, loads = kernel.get("spill_stores", 0), kernel.get("spill_loads", 0)
        if stores or loads:
            found.append(f"{record['group']}: {record['name']}: its kernel spills {stores} bytes, loads {loads}")
    return found


def verdict(records: Iterable[Record], named: Record | None = None) -> str:
    """How many records reach what is required and what is wanted, and the worst, unless it is named: one sentence."""
    judged = worst_first(records)
    if not judged:
        return "Nothing is required."
    if len(judged) == 1:
        return f"{phrase(judged[0])}."
    missed, at_aim = sum(map(below, judged)), sum(map(aimed, judged))
    if not missed:
        count, worst = f"All {len(judged)} reach what is required, {at_aim} what is wanted", "the nearest to it is"
    else:
        count = f"{missed} of {len(judged)} fall short of what is required, {at_aim} reach what is wanted"
        worst = "the farthest is"
    return f"{count}." if judged[0] is named else f"{count}; {worst} {phrase(judged[0])}."
