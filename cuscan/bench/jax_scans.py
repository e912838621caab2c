"""The cost of scans in programs of JAX: host time, GPU time, a training step. Functions here import jax."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

import cuscan
from cuscan.bench.cases import Case
from cuscan.bench.check import WrongResultError
from cuscan.bench.machine import Machine, Run
from cuscan.bench.peer import UnsupportedError
from cuscan.bench.peer_times import PEER_SECONDS, one_line
from cuscan.bench.timing import BUDGET_SECONDS, Timing, by_the_clock

Record = dict[str, Any]
Array = Any
Recurrence = Callable[[Array, Array], Array]

SCANS = 16  # in one program
HOST_US = 20.0  # limit of host time per scan
CALLS = 8, 24  # numbers of calls queued at a time to measure GPU time by their difference
ROUNDINGS = 4.0  # tolerance of gradients computed in another way, in roundings of the largest


def in_programs(case: Case, machine: Machine, peers: Sequence[str], record: Record) -> Iterator[tuple[str, Record]]:
    """Fill a record with what `case.label` names: time on the "host", time on the "GPU", or a "training" step."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # otherwise it takes most of the GPU's memory
    if machine.target is not None and not _sees_gpu():
        raise UnsupportedError("JAX sees no GPU: install its CUDA build, as pip install 'jax[cuda12]' does")
    ways = {"host": _host, "GPU": _gpu, "training": _training}
    yield from ways[case.label](case, machine, peers, record)


def _sees_gpu() -> bool:
    import jax

    return bool(jax.default_backend() == "gpu")


def _time(run: Run, budget: float = BUDGET_SECONDS) -> Timing:
    """Time a run by the clock, since JAX has a stream of its own."""
    import jax

    return by_the_clock([run], jax.block_until_ready, budget)


# ---- one scan --------------------------------------------------------------------------------------------------------


def _host(case: Case, machine: Machine, peers: Sequence[str], record: Record) -> Iterator[tuple[str, Record]]:
    """Measure the time of each of many small scans in one program, relative to its limit."""
    import jax

    yield "cuscan", record
    x = jax.numpy.arange(case.shape[0], dtype=case.dtype)

    def program(scans: int) -> Run:
        scan = cuscan.cummin  # of its own result, repeatedly
        return functools.partial(jax.jit(lambda x: functools.reduce(lambda y, _: scan(y), range(scans), x[::-1])), x)

    if not np.array_equal(program(SCANS)(), np.arange(case.shape[0])[::-1]):
        raise WrongResultError(f"{case.name}: the minima of a sequence that descends are not the sequence")
    one, many = _time(program(1)), _time(program(1 + SCANS))
    each = Timing(tuple((time - one.median) / SCANS for time in many.samples), many.launches * SCANS)
    record |= {"time": each.as_json(), "one": one.as_json(), "value": round(each.median / HOST_US, 4)}


def _gpu(case: Case, machine: Machine, peers: Sequence[str], record: Record) -> Iterator[tuple[str, Record]]:
    """Measure the time of a scan in a program, relative to the same scan of the machine's own arrays."""
    import jax

    yield "cuscan", record
    program = jax.jit(functools.partial(cuscan.cumsum, axis=case.axis))
    y = jax.numpy.ones(case.shape, case.dtype)
    ends = np.asarray(program(y).max(axis=case.axis))
    if not (ends == case.shape[case.axis]).all():
        raise WrongResultError(f"{case.name}: sums of ones end with {ends.min()} to {ends.max()}")
    eager = machine.time([functools.partial(cuscan.cumsum, machine.xp.ones(case.shape, case.dtype), axis=case.axis)])
    machine.release()
    ours = _queued(lambda: program(y))
    record |= {"time": ours.as_json(), "eager": eager.as_json(), "value": round(ours.median / eager.median, 4)}
    for peer in peers:
        yield peer, record
        theirs = _queued(functools.partial(jax.jit(functools.partial(jax.lax.cumsum, axis=case.axis % y.ndim)), y))
        record["peers"][peer] = {"time": theirs.as_json(), "ratio": round(theirs.median / ours.median, 4)}


