"""Measure one case, from its arrays to a record: yardstick, check, time, peers."""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections.abc import Iterator, Sequence
from typing import Any

from cuscan.bench import latency
from cuscan.bench.buffers import Buffers, make_buffers
from cuscan.bench.cases import Case
from cuscan.bench.check import check
from cuscan.bench.jax_scans import in_programs
from cuscan.bench.kernel import describe_kernel
from cuscan.bench.layouts import has_gaps
from cuscan.bench.machine import Machine
from cuscan.bench.new_shapes import shapes
from cuscan.bench.ours import run_cuscan, with_results
from cuscan.bench.peer_times import Ways, one_line, time_peer
from cuscan.bench.timing import AFTER_WORK, BACK_TO_BACK, REPLAYED, Timing
from cuscan.bench.training import train

Record = dict[str, Any]
MEMORY_FACTOR = 5  # for a peer's temporaries: flipped, masked and scanned copies beside the arrays
RIVALS = ("torch", "cub")  # small scans are compared with the better of them
WHOLE_BYTES = 64 << 20  # below this, `Case.slack_us` applies
LATENCY_US = 4.0  # tolerated time of a random scan beyond its copy
SPEED_BYTES = 1 << 30  # of the copy that determines copy speed


def describe(case: Case) -> Record:
    """Return the fields of a record that are known before measuring."""
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
        "view": str(case.view),
        "out": str(case.result_layout),
        "fresh": case.fresh,
        "decay": case.decay,
        "transposing": case.transposing,
        "label": case.label,
        "call": case.call,
        "must": case.must,
        "aim": case.aim,
        "peers": {},
    }


def measure(case: Case, machine: Machine, peers: Sequence[str]) -> Iterator[tuple[str, Record]]:
    """Measure a case, step by step.

    Yields the name of each step before the step runs, with the record so far, and ("done", record) at the end. Failures
    become `record["error"]`, or an "error" of the peer.
    """
    record, start = describe(case), time.perf_counter()
    wanted = [peer for peer in peers if case.peers is None or peer in case.peers]
    steps = _STEPS.get(case.how, _measure)
    try:
        yield from steps(case, machine, wanted, record)
    except Exception as error:  # one case must not end the run
        record["error"] = one_line(error)
    machine.release()
    record["seconds"] = round(time.perf_counter() - start, 2)
    yield "done", record


_STEPS = {"queue": latency.queue, "first": latency.first, "shapes": shapes, "train": train, "jax": in_programs}


def _measure(case: Case, machine: Machine, peers: Sequence[str], record: Record) -> Iterator[tuple[str, Record]]:
    yield "arrays", record
    buffers = make_buffers(case, machine)
    yield "kernel", record
    record |= describe_kernel(case, machine.target)
    yield "check", record
    buffers = with_results(case, buffers, run_cuscan(case, buffers)())
    record["error_of_tolerance"] = round(check(case, machine.xp, buffers), 3)
    yield "cuscan", record
    machine.release()
    way = {"replay": _replayed, "stream": _streamed, "sample": _sampled, "carry": _beside_another}[case.how]
    sets, copies, ours = way(case, machine, buffers)
    record |= _times(buffers.nbytes, copies, ours)
    record["must"] = _floor(case, machine, buffers.nbytes, next(iter(copies.values())))
    record["value"] = None if case.how == "replay" else record["of_copy"]
    if case.how == "sample":
        record["value"] = round((record["copy"]["median_us"] + LATENCY_US) / record["time"]["median_us"], 4)
    if BESIDE in copies:
        record["beside"] = copies[BESIDE].as_json()
        record["value"] = round(copies[BESIDE].median / ours[AFTER_WORK].median, 4)
    for peer in peers:
        yield peer, record
        record["peers"][peer] = time_peer(peer, case, machine, sets, ours)
        if case.how == "replay":
            record["value"] = _of_best_rival(record)


BESIDE = "beside"
# The buffers of all runs; times of the copy, and of another run for comparison; times of the scan.
Measured = tuple[list[Buffers], Ways, Ways]


