"""Processes that measure cases and may die doing so: cases go in on stdin, steps come out on stdout."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from cuscan.bench.buffers import untouched_buffers
from cuscan.bench.cases import Case
from cuscan.bench.find import find_machine
from cuscan.bench.measure import Record, describe, measure
from cuscan.bench.peer_times import one_line
from cuscan.bench.providers import COMPILING, PEERS

ROOT = Path(__file__).resolve().parent.parent
STEP_SECONDS = 75  # a step that takes longer hangs
COMPILING_SECONDS = 180  # the same for peers that compile
SPARE_BYTES = 12 << 30  # of GPU memory beside a case's arrays: the copy, and what the libraries need


def work(peers: Sequence[str]) -> int:
    """Be the worker: one line of JSON before every step, and one with "done" behind every case.

    Libraries keep memory that they no longer use: where a case lacks it, this process ends, and the next goes on.
    """
    machine = find_machine()
    for done, line in enumerate(sys.stdin.read().splitlines()):
        case = Case.from_json(json.loads(line))
        if done and machine.target and machine.free_bytes() < _bytes_of(case) + SPARE_BYTES:
            return 0
        for step, record in measure(case, machine, peers):
            try:
                machine.synchronize()
            except Exception as error:  # the GPU's context is lost, and this process with it
                print(one_line(error), file=sys.stderr)
                return 3
            print(json.dumps({"step": step, "record": record}), flush=True)
    return 0


def _bytes_of(case: Case) -> int:
    """Bytes of a case's arrays."""
    return sum(array.nbytes for array in untouched_buffers(case).arrays())


def run(cases: Sequence[Case], peers: Sequence[str]) -> Iterator[tuple[str, Record]]:
    """Measure cases in worker processes: yields the steps of `measure`, whatever happens in them.

    A case that kills or hangs its process is reported, and the next process goes on behind it.
    """
    left = list(cases)
    while left:
        before, step, record = len(left), "start", describe(left[0])
        with tempfile.TemporaryFile("w+") as errors:
            for step, record in _steps(left, peers, errors):
                yield step, record
                if step == "done":
                    left.pop(0)
            errors.seek(0)
            reason = ([line.strip() for line in errors if line.strip()] or ["no message"])[-1]
        if step != "done" or (left and len(left) == before):
            left.pop(0)
            yield "done", _crashed(step, record, reason)


def _steps(cases: Sequence[Case], peers: Sequence[str], errors: IO[str]) -> Iterator[tuple[str, Record]]:
    """The steps of one worker, until it ends or hangs."""
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": errors}
    alone = {**os.environ, "TORCHINDUCTOR_COMPILE_THREADS": "1"}  # processes of its own would outlive it, and its pipes
    with subprocess.Popen(_command(peers), cwd=ROOT, text=True, env=alone, **pipes) as child:
        assert child.stdin and child.stdout
        guard = _guard(child, "start")
        try:
            with contextlib.suppress(BrokenPipeError), child.stdin as pipe:
                pipe.write("".join(json.dumps(case.as_json()) + "\n" for case in cases))
            for line in child.stdout:
                if line.startswith('{"step"'):  # else a library's own output
                    guard.cancel()
                    message = json.loads(line)
                    guard = _guard(child, message["step"])
                    yield message["step"], message["record"]
        finally:
            guard.cancel()
            child.kill()


def _command(peers: Sequence[str]) -> list[str]:
    return [sys.executable, "-m", "benchmarks", "worker", "--against", ",".join(peers) or "none"]


def _guard(child: subprocess.Popen[str], step: str) -> threading.Timer:
    """A timer that ends a worker whose step hangs."""
    timer = threading.Timer(COMPILING_SECONDS if step in COMPILING else STEP_SECONDS, child.kill)
    timer.daemon = True
    timer.start()
    return timer


def _crashed(step: str, record: Record, reason: str) -> Record:
    """The record of a case whose process died in `step`."""
    text = f"its process died or hung: {reason}"[:300]
    if step in PEERS:
        return {**record, "peers": {**record["peers"], step: {"error": text}}}
    return {**record, "error": f"{step}: {text}"}
