"""The cost of training: time and memory of a layer's step, a backward relative to its scan, the host's share."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

import cuscan
from cuscan.bench.cases import Case
from cuscan.bench.check import WrongResultError
from cuscan.bench.latency import queue_times
from cuscan.bench.machine import Machine, Run
from cuscan.bench.peer_times import PEER_SECONDS, one_line
from cuscan.bench.torch_peer import two_steps

Record = dict[str, Any]
Tensor = Any
Recurrence = Callable[[Tensor, Tensor], Tensor]

ROUNDINGS = 16  # tolerance of a gradient, in roundings of the largest
LANES = 64  # number of lanes that are checked


def train(case: Case, machine: Machine, peers: Sequence[str], record: Record) -> Iterator[tuple[str, Record]]:
    """Fill a record with what `case.label` names: a "layer", a "backward", or host time ("host")."""
    ways = {"layer": _layer, "backward": _backward, "backward of b": _backward, "host": _host}
    yield from ways[case.label](case, machine, peers, record)


# ---- host time of forward and backward -------------------------------------------------------------------------------


def _host(case: Case, machine: Machine, peers: Sequence[str], record: Record) -> Iterator[tuple[str, Record]]:
    """Measure host time of forward and backward relative to torch's sum; for a recurrence, of gradients of a and b."""
    yield "cuscan", record
    torch = importlib.import_module("torch")
    x = torch.ones(case.shape, device=_device(machine), requires_grad=True)
    a, weights = torch.ones_like(x, requires_grad=True), torch.ones_like(x)
    scans: dict[str, Run] = {
        "add": lambda: torch.autograd.grad(cuscan.cumsum(x, 0), x, weights),
        "mul": lambda: torch.autograd.grad(cuscan.cumprod(x, 0), x, weights),
        "linear_recurrence": lambda: torch.autograd.grad(cuscan.linear_recurrence(a, x), (x, a), weights),
    }
    runs: list[Run] = [scans[case.op], lambda: torch.autograd.grad(torch.cumsum(x, 0), x, weights)]
    for run in runs:
        if float(run()[0][0]) != case.shape[0]:
            raise WrongResultError(f"{case.name}: the gradient of the first of {case.shape[0]} elements is wrong")
    ours, theirs = queue_times(runs, machine)
    record |= {
        "time": ours.as_json(),
        "peers": {"torch": {"time": theirs.as_json(), "ratio": round(theirs.median / ours.median, 4)}},
        "value": round(ours.median / theirs.median, 4),
    }


# ---- a backward relative to its forward scan -------------------------------------------------------------------------


def _backward(case: Case, machine: Machine, peers: Sequence[str], record: Record) -> Iterator[tuple[str, Record]]:
    """Measure the time of a backward relative to the forward scan, each right after other work."""
    yield "cuscan", record
    torch = importlib.import_module("torch")
    a, b, weights = (each.movedim(0, case.axis).contiguous() for each in _draw(case, machine, 3))
    wanted = [b.requires_grad_()] if case.op == "add" or case.label == "backward of b" else [a.requires_grad_(), b]
    b.requires_grad_()

    def scan() -> Tensor:
        return cuscan.cumsum(b, case.axis) if case.op == "add" else _recurrence(case.axis)(a, b)

    y = scan()

    def forward() -> Tensor:
        with torch.no_grad():
            return scan()

    def backward() -> Any:
        return torch.autograd.grad(y, wanted, weights, retain_graph=True)

    decay = torch.ones_like(b) if case.op == "add" else a
    expected = _gradients(*(_lanes(each, case.axis) for each in (decay, b, weights)))
    error = max(
        _error(_lanes(got, case.axis), exact, case) for got, exact in zip(backward()[::-1], expected, strict=False)
    )
    if error > 1:
        raise WrongResultError(f"{case.name}: a gradient is off by {error:.3g} times what is tolerated")
    scanned, ours = machine.after_work([forward, backward])
    record |= {"error_of_tolerance": round(error, 3), "time": ours.as_json(), "scan_time": scanned.as_json()}
    record["value"] = round(ours.median / scanned.median, 4)


def _gradients(a: Any, b: Any, weights: Any) -> tuple[Any, Any]:
    """Return the exact gradients of b and of a; time is the first axis."""
    of_b, of_a, later = np.zeros_like(b), np.zeros_like(b), np.zeros_like(b[0])
    before = np.zeros_like(b)
    for t in range(1, len(b)):
        before[t] = a[t - 1] * before[t - 1] + b[t - 1]
    for t in reversed(range(len(b))):
        of_b[t] = later = weights[t] + later
        of_a[t] = later * before[t]
        later = a[t] * later
    return of_b, of_a


# ---- a step of a layer -----------------------------------------------------------------------------------------------