def _replayed(case: Case, machine: Machine, buffers: Buffers) -> Measured:
    copy = machine.copy(buffers.nbytes, replayed=True)
    machine.release()
    buffers.spoil()
    timing = machine.replay(run_cuscan(case, buffers))
    check(case, machine.xp, buffers)
    return [buffers], {REPLAYED: copy}, {REPLAYED: timing}


def _streamed(case: Case, machine: Machine, buffers: Buffers) -> Measured:
    """Measure right after other work, and back to back."""
    _, copies, ours = _sampled(case, machine, buffers)
    copies[BACK_TO_BACK] = machine.copy(buffers.nbytes)
    machine.release()
    sets = [buffers, *(make_buffers(case, machine, seed) for seed in range(1, machine.turns(buffers.nbytes)))]
    ours[BACK_TO_BACK] = machine.time([run_cuscan(case, each) for each in sets])
    return sets, copies, ours


def _sampled(case: Case, machine: Machine, buffers: Buffers) -> Measured:
    """Measure right after other work, scan and yardstick in turn.

    For random scans with gaps, the yardstick reads the same layout; cases of the matrix are compared with a plain copy.
    """
    nbytes, values = buffers.nbytes, buffers.values[-1]
    gaps = case.how == "sample" and has_gaps(values)
    yardstick = machine.gather(values, nbytes) if gaps else machine.yardstick(nbytes)
    copy, timing = machine.after_work([yardstick.run, run_cuscan(case, buffers)])
    copy = copy.scaled(yardstick.factor)
    del yardstick
    machine.release()
    return [buffers], {AFTER_WORK: copy}, {AFTER_WORK: timing}


def _beside_another(case: Case, machine: Machine, buffers: Buffers) -> Measured:
    """Measure right after other work, in turn with the copy and with the run for comparison."""
    if case.carry == "total":
        other = machine.read(buffers.values).run
    else:
        other = run_cuscan(dataclasses.replace(case, carry=""), buffers)
    yardstick = machine.yardstick(buffers.nbytes)
    copy, beside, timing = machine.after_work([yardstick.run, other, run_cuscan(case, buffers)])
    return [buffers], {AFTER_WORK: copy.scaled(yardstick.factor), BESIDE: beside}, {AFTER_WORK: timing}


def _times(nbytes: int, copies: Ways, ours: Ways) -> Record:
    """Return the time fields of a record: those of the first way, and those of other ways under their names."""
    fields = {
        way: {
            "copy": copies[way].as_json(),
            "time": timing.as_json(),
            "gb_per_s": round(nbytes / timing.median / 1e3, 1),
            "of_copy": round(copies[way].median / timing.median, 4),
        }
        for way, timing in ours.items()
    }
    first = next(iter(ours))
    return {"bytes": nbytes, "measured": first, **fields.pop(first), **fields}


def _floor(case: Case, machine: Machine, nbytes: int, copy: Timing) -> float | None:
    """Return the lowest acceptable share of copy speed."""
    if case.must is None or not case.slack_us or nbytes >= WHOLE_BYTES:
        return case.must
    yardstick = machine.yardstick(SPEED_BYTES)
    speed = SPEED_BYTES / machine.after_work([yardstick.run])[0].median  # bytes per microsecond
    del yardstick
    machine.release()
    return round(copy.median / (nbytes / speed + case.slack_us), 4)


def _of_best_rival(record: Record) -> float | None:
    """Return our time relative to the fastest rival's."""
    ratios = [record["peers"][name]["ratio"] for name in RIVALS if "ratio" in record["peers"].get(name, {})]
    return round(1 / min(ratios), 4) if ratios else None


def largest_fitting(shape: tuple[int, int], nbytes: int, machine: Machine) -> tuple[int, int]:
    """Halve the shape along alternating axes until arrays of `nbytes` and a peer's temporaries fit, and return it."""
    rows, columns = shape
    for axis in itertools.cycle((0, 1)):
        if nbytes * MEMORY_FACTOR < machine.free_bytes():
            break
        nbytes //= 2
        rows, columns = (rows // 2, columns) if axis == 0 else (rows, columns // 2)
    return rows, columns