def _queued(run: Run) -> Timing:
    """Return the time that a call adds to several queued calls: the GPU's time, if the GPU is the slower part.

    The host's time before the GPU begins, and until it learns of the end, is the same for few calls as for many.
    """
    few, many = CALLS

    def queue(calls: int) -> Any:
        for _ in range(calls - 1):
            run()
        return run()

    shorter = _time(functools.partial(queue, few), PEER_SECONDS).median
    longer = _time(functools.partial(queue, many), PEER_SECONDS).samples
    return Timing(tuple(time - shorter for time in longer), 1).divided(many - few)


# ---- a training step -------------------------------------------------------------------------------------------------


def _training(case: Case, machine: Machine, peers: Sequence[str], record: Record) -> Iterator[tuple[str, Record]]:
    """Measure value and gradient of a gated recurrence in one program, relative to the best method of `jax.lax`."""
    yield "cuscan", record
    inputs = _inputs(case)
    expected = _gradient(_step_by_step, [each[:, :, :8].astype("float32") for each in inputs])

    def measured(recurrence: Recurrence) -> Record:
        program = _program(recurrence).lower(*inputs).compile()
        got = _largest(program(*inputs)[1][0][:, :, :8], expected)
        if got > 1:
            raise WrongResultError(f"the gradient is off by {got:.3g} times what is tolerated")
        time = _time(lambda: program(*inputs), PEER_SECONDS)
        peak = program.memory_analysis().temp_size_in_bytes
        return {"time": time.as_json(), "peak_bytes": int(peak), "error_of_tolerance": round(got, 3)}

    record |= {**measured(by_cuscan), "value": None}
    for peer in peers:
        for name, way in _WAYS.items():
            yield name, record
            try:
                theirs = measured(way)
                theirs["ratio"] = round(theirs["time"]["median_us"] / record["time"]["median_us"], 4)
            except Exception as error:  # a peer's failure is a finding
                theirs = {"error": one_line(error)}
            if (
                theirs.get("ratio", np.inf) < record["peers"].get(peer, {}).get("ratio", np.inf)
                or peer not in record["peers"]
            ):
                record["peers"][peer] = {**theirs, "way": name}
    ratios = [each["ratio"] for each in record["peers"].values() if "ratio" in each]
    record["value"] = round(1 / min(ratios), 4) if ratios else None


def _inputs(case: Case) -> list[Array]:
    import jax

    keys = jax.random.split(jax.random.key(0), 2)
    return [jax.random.normal(key, case.shape, case.dtype) for key in keys]


def _program(recurrence: Recurrence) -> Any:
    """Return a program for value and gradient of h[t] = a[t] h[t - 1] + (1 - a[t]) x[t] with a = sigmoid(w)."""
    import jax

    def loss(w: Array, x: Array) -> Array:
        gate = jax.nn.sigmoid(w)
        return (recurrence(gate, (1 - gate) * x).astype("float32") ** 2).sum()

    return jax.jit(jax.value_and_grad(loss, (0, 1)))


def _gradient(recurrence: Recurrence, inputs: Sequence[Array]) -> Any:
    return np.asarray(_program(recurrence)(*inputs)[1][0], np.float32)


def _largest(got: Array, expected: Any) -> float:
    """Return the largest error of a gradient divided by the tolerance."""
    import jax

    eps = float(jax.numpy.finfo(got.dtype).eps)
    return float(np.abs(np.asarray(got, np.float32) - expected).max() / (ROUNDINGS * eps * np.abs(expected).max()))


def by_cuscan(a: Array, b: Array) -> Array:
    """Compute the recurrence h[t] = a[t] h[t - 1] + b[t] along axis 1."""
    return cuscan.linear_recurrence(a, b, axis=1)


def _by_pairs(a: Array, b: Array) -> Array:
    import jax

    def combine(earlier: Any, later: Any) -> Any:
        return later[0] * earlier[0], later[0] * earlier[1] + later[1]

    return jax.lax.associative_scan(combine, (a, b), axis=1)[1]


def _step_by_step(a: Array, b: Array) -> Array:
    import jax

    def step(h: Array, inputs: Any) -> Any:
        h = inputs[0] * h + inputs[1]
        return h, h

    moved = (jax.numpy.moveaxis(each, 1, 0) for each in (a, b))
    return jax.numpy.moveaxis(jax.lax.scan(step, jax.numpy.zeros_like(b[:, 0]), tuple(moved))[1], 0, 1)


_WAYS = {"jax.lax.associative_scan": _by_pairs, "jax.lax.scan": _step_by_step}
