"""The cost of a call apart from its GPU time: host time, and the first call of a process."""

from __future__ import annotations

import gc
import importlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import cuscan
from cuscan.bench.cases import Case
from cuscan.bench.check import WrongResultError
from cuscan.bench.machine import Machine, Run
from cuscan.bench.timing import SAMPLES, Timing

Record = dict[str, Any]
CALLS = 200  # queued at a time: fewer than the driver holds without blocking
PROCESSES = 3  # of each kind; their median counts
PROCESS_SECONDS = 60


# ---- time to queue one call ------------------------------------------------------------------------------------------


def queue(case: Case, machine: Machine, peers: Sequence[str], record: Record) -> Iterator[tuple[str, Record]]:
    """Fill a record with the host time of one call, and of the same call of the library that owns the arrays."""
    yield "cuscan", record
    runs = call_pair(case, machine)
    for run in runs:
        last = float(run()[-1])
        if last != case.shape[0]:
            raise WrongResultError(f"{case.name}: the sum of {case.shape[0]} ones came out as {last}")
    ours, theirs = queue_times(runs, machine)
    library = case.call.partition(".")[0]
    record |= {
        "time": ours.as_json(),
        "peers": {library: {"time": theirs.as_json(), "ratio": round(theirs.median / ours.median, 4)}},
        "value": round(ours.median / theirs.median, 4),
    }


def call_pair(case: Case, machine: Machine) -> tuple[Run, Run]:
    """Return our call and the peer's, on a vector of ones of the library that `case.call` names."""
    library = case.call.partition(".")[0]
    xp = importlib.import_module(library)
    where = {"device": "cuda"} if library == "torch" and machine.target else {}
    x = xp.ones(case.shape[0], dtype=getattr(xp, case.dtype), **where)
    if "out=" not in case.call:
        return lambda: cuscan.scan(x, axis=0), lambda: xp.cumsum(x, 0)
    y, z = xp.empty_like(x), xp.empty_like(x)
    return lambda: cuscan.scan(x, axis=0, out=y), lambda: xp.cumsum(x, 0, out=z)


def queue_times(runs: Sequence[Run], machine: Machine) -> list[Timing]:
    """Return the host time of each run, over many calls and with no earlier work pending; the runs take turns."""
    samples: list[list[float]] = [[] for _ in runs]
    gc.collect()
    gc.disable()
    try:
        for _ in range(SAMPLES):
            for run, times in zip(runs, samples, strict=True):
                machine.synchronize()
                start = time.perf_counter()
                for _ in range(CALLS):
                    run()
                times.append((time.perf_counter() - start) * 1e6 / CALLS)
        machine.synchronize()
    finally:
        gc.enable()
    return [Timing(tuple(times), CALLS) for times in samples]


# ---- the first call of a process -------------------------------------------------------------------------------------

_SCRIPT = """\
import time
import numpy
import {library} as xp
{imports}
x = xp.asarray(numpy.ones({size}, numpy.{dtype}))
wait = xp.cuda.Device().synchronize if hasattr(xp, "cuda") else list
wait()
start = time.perf_counter()
y = {call}
wait()
print(time.perf_counter() - start, float(y[-1]))
"""


def first(case: Case, machine: Machine, peers: Sequence[str], record: Record) -> Iterator[tuple[str, Record]]:
    """Fill a record with the times of a process's first scan, and of another process's first elementwise kernel.

    The scan's kernel is on disk; "cold" is the time without it, with compilation.
    """
    library = "cupy" if machine.target else "numpy"
    scan: dict[str, Any] = {"imports": "import cuscan", "call": "cuscan.scan(x)", "expected": case.shape[0]}
    kernel: dict[str, Any] = {"imports": "", "call": "x + x", "expected": 2}
    times: dict[str, list[float]] = {"scan": [], "kernel": [], "cold": []}
    for process in range(1 + PROCESSES):
        for name, parts in (("scan", scan), ("kernel", kernel), ("cold", scan)):
            yield f"{name}, process {process}", record
            with tempfile.TemporaryDirectory() as folder:
                cache = {"CUSCAN_CACHE_DIR": folder} if name == "cold" else {}
                seconds = first_call(library=library, size=case.shape[0], dtype=case.dtype, cache=cache, **parts)
            if process:  # the first process may have filled the caches on disk
                times[name].append(seconds * 1e6)
    ours, theirs, cold = (Timing(tuple(each), 1) for each in times.values())
    record |= {
        "time": ours.as_json(),
        "cold": cold.as_json(),
        "peers": {library: {"time": theirs.as_json(), "ratio": round(theirs.median / ours.median, 4)}},
        "value": round((statistics.median(times["scan"]) - statistics.median(times["kernel"])) / 1e3, 3),
    }


def first_call(*, expected: float, cache: dict[str, str] | None = None, **parts: Any) -> float:
    """Return the seconds of a call in a new process, after the imports and the creation of its input."""
    command = [sys.executable, "-c", _SCRIPT.format(**parts)]
    root = Path(cuscan.__file__).parent.parent
    settings: dict[str, Any] = {"cwd": root, "env": {**os.environ, **(cache or {})}, "timeout": PROCESS_SECONDS}
    done = subprocess.run(command, capture_output=True, text=True, check=False, **settings)
    if done.returncode:
        raise RuntimeError((done.stderr.strip().splitlines() or ["no message"])[-1])
    seconds, last = map(float, done.stdout.split())
    if last != expected:
        raise WrongResultError(f"{parts['call']}: {last} instead of {expected}")
    return seconds
