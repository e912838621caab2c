"""The CPU path beside the NumPy ufunc, or the same loop in Numba: `python -m benchmarks --group cpu`.

Both are timed in turn, in CPU time of the thread, which is the wall's on a quiet machine and does not count what other
processes do; of the runs of each the shortest counts.
"""

from __future__ import annotations

import importlib.util
import json
import os
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import cuscan
from benchmarks import store
from benchmarks.cpu_calls import small_calls
from benchmarks.distribution import markdown
from cuscan.bench.environment import version
from cuscan.bench.report import duration

Array = np.ndarray[Any, Any]
Call = Callable[..., Array]

FILE = Path("numpy", "ratios.json")  # of the folder of results
SMALL, LARGE = 100, 10**6  # elements
SECONDS = 3.0  # that a cell is timed for
SHARE = 0.01  # of elements at which a segment starts
MOST = {"call": 30e-6, "exact": 1.5, "float": 3.0, "loop": 10.0}  # seconds of a small call; times as long as the peer
NOT_COMPILED = "Numba is not installed"
NO_PEER = "nothing alike"


class Cell(NamedTuple):
    """A call, what it is compared with (None where that is not there), and which of `MOST` it may take."""

    name: str
    kind: str
    ours: Call
    peer: Call | None


def cells(small: int = SMALL, large: int = LARGE) -> Iterator[Cell]:
    """All that is measured."""
    rng = np.random.default_rng(0)
    loops = _compiled() if importlib.util.find_spec("numba") else {}
    for call in small_calls(rng, small, loops):
        yield Cell(call.name, "call", call.ours, call.peer)
    for op, ufunc, dtypes, kind in _UFUNCS:
        for dtype in dtypes.split():
            x = _numbers(rng, large, dtype, near_one=op == "mul")
            ours, peer = partial(cuscan.scan, x, op, dtype=dtype), partial(ufunc.accumulate, x, dtype=dtype)
            yield Cell(f"{op}, {dtype}", kind, ours, peer)
    yield from _loops(rng, large, loops)


_UFUNCS = (
    ("add", np.add, "int8 int32 int64 uint64", "exact"),
    ("mul", np.multiply, "int64", "exact"),
    ("max", np.maximum, "int32 int64 float32 float64", "exact"),
    ("add", np.add, "float16 float32 float64 complex64 complex128", "float"),
    ("mul", np.multiply, "float32 float64 complex64 complex128", "float"),
)


def _loops(rng: np.random.Generator, n: int, loops: dict[str, Call]) -> Iterator[Cell]:
    reset, never = rng.random(n) < SHARE, np.zeros(n, np.bool_)

    def cell(name: str, loop: str, function: Call, *arrays: Array, flags: Array | None = reset) -> Cell:
        peer = partial(loops[loop], *arrays, never if flags is None else flags) if loops else None
        return Cell(f"{name}, {arrays[-1].dtype}", "loop", partial(function, *arrays, reset=flags), peer)

    for dtype in ("float32", "float64", "complex64"):
        a, b = _numbers(rng, n, dtype, near_one=True) * np.array(0.9, dtype), _numbers(rng, n, dtype)
        yield cell("recurrence", "recurrence", cuscan.linear_recurrence, a, b, flags=None)
        yield cell("recurrence with reset", "recurrence", cuscan.linear_recurrence, a, b)
    for dtype in ("int64", "float32", "float64"):
        x = _numbers(rng, n, dtype)
        yield cell("add in segments", "add", cuscan.cumsum, x)
        yield cell("max in segments", "max", cuscan.cummax, x)


def _numbers(rng: np.random.Generator, n: int, dtype: str, *, near_one: bool = False) -> Array:
    x = 1 + rng.normal(size=n) / 1000 if near_one else rng.normal(size=n) * 30
    return x.astype(dtype)


def _compiled() -> dict[str, Call]:
    """The loops of a recurrence, of sums and of maxima in segments."""
    import numba

    @numba.njit  # type: ignore[untyped-decorator]
    def recurrence(a: Array, b: Array, reset: Array) -> Array:
        out = np.empty_like(b)
        state = b[0] * 0
        for i in range(b.size):
            state = b[i] if reset[i] else a[i] * state + b[i]
            out[i] = state
        return out

    @numba.njit  # type: ignore[untyped-decorator]
    def sums(x: Array, reset: Array) -> Array:
        out = np.empty_like(x)
        state = x[0] * 0
        for i in range(x.size):
            state = x[i] if reset[i] else state + x[i]
            out[i] = state
        return out

    @numba.njit  # type: ignore[untyped-decorator]
    def maxima(x: Array, reset: Array) -> Array:
        out = np.empty_like(x)
        state = x[0]
        for i in range(x.size):
            state = x[i] if reset[i] else max(state, x[i])
            out[i] = state
        return out

    return {"recurrence": recurrence, "add": sums, "max": maxima}


