"""One case from its arrays to a record: yardstick, check, time, peers."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterator, Sequence
from typing import Any

from cuscan.bench import latency
from cuscan.bench.buffers import Buffers, make_buffers
from cuscan.bench.cases import Case
from cuscan.bench.check import check, error_of
from cuscan.bench.kernel import describe_kernel
from cuscan.bench.machine import Machine, Run
from cuscan.bench.ours import run_cuscan
from cuscan.bench.peer import UnsupportedError, Waiting
from cuscan.bench.providers import COMPILING, PEERS, as_arrays
from cuscan.bench.timing import Timing, by_the_clock

Record = dict[str, Any]
MEMORY_FACTOR = 5  # a peer's temporaries: flipped, masked and scanned copies beside the arrays
PEER_SECONDS = 0.5  # for all samples of a peer
ONCE_SECONDS = 3.0  # a peer that takes longer is not run again
RIVALS = ("torch", "cub")  # the better of them is what small scans are held against
WHOLE_BYTES = 64 << 20  # what moves fewer has `Case.slack_us`
SPEED_BYTES = 1 << 30  # of the copy that gives copy speed


def describe(case: Case) -> Record:
    """The fields of a record that are known before measuring."""
    return {
        "name": case.name,
        "group": case.group,
        "how": case.how,
        "array": case.array,
        "scan": case.scan,
        "shape": list(case.shape),
        "axis": case.axis % len(case.shape),
        "dtype": case.dtype,
        "result": case.result_dtype.name,
        "op": case.op,
        "reverse": case.reverse,
        "exclusive": case.exclusive,
        "masked": case.masked,
        "skipna": case.skipna,
        "include_initial": case.include_initial,
        "segments": case.segments,
        "split": case.split,
        "view": case.view,
        "call": case.call,
        "must": case.must,
        "aim": case.aim,
        "peers": {},
    }


def measure(case: Case, machine: Machine, peers: Sequence[str]) -> Iterator[tuple[str, Record]]:
    """Measure a case, step by step.

    Yields the name of each step before it is taken, with the record so far, and ("done", record)
    at the end. What goes wrong becomes `record["error"]`, or an "error" of the peer.
    """
    record, start = describe(case), time.perf_counter()
    wanted = [peer for peer in peers if case.peers is None or peer in case.peers]
    steps = {"queue": latency.queue, "first": latency.first}.get(case.how, _measure)
    try:
        yield from steps(case, machine, wanted, record)
    except Exception as error:  # one case must not end the run
        record["error"] = one_line(error)
    machine.release()
    record["seconds"] = round(time.perf_counter() - start, 2)
    yield "done", record


def _measure(case: Case, machine: Machine, peers: Sequence[str], record: Record) -> Iterator[tuple[str, Record]]:
    replayed = case.how == "replay"
    yield "arrays", record
    buffers = make_buffers(case, machine)
    nbytes = buffers.nbytes
    yield "kernel", record
    record |= describe_kernel(case, machine.target)
    yield "check", record
    run_cuscan(case, buffers)()
    record["error_of_tolerance"] = round(check(case, machine.xp, buffers), 3)
    yield "copy", record
    machine.release()
    copy = machine.copy(nbytes, replayed=replayed)
    machine.release()
    yield "cuscan", record
    others = range(1, 1 if replayed else machine.turns(nbytes))
    sets = [buffers, *(make_buffers(case, machine, seed) for seed in others)]
    runs = [run_cuscan(case, each) for each in sets]
    if replayed:
        buffers.spoil()
    timing = machine.replay(runs[0]) if replayed else machine.time(runs)
    if replayed:
        check(case, machine.xp, buffers)
    record |= {
        "bytes": nbytes,
        "copy": copy.as_json(),
        "time": timing.as_json(),
        "gb_per_s": round(nbytes / timing.median / 1e3, 1),
        "of_copy": round(copy.median / timing.median, 4),
        "must": _floor(case, machine, nbytes, copy),
        "value": None if replayed else round(copy.median / timing.median, 4),
    }
    for peer in peers:
        yield peer, record
        record["peers"][peer] = _peer(peer, case, machine, sets, timing)
        if replayed:
            record["value"] = _of_best_rival(record)


def _floor(case: Case, machine: Machine, nbytes: int, copy: Timing) -> float | None:
    """The least share of copy that will do."""
    if case.must is None or not case.slack_us or nbytes >= WHOLE_BYTES:
        return case.must
    speed = SPEED_BYTES / machine.copy(SPEED_BYTES).median  # bytes a microsecond
    machine.release()
    return round(copy.median / (nbytes / speed + case.slack_us), 4)


def _of_best_rival(record: Record) -> float | None:
    """Our time over the shortest of the rivals'."""
    ratios = [record["peers"][name]["ratio"] for name in RIVALS if "ratio" in record["peers"].get(name, {})]
    return round(1 / min(ratios), 4) if ratios else None


def _peer(name: str, case: Case, machine: Machine, sets: list[Buffers], ours: Timing) -> Record:
    """A peer's time and error, or why there is none."""
    try:
        sets[0].spoil()
        runs = [PEERS[name](case, each) for each in sets]
        first, off = _first_run(runs[0], case, machine, sets[0])
        if math.isinf(off):
            return {"error": "its result is wrong"}
        timing = _peer_timing(name, case, machine, runs, first)
    except UnsupportedError as error:
        return {"unsupported": str(error)}
    except Exception as error:  # a peer's failure is a finding
        return {"error": one_line(error)}
    finally:
        machine.release()
    ratio = round(timing.median / ours.median, 4)
    return {"time": timing.as_json(), "ratio": ratio, "error_of_tolerance": round(off, 3)}


def _first_run(run: Run, case: Case, machine: Machine, buffers: Buffers) -> tuple[float, float]:
    """Seconds of a peer's first run, and the error of its result, as `check` counts it."""
    machine.synchronize()
    start = time.perf_counter()
    result = run()
    machine.synchronize()
    seconds = time.perf_counter() - start
    return seconds, error_of(case, machine.xp, buffers._replace(outs=as_arrays(result, buffers.outs, machine.xp)))


def _peer_timing(name: str, case: Case, machine: Machine, runs: list[Run], first: float) -> Timing:
    if case.how == "replay":
        return machine.replay(runs[0], by_torch=name.startswith("torch"))
    if first > ONCE_SECONDS and name not in COMPILING:
        return Timing((first * 1e6,), 1)
    if isinstance(runs[0], Waiting):
        return by_the_clock(runs, runs[0].wait, PEER_SECONDS)
    return machine.time(runs, PEER_SECONDS)


def one_line(error: BaseException) -> str:
    """An error as one line of a report."""
    text = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    kind = type(error).__name__
    return f"{kind}: {text}"[:300] if text else kind


def largest_fitting(shape: tuple[int, int], nbytes: int, machine: Machine) -> tuple[int, int]:
    """The shape, halved along alternating axes until arrays of `nbytes` and a peer's temporaries fit."""
    rows, columns = shape
    for axis in itertools.cycle((0, 1)):
        if nbytes * MEMORY_FACTOR < machine.free_bytes():
            break
        nbytes //= 2
        rows, columns = (rows // 2, columns) if axis == 0 else (rows, columns // 2)
    return rows, columns
