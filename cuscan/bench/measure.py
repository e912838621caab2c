"""One case from its arrays to a record: yardstick, check, time, peers."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from cuscan.bench.buffers import Buffers, make_buffers
from cuscan.bench.cases import Case
from cuscan.bench.check import check
from cuscan.bench.machine import Machine
from cuscan.bench.providers import PEERS, Provider, run_cuscan
from cuscan.bench.timing import Timing
from cuscan.interop import adopt
from cuscan.plan import make_plan
from cuscan.request import make_request

Record = dict[str, Any]
MEMORY_FACTOR = 5  # a peer's temporaries: flipped, masked and scanned copies beside the arrays


def describe(case: Case) -> Record:
    """The fields of a record that are known before measuring."""
    return {
        "name": case.name,
        "group": case.group,
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
        "view": case.view,
    }


def measure(case: Case, machine: Machine, peers: Sequence[str]) -> Iterator[tuple[str, Record]]:
    """Measure a case, step by step.

    Yields the name of each step before it is taken, with the record so far, and ("done", record)
    at the end. What goes wrong becomes `record["error"]`, or an "error" of the peer.
    """
    record = describe(case)
    try:
        yield from _measure(case, machine, peers, record)
    except Exception as error:  # one case must not end the run
        record["error"] = one_line(error)
    machine.release()
    yield "done", record


def _measure(case: Case, machine: Machine, peers: Sequence[str], record: Record) -> Iterator[tuple[str, Record]]:
    yield "arrays", record
    buffers = make_buffers(case, machine)
    nbytes = buffers.nbytes
    yield "check", record
    run_cuscan(case, buffers)()
    record["error_of_tolerance"] = round(check(case, machine.xp, buffers), 3)
    record["family"] = _family(case, machine, buffers)
    yield "copy", record
    machine.release()
    copy = machine.copy(nbytes)
    machine.release()
    yield "cuscan", record
    sets = [buffers, *(make_buffers(case, machine, seed) for seed in range(1, machine.turns(nbytes)))]
    timing = machine.time([run_cuscan(case, each) for each in sets])
    record |= {
        "bytes": nbytes,
        "copy": copy.as_json(),
        "time": timing.as_json(),
        "gb_per_s": round(nbytes / timing.median / 1e3, 1),
        "of_copy": round(copy.median / timing.median, 4),
        "peers": {},
    }
    for peer in peers:
        yield peer, record
        record["peers"][peer] = _peer(PEERS[peer], case, machine, sets, timing)


def _family(case: Case, machine: Machine, buffers: Buffers) -> str:
    """The kernel family that runs the case; "host" on the CPU."""
    if machine.target is None:
        return "host"
    x, mask, out = buffers.each(adopt)
    flags: dict[str, Any] = {"reverse": case.reverse, "exclusive": case.exclusive, "has_initial": False, "dtype": None}
    request = make_request(op=case.op, axis=case.axis, value=x, mask=mask, out=out, **flags)
    return make_plan(request, machine.target).config.family


def _peer(provider: Provider, case: Case, machine: Machine, sets: list[Buffers], ours: Timing) -> Record:
    """A peer's time, or why there is none."""
    try:
        timing = machine.time([provider(case, each) for each in sets])
    except Exception as error:  # a peer's failure is a finding
        return {"error": one_line(error)}
    finally:
        machine.release()
    return {"time": timing.as_json(), "ratio": round(timing.median / ours.median, 4)}


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