def measure(cell: Cell, seconds: float = SECONDS) -> dict[str, Any]:
    """A record of one cell: results are compared before anything is timed."""
    got = cell.ours()
    record: dict[str, Any] = {"name": cell.name, "kind": cell.kind, "elements": got.size}
    calls = [cell.ours]
    if cell.peer is None:
        record["missing"] = NOT_COMPILED if cell.kind == "loop" else NO_PEER
    else:
        _compare(got, cell.peer())
        calls.append(cell.peer)
    times = _in_turn(calls, seconds)
    record["time"] = min(times[0])
    record["spread"] = statistics.median(times[0]) / record["time"]
    if cell.peer is not None:
        record["peer"] = min(times[1])
    return record


def _compare(got: Array, expected: Array) -> None:
    if got.dtype.kind in "fc":
        scale = max(float(np.abs(expected).max()), 1.0)
        eps = float(np.finfo(expected.dtype).eps)
        close = scale * eps * (32 + got.size**0.5 * 8)
        np.testing.assert_allclose(got.astype(np.complex128), expected.astype(np.complex128), rtol=0, atol=close)
    else:
        np.testing.assert_array_equal(got, expected)


def _in_turn(calls: list[Call], seconds: float) -> list[list[float]]:
    """Seconds of each run of each call, a few runs of one and then as many of the other."""
    times: list[list[float]] = [[] for _ in calls]
    count = 100 if calls[0]().size <= SMALL else 1
    until = time.monotonic() + seconds
    while not times[0] or time.monotonic() < until:
        for call, found in zip(calls, times, strict=True):
            start = time.thread_time()
            for _ in range(count):
                call()
            found.append((time.thread_time() - start) / count)
    return times


def value_of(record: dict[str, Any]) -> float | None:
    """What a record is judged by: the seconds of a small call, else how many times as long as the peer it takes."""
    if record["kind"] == "call":
        return float(record["time"])
    return record["time"] / record["peer"] if "peer" in record else None


def is_over(record: dict[str, Any]) -> bool:
    """Whether a record is above what it may be."""
    value = value_of(record)
    return value is not None and value > MOST[record["kind"]]


_PEERS = {
    "call": "NumPy, or the loop in Numba",
    "exact": "the ufunc",
    "float": "the ufunc",
    "loop": "the loop in Numba",
}


def table(records: list[dict[str, Any]]) -> str:
    """The records as Markdown."""
    rows = []
    for record in records:
        most = MOST[record["kind"]]
        limit = f"{most * 1e6:.0f} us" if record["kind"] == "call" else f"{most:g} x"
        ratio = f"{record['time'] / record['peer']:.2f} x" if "peer" in record else record["missing"]
        peer = f"{duration(record['peer'] * 1e6)} ({_PEERS[record['kind']]})" if "peer" in record else ""
        over = " (over)" if is_over(record) else ""
        rows.append(
            [record["name"], f"{record['elements']:,}", duration(record["time"] * 1e6), peer, ratio, limit + over]
        )
    head = ["scan", "elements", "time", "beside", "ratio", "at most"]
    return markdown([head, ["---", "---:", "---:", "---:", "---:", "---:"], *rows])


def section(path: Path | None = None) -> str:
    """The page's section; empty where nothing was measured."""
    path = path or store.RESULTS / FILE
    if not path.exists():
        return ""
    results = json.loads(path.read_text())
    facts, records = results["environment"], results["records"]
    over = [record["name"] for record in records if is_over(record)]
    verdict = f"Over: {'; '.join(over)}." if over else "None is over."
    about = (
        f"**{facts['cpu']}** (NumPy {facts['numpy']}, Numba {facts['numba'] or 'not installed'}; commit "
        f"{facts['commit']}). `{results['command']}`; CPU time of one thread, the shortest of runs in turn. {verdict} "
        f"Other processes kept {facts['load']:.1f} of {facts['cores']} cores busy meanwhile."
    )
    return "\n\n".join(["## NumPy arrays on the CPU", about, table(records)])


def run(facts: dict[str, Any], command: str, path: Path, seconds: float = SECONDS) -> int:
    """Measure all cells, write the result file, and print the table; 1 where a cell is over its limit."""
    load, records = [], []
    for cell in cells():
        records.append(measure(cell, seconds / 3 if cell.kind == "call" else seconds))  # which are many, and short
        load.append(os.getloadavg()[0])
    kept = {name: facts.get(name) for name in ("python", "cuscan", "numpy", "commit", "code")}
    about = {"cpu": _cpu(), "numba": version("numba"), "cores": os.cpu_count(), **kept}
    about["load"] = max(statistics.mean(load) - 1, 0)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"environment": about, "command": command, "records": records}, indent=1) + "\n")
    print(section(path))
    return int(any(map(is_over, records)))


def _cpu() -> str:
    """The processor's name, where Linux tells it."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return next((line.partition(": ")[2] for line in lines if line.startswith("model name")), "a CPU")
