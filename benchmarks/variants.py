"""Measure other values of planning constants, on random scans.

    python -m benchmarks.variants "panels.LARGE=Blocks(1, 640, 4)" "panels.BULK_BYTES=128"

Each argument is a variant: assignments, joined by ";", to names in `cuscan.planning` or its modules, where the values
are evaluated. The scans are those of a sample, of sweeps (`cliffs.py`) or of everyday tasks (`tasks.py`), whose plans
a variant changes: random sizes are hardly ever those that people have. Their kernels are compiled first, side by side.
Each scan then runs with all of its plans. All must give the same bits; a scan whose bits differ is left out. The report
says how many times as fast each variant is.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib
import math
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from benchmarks import cliffs, prepare, sample
from benchmarks.cases import Scope
from benchmarks.cases import cases as cases_of
from cuscan.backends import repeats
from cuscan.bench.buffers import make_buffers
from cuscan.bench.cases import Case
from cuscan.bench.check import WrongResultError
from cuscan.bench.find import find_machine
from cuscan.bench.kernel import plan_of
from cuscan.bench.machine import Machine
from cuscan.bench.new_shapes import ANY_GPU
from cuscan.bench.ours import run_cuscan, with_results
from cuscan.kept import Table
from cuscan.planning.config import ScanPlan, Target

PLANNING = "cuscan.planning"
BUDGET_SECONDS = 0.02  # that a scan is timed for
MOVED = sample.MOVED[0], 1 << 30  # bytes that a scan moves: no more, so that many fit into a minute
MOVED_BY_A_CPU = 1 << 14, 1 << 18
ELEMENTS_ON_A_CPU = 1 << 21  # of an array of a task, at most


class Planned(NamedTuple):
    """A scan, and its plans: today's under the name "", and those of the variants that change it."""

    case: Case
    plans: dict[str, ScanPlan]


@contextlib.contextmanager
def applied(variant: str) -> Iterator[None]:
    """Give constants the values of a variant meanwhile, and forget what was planned."""
    before = []
    try:
        for assignment in filter(None, variant.split(";")):
            name, value = (part.strip() for part in assignment.split("=", 1))
            module_name, _, attribute = name.rpartition(".")
            module = importlib.import_module(f"{PLANNING}.{module_name}" if module_name else PLANNING)
            before.append((module, attribute, getattr(module, attribute)))
            setattr(module, attribute, eval(value, vars(module)))  # a contributor's own command line
        forget()
        yield
    finally:
        for module, attribute, value in before:
            setattr(module, attribute, value)
        forget()


def forget() -> None:
    """Empty the tables of planning, and of calls that are like earlier ones."""
    modules = [module for name, module in sys.modules.items() if name.startswith(PLANNING)]
    for kept in (value for module in (*modules, repeats) for value in vars(module).values()):
        if isinstance(kept, functools._lru_cache_wrapper):
            kept.cache_clear()
        elif isinstance(kept, Table):
            kept.clear()


def planned(cases: Sequence[Case], variants: Sequence[str], target: Target) -> list[Planned]:
    """The scans that some variant plans differently."""
    plans: list[dict[str, ScanPlan]] = [{} for _ in cases]
    for variant in ("", *variants):
        with applied(variant):
            for case, found in zip(cases, plans, strict=True):
                plan = plan_of(case, target)
                if plan not in found.values():
                    found[variant] = plan
    return [Planned(case, found) for case, found in zip(cases, plans, strict=True) if len(found) > 1]


def measured(scan: Planned, machine: Machine) -> dict[str, float]:
    """Microseconds by variant. Raises `WrongResultError` where results have other bits than today's."""
    buffers, times = make_buffers(scan.case, machine), {}
    expected: list[Any] = []
    for variant in scan.plans:
        with applied(variant):
            run = run_cuscan(scan.case, buffers)
            bits = [_words(out) for out in with_results(scan.case, buffers, run()).outs]
            expected = expected or [words.copy() for words in bits]
            if not all((words == today).all() for words, today in zip(bits, expected, strict=True)):
                raise WrongResultError(f"{scan.case.name}: other bits with {variant}")
            times[variant] = machine.after_work([run], BUDGET_SECONDS)[0].median
    return times


def _words(array: Any) -> Any:
    """The bits of an array, dense."""
    dense = array if array.flags.c_contiguous else array.copy("C")
    return dense.reshape(-1).view(f"uint{8 * math.gcd(array.dtype.itemsize, 8)}")


def table(times: dict[str, dict[str, float]]) -> Iterator[str]:
    """Lines: for each variant, how many times as fast it is as today's plans, and where least and most."""
    faster: dict[str, list[tuple[float, str]]] = defaultdict(list)
    for name, of_variant in times.items():
        for variant, time_us in of_variant.items():
            if variant:
                faster[variant].append((of_variant[""] / time_us, name))
    for variant, found in faster.items():
        mean = math.exp(statistics.fmean(math.log(ratio) for ratio, _ in found))
        yield f"{variant}: {mean:.3f} x as fast, in the geometric mean of {len(found)} scans"
        for word, (ratio, name) in (("least", min(found)), ("most", max(found))):
            yield f"  {word} {ratio:.2f} x: {name}"


def main() -> int:
    """Measure the variants of the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.variants", description=__doc__.partition("\n")[0])
    parser.add_argument("variants", nargs="+", metavar="VARIANT", help='"panels.LARGE=Blocks(1, 640, 4)"')
    parser.add_argument("--seed", type=int, default=0, help="of the random scans")
    parser.add_argument("--cases", type=int, default=sample.CASES, help="random scans to choose from")
    others = parser.add_mutually_exclusive_group()
    others.add_argument("--sweep", action="append", choices=cliffs.SWEEPS, help="its sizes, not random scans")
    others.add_argument("--tasks", action="store_true", help="scans of everyday tasks, not random ones")
    parser.add_argument("--family", help="only scans that this family runs today")
    parser.add_argument("--seconds", type=float, default=math.inf, help="stop after so many")
    options = parser.parse_args()
    until = time.monotonic() + options.seconds
    machine = find_machine()
    if options.tasks:
        cases = cases_of(["tasks"], Scope(limit=None if machine.target else ELEMENTS_ON_A_CPU))
    elif options.sweep:
        cases = [case for name in options.sweep for case in cliffs.cases_of(name)]
    else:
        cases = sample.sample(options.seed, options.cases, MOVED if machine.target else MOVED_BY_A_CPU)
    scans = planned(cases, options.variants, machine.target or ANY_GPU)
    if options.family:
        scans = [scan for scan in scans if scan.plans[""].config.family == options.family]
    if machine.target:
        kernels = {plan.config: (prepare.compile_kernel, plan.config) for scan in scans for plan in scan.plans.values()}
        for error in prepare.run(list(kernels.values()), machine.target.arch):
            if error:
                print(f"compiling: {error}")
    times: dict[str, dict[str, float]] = {}
    wrong = 0
    for scan in scans:
        if time.monotonic() > until:
            break
        try:
            times[scan.case.name] = measured(scan, machine)
        except WrongResultError as error:
            wrong += 1
            print(f"wrong: {error}", flush=True)
            continue
        finally:
            machine.release()
        print(f"{len(times)} of {len(scans)}: {scan.case.name}: {times[scan.case.name]}", flush=True)
    print("\n".join(table(times)))
    return int(wrong > 0)


if __name__ == "__main__":
    raise SystemExit(main())
