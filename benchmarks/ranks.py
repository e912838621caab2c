"""Sharded scans on all GPUs of a host against one GPU's scan of its own shard, in the same run.

    torchrun --nproc-per-node 2 -m benchmarks.ranks          # NCCL; writes benchmarks/results/ranks/<GPU>.json
    torchrun --nproc-per-node 2 -m benchmarks.ranks --quick  # small; on the CPU through gloo

A sharded scan reads twice and writes once, so it takes at least `traffic` times as long as the scan of the shard. It
may take `SLACK` times that, and `EXCHANGE_US` for the exchange.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

import cuscan
import cuscan.distributed
from benchmarks import store
from benchmarks.ranks_table import EXCHANGE_US, FOLDER, SLACK
from cuscan.bench.environment import environment

REPEATS = 15

Call = Callable[[], Any]


class Case(NamedTuple):
    """A scan of shards of so many elements, and how its traffic is to that of the shard's own scan."""

    name: str
    elements: int
    traffic: float
    single: Call
    sharded: Call


def main() -> None:
    """Measure all cases on every rank; the first one writes what it found."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ranks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small shards, on the CPU where there is no GPU")
    parser.add_argument("--results", type=Path, default=store.RESULTS)
    options = parser.parse_args()
    on_gpu = torch.cuda.is_available()
    if not on_gpu and not options.quick:
        raise SystemExit("No CUDA GPU found; --quick measures NumPy through gloo.")
    dist.init_process_group("nccl" if on_gpu else "gloo")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    check(device)
    records = []
    for elements in (1 << 20,) if options.quick else (1 << 30, 1 << 26, 1 << 20):
        records += [measure(case, device) for case in cases(elements, device)]
    if dist.get_rank() == 0:
        facts = {**environment(), "ranks": dist.get_world_size(), "backend": dist.get_backend(), "cases": records}
        path = store.path_for(facts, quick=options.quick, folder=options.results / FOLDER)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(facts, indent=1) + "\n")
        for record in records:
            print(*record.values(), sep="\t")
    dist.destroy_process_group()


def cases(elements: int, device: torch.device) -> list[Case]:
    """The scans of shards of so many float32."""
    x, a = torch.rand(elements, device=device) - 0.5, torch.rand(elements, device=device)
    return [
        Case("add", elements, 3 / 2, lambda: cuscan.cumsum(x), lambda: cuscan.distributed.cumsum(x)),
        Case(
            "linear_recurrence",
            elements,
            5 / 3,
            lambda: cuscan.linear_recurrence(a, x),
            lambda: cuscan.distributed.linear_recurrence(a, x),
        ),
    ]


def check(device: torch.device) -> None:
    """The sums of random shards are right, to the bound of the docstring."""
    rank, length = dist.get_rank(), 100_000
    x = torch.randn(length, generator=torch.Generator().manual_seed(rank)).to(device)
    shards = [torch.empty_like(x) for _ in range(dist.get_world_size())]
    dist.all_gather(shards, x)
    whole, mine = torch.cat(shards).double(), slice(rank * length, (rank + 1) * length)
    error = (cuscan.distributed.cumsum(x).double() - whole.cumsum(0)[mine]).abs()
    bound = torch.finfo(torch.float32).eps * 33 * whole.abs().cumsum(0)[mine]
    if not (error <= bound).all():
        raise SystemExit(f"wrong sums on rank {rank}: off by {error.max()}")


def measure(case: Case, device: torch.device) -> dict[str, Any]:
    """The record of a case on this rank."""
    single, sharded = (_time(call, device) for call in (case.single, case.sharded))
    allowed = SLACK * case.traffic * single + EXCHANGE_US
    return {
        "name": case.name,
        "elements": case.elements,
        "single_us": round(single, 1),
        "sharded_us": round(sharded, 1),
        "allowed_us": round(allowed, 1),
        "met": sharded <= allowed,
    }


def _time(call: Call, device: torch.device) -> float:
    """Median microseconds; all ranks begin together."""
    together, seconds, events = torch.zeros(1, device=device), [], []
    for _ in range(3):
        call()
    for _ in range(REPEATS):
        dist.all_reduce(together)
        if device.type == "cuda":
            events.append([torch.cuda.Event(enable_timing=True) for _ in range(2)])
            events[-1][0].record()
            call()
            events[-1][1].record()
        else:
            start = time.perf_counter()
            call()
            seconds.append(time.perf_counter() - start)
    if device.type == "cuda":
        torch.cuda.synchronize()
        seconds = [one.elapsed_time(other) / 1e3 for one, other in events]
    return 1e6 * statistics.median(seconds)


if __name__ == "__main__":
    main()