def _layer(case: Case, machine: Machine, peers: Sequence[str], record: Record) -> Iterator[tuple[str, Record]]:
    """Measure time and peak memory of forward and backward of a gated recurrence."""
    yield "cuscan", record
    inputs = _layer_inputs(case, machine)
    torch = importlib.import_module("torch")
    part = [each.detach()[..., :LANES].double().cpu() for each in inputs]
    part = [each[:1] if each.ndim == 3 else each for each in part]
    exact = _step(_loop, part)()[0].numpy()[0]

    def measured(recurrence: Recurrence) -> Record:
        step = _step(recurrence, inputs)
        got = step()[0].detach()[0, :, :LANES].double().cpu().numpy()
        error = _error(got, exact, case)
        if error > 1:
            raise WrongResultError(f"the gradient of x is off by {error:.3g} times what is tolerated")
        machine.release()
        peak = _peak(step, torch) if machine.target else None
        time = machine.after_work([step], PEER_SECONDS)[0].as_json()
        return {"time": time, "peak_bytes": peak, "error_of_tolerance": round(error, 3)}

    ours = measured(_recurrence(1))
    record |= {**ours, "input_bytes": sum(each.nbytes for each in inputs), "value": None}
    for peer in peers:
        yield peer, record
        try:
            theirs = measured(_PEERS[peer]())
            theirs["ratio"] = round(theirs["time"]["median_us"] / ours["time"]["median_us"], 4)
        except Exception as error:  # a peer's failure is a finding
            theirs = {"error": one_line(error)}
        record["peers"][peer] = theirs
        machine.release()
    ratios = [each["ratio"] for each in record["peers"].values() if "ratio" in each]
    record["value"] = round(1 / min(ratios), 4) if ratios else None


def _layer_inputs(case: Case, machine: Machine) -> list[Tensor]:
    """Return x of (batch, time, channels), the gate's weights and biases, the output's weights, and a cotangent.

    Weights and biases are per channel.
    """
    torch = importlib.import_module("torch")
    generator = torch.Generator(_device(machine)).manual_seed(0)
    shapes = [case.shape, *[case.shape[-1:]] * 3, case.shape]
    where = {"device": _device(machine), "dtype": getattr(torch, case.dtype)}
    drawn = [torch.randn(shape, generator=generator, **where) for shape in shapes]
    return [each.requires_grad_() for each in drawn[:-1]] + drawn[-1:]


def _step(recurrence: Recurrence, inputs: Sequence[Tensor]) -> Callable[[], Any]:
    """Return forward and backward of h[t] = a[t] h[t - 1] + (1 - a[t]) x[t] with a = sigmoid(w x + c), gated again."""
    torch = importlib.import_module("torch")
    x, weight, bias, out, cotangent = inputs
    leaves = [each.detach().requires_grad_() for each in (x, weight, bias, out)]

    def layer(x: Tensor, weight: Tensor, bias: Tensor, out: Tensor) -> Tensor:
        a = torch.sigmoid(weight * x + bias)
        return recurrence(a, (1 - a) * x) * torch.nn.functional.silu(out * x)

    return lambda: torch.autograd.grad(layer(*leaves), leaves, cotangent)


def _peak(step: Callable[[], Any], torch: Any) -> int:
    """Return the most bytes that a step allocates, beyond those allocated before."""
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    step()
    torch.cuda.synchronize()
    return int(torch.cuda.max_memory_allocated() - before)


def _recurrence(axis: int) -> Recurrence:
    return lambda a, b: cuscan.linear_recurrence(a, b, axis=axis)


def _loop(a: Tensor, b: Tensor) -> Tensor:
    """Compute the recurrence step by step along the second of three axes."""
    torch = importlib.import_module("torch")
    h, results = torch.zeros_like(b[:, 0]), []
    for t in range(b.shape[1]):
        h = a[:, t] * h + b[:, t]
        results.append(h)
    return torch.stack(results, 1)


def _associative() -> Recurrence:
    """Return the recurrence by torch's associative_scan, in the mode whose derivatives are fastest: not compiled."""
    module = importlib.import_module("torch._higher_order_ops.associative_scan")

    def recurrence(a: Tensor, b: Tensor) -> Tensor:
        return module.associative_scan(two_steps, (a, b), 1, combine_mode="generic")[1]

    return recurrence


def _accelerated() -> Recurrence:
    """Return the recurrence of accelerated-scan, with time as the last axis."""
    try:
        module = importlib.import_module("accelerated_scan.scalar")
    except ModuleNotFoundError:  # the module's name in older versions
        module = importlib.import_module("accelerated_scan.triton")

    def recurrence(a: Tensor, b: Tensor) -> Tensor:
        return module.scan(*(each.transpose(1, 2).contiguous() for each in (a, b))).transpose(1, 2)

    return recurrence


_PEERS: dict[str, Callable[[], Recurrence]] = {"accelerated-scan": _accelerated, "torch": _associative}


# ---- arrays ----------------------------------------------------------------------------------------------------------


def _device(machine: Machine) -> str:
    return "cuda" if machine.target else "cpu"


def _draw(case: Case, machine: Machine, count: int) -> list[Tensor]:
    """Draw numbers from [0, 1), with the scanned axis first."""
    torch = importlib.import_module("torch")
    generator = torch.Generator(_device(machine)).manual_seed(0)
    where = {"device": _device(machine), "dtype": getattr(torch, case.dtype), "generator": generator}
    sizes = list(case.shape)
    sizes.insert(0, sizes.pop(case.axis))
    return [torch.rand(sizes, **where) for _ in range(count)]


def _lanes(tensor: Tensor, axis: int) -> Any:
    """Return some lanes as NumPy float64, time first."""
    front = tensor.detach().movedim(axis, 0)
    return front.reshape(len(front), -1)[:, :LANES].double().cpu().numpy()


def _error(got: Any, exact: Any, case: Case) -> float:
    """Return the largest error divided by the tolerance."""
    torch = importlib.import_module("torch")
    tolerated = ROUNDINGS * torch.finfo(getattr(torch, case.dtype)).eps * np.abs(exact).max()
    return float(np.abs(got - exact).max() / tolerated)
