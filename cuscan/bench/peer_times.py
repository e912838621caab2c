"""Run a peer on a case: its first run, the error of its result, its times."""

from __future__ import annotations

import math
import time
from typing import Any

from cuscan.bench.buffers import Buffers
from cuscan.bench.cases import Case
from cuscan.bench.check import error_of
from cuscan.bench.machine import Machine, Run
from cuscan.bench.peer import UnsupportedError, Waiting
from cuscan.bench.providers import COMPILING, PEERS, as_arrays
from cuscan.bench.timing import AFTER_WORK, BACK_TO_BACK, REPLAYED, Timing, by_the_clock

PEER_SECONDS = 0.5  # for all samples of a peer
ONCE_SECONDS = 3.0  # a peer that takes longer runs only once

Ways = dict[str, Timing]  # by the way of measuring


def time_peer(name: str, case: Case, machine: Machine, sets: list[Buffers], ours: Ways) -> dict[str, Any]:
    """Return a peer's times and error, or the reason why there is none.

    Its time is measured like the first of `ours`, if possible: a library with a stream of its own runs back to back.
    """
    try:
        sets[0].spoil()
        runs = [PEERS[name](case, each) for each in sets]
        first, off = _first_run(runs[0], case, machine, sets[0])
        if math.isinf(off):
            return {"error": "its result is wrong"}
        times = _times(name, machine, runs, first, ours)
    except UnsupportedError as error:
        return {"unsupported": str(error)}
    except Exception as error:  # a peer's failure is a finding
        return {"error": one_line(error)}
    finally:
        machine.release()
    way = next(iter(times))
    others = {each: _beside(timing, ours[each]) for each, timing in times.items() if each != way}
    return {**_beside(times[way], ours[way]), "measured": way, **others, "error_of_tolerance": round(off, 3)}


def _beside(theirs: Timing, ours: Timing) -> dict[str, Any]:
    return {"time": theirs.as_json(), "ratio": round(theirs.median / ours.median, 4)}


def _first_run(run: Run, case: Case, machine: Machine, buffers: Buffers) -> tuple[float, float]:
    """Return the seconds of a peer's first run, and the error of its result as `check` defines it."""
    machine.synchronize()
    start = time.perf_counter()
    result = run()
    machine.synchronize()
    seconds = time.perf_counter() - start
    return seconds, error_of(case, machine.xp, buffers._replace(outs=as_arrays(result, buffers.outs, machine.xp)))


def _times(name: str, machine: Machine, runs: list[Run], first: float, ours: Ways) -> Ways:
    """Return the peer's time in each way of measuring that ours has."""
    if first > ONCE_SECONDS and name not in COMPILING and REPLAYED not in ours:
        return dict.fromkeys(ours, Timing((first * 1e6,), 1))
    run = runs[0]
    if isinstance(run, Waiting):
        return {BACK_TO_BACK: by_the_clock(runs, run.wait, PEER_SECONDS)}
    measures = {
        AFTER_WORK: lambda: machine.after_work([run], PEER_SECONDS)[0],
        BACK_TO_BACK: lambda: machine.time(runs, PEER_SECONDS),
        REPLAYED: lambda: machine.replay(run, by_torch=name.startswith("torch")),
    }
    return {way: measures[way]() for way in ours}


def one_line(error: BaseException) -> str:
    """Return an error as one line of a report."""
    text = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    kind = type(error).__name__
    return f"{kind}: {text}"[:300] if text else kind
