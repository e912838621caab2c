"""`python -m benchmarks`: measure; `python -m benchmarks report`: write docs/benchmarks.md and the README's numbers."""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import math
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import cpu, floors, prepare, report, sample, store, tables, worker
from benchmarks.cases import GROUPS, MATRIX, Scope, cases, runnable
from cuscan.bench.cases import Case
from cuscan.bench.cub_peer import nvcc
from cuscan.bench.environment import devices, environment
from cuscan.bench.measure import Record
from cuscan.bench.new_shapes import ANY_GPU
from cuscan.bench.providers import PACKAGES, PEERS
from cuscan.bench.report import failures, table
from cuscan.cli import peers
from cuscan.planning.config import Target

CPU = "cpu"  # the group of what needs no GPU, with a result file of its own
SAVE_SECONDS = 2.0  # between two writings of the result file, which may be long
QUICK_ELEMENTS = {True: 1 << 26, False: 1 << 18}  # on a GPU, on the CPU


def main() -> int:
    """Run one command; the exit status."""
    options = _options()
    if options.command == "worker":
        return worker.work(options.against)
    if options.command == "report":
        return report.write()
    if not _importable("rich"):
        print("the benchmark needs the package rich: pip install 'cuscan[bench]'", file=sys.stderr)
        return 2
    facts = environment()
    facts["commit"] = options.commit or facts["commit"]
    if options.group == [CPU]:
        path = (options.results or store.RESULTS) / cpu.FILE
        return cpu.run(facts, shlex.join(["python", "-m", "benchmarks", *sys.argv[1:]]), path)
    on_gpu = facts["gpu"] is not None
    if not on_gpu and not options.quick:
        print("No CUDA GPU found: the whole matrix needs one; `python -m benchmarks --quick` measures NumPy.")
        return 2
    path = store.path_for(facts, quick=options.quick, folder=options.results)
    done = store.measured(path, facts["code"]) if options.resume else {}
    seeds = options.seed or sample.seeds_seen(done.values()) or sample.seeds_of(facts["commit"] or facts["code"])
    target = _target() or ANY_GPU
    scope = Scope(tuple(seeds), options.cases, target, QUICK_ELEMENTS[on_gpu] if options.quick else None)
    chosen = [case for case in cases(options.group or GROUPS, scope) if runnable(case, on_gpu=on_gpu)]
    chosen = [case for case in chosen if options.cell is None or options.cell in case.name]
    chosen = [case for case in chosen if (case.group, case.name) not in done]
    if not chosen:
        print("nothing to measure: no cell's name fits, or --resume finds all of them measured", file=sys.stderr)
        return 0 if options.resume else 2
    against = _against(on_gpu) if options.against is None else options.against
    known = {(case.group, case.name) for case in cases(MATRIX, scope)}

    def keeps(record: Record) -> bool:
        """Cells of the matrix stay while there are such; what was drawn, as long as it is of the same code."""
        drawn = record["group"] in GROUPS and GROUPS[record["group"]].drawn
        return record.get("code") == facts["code"] if drawn else (record["group"], record["name"]) in known

    command = shlex.join(["python", "-m", "benchmarks", *sys.argv[1:]])
    origin = {"commit": facts["commit"], "code": facts["code"]}
    run = _Run(chosen, against, origin, time.monotonic() + (options.seconds or math.inf))
    records = run.measure(lambda new: store.merge(path, facts, command, new, keeps))
    return _finish(records, against, path)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("command", nargs="?", default="run", choices=["run", "report", "worker"])
    parser.add_argument("--group", action="append", choices=[*GROUPS, CPU], help="only this group; may be repeated")
    parser.add_argument("--cell", metavar="TEXT", help="only cells whose name holds this text")
    parser.add_argument("--seed", type=int, action="append", help="of random scans; by default three, of the commit")
    parser.add_argument("--cases", type=int, default=sample.CASES, help="random scans of each seed")
    parser.add_argument("--resume", action="store_true", help="leave out cells that this very code was measured on")
    parser.add_argument("--quick", action="store_true", help="small shapes, and a result file of their own")
    parser.add_argument("--against", type=peers, metavar="NAMES", help="peers, joined by commas; or none")
    parser.add_argument("--seconds", type=float, help="stop after so many, at the next step; --resume goes on")
    parser.add_argument("--results", type=Path, metavar="DIR", help="the folder of the result file")
    parser.add_argument("--commit", help="what to note as the commit, where git is not there to ask")
    options = parser.parse_args()
    if CPU in (options.group or ()) and len(options.group) > 1:
        parser.error(f"--group {CPU} is measured alone")
    return options


def _target() -> Target | None:
    """The GPU that plans are made for."""
    gpus = devices()
    return Target(int(gpus[0]["arch"].removeprefix("sm_")), gpus[0]["sms"], gpus[0]["shared"]) if gpus else None


def _against(on_gpu: bool) -> list[str]:
    names = [name for name in PEERS if name != "numpy"] if on_gpu else ["numpy"]
    return [name for name in names if _importable(PACKAGES.get(name, name)) and (name != "cub" or nvcc())]


def _importable(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # of the package that it is a part of
        return False


class _Run(NamedTuple):
    """What is to be measured, beside whom, of which code, and until when."""

    chosen: list[Case]
    against: list[str]
    origin: dict[str, str | None]
    until: float

    def measure(self, save: Callable[[list[Record]], None]) -> list[Record]:
        """Compile, then measure; records are saved every few seconds."""
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
        console, start = Console(stderr=True), time.monotonic()
        with Progress(*columns, console=console, transient=True) as progress:
            for number, count, error in self._prepared():
                if number == 0:
                    task = progress.add_task("compiling", total=count)
                progress.update(task, completed=number)
                if error:
                    console.print(f"compiling: {error}", markup=False, highlight=False, soft_wrap=True)
            console.print(f"compiled in {time.monotonic() - start:.0f} s")
            records: list[Record] = []
            saved, at = 0, time.monotonic()
            with contextlib.suppress(KeyboardInterrupt):  # what is measured is reported
                for record in self._measured(progress):
                    records.append(record)
                    if time.monotonic() > at + SAVE_SECONDS:
                        save(records[saved:])
                        saved, at = len(records), time.monotonic()
            save(records[saved:])
        late = f", out of time for {len(self.chosen) - len(records)}" if len(records) < len(self.chosen) else ""
        console.print(f"{len(records)} cells in {time.monotonic() - start:.0f} s{late}")
        return records

    def _prepared(self) -> Iterator[tuple[int, int, str | None]]:
        """Compile ahead: how much is done, of how much, and what went wrong last."""
        target = _target()
        if target is None:
            return
        found = prepare.jobs(self.chosen, self.against, target)
        yield 0, len(found), None
        for number, error in enumerate(prepare.run(found, target.arch), 1):
            yield number, len(found), error

    def _measured(self, progress: Any) -> Iterator[Record]:
        task = progress.add_task("", total=len(self.chosen))
        for step, record in worker.run(self.chosen, self.against):
            progress.update(task, description=f"{record['group']}: {record['name']}: {step}")
            if step == "done":
                words = ["python", "-m", "benchmarks", "--group", record["group"], *_cell(record)]
                yield {**record, "command": shlex.join(words), **self.origin}
                progress.advance(task)
            if time.monotonic() > self.until:
                return


def _cell(record: Record) -> list[str]:
    """The options that name one cell of a group."""
    if record["group"] == "sample":
        return ["--seed", str(int(record["label"].partition("/")[0], 16)), "--cell", f"{record['label']}:"]
    return ["--cell", record["name"]]


def _finish(records: list[Record], against: list[str], path: Path) -> int:
    from rich.console import Console

    cells = [record for record in records if not GROUPS[record["group"]].drawn]
    shown = [name for name in against if any(name in record["peers"] for record in cells)]
    console = Console() if sys.stdout.isatty() else Console(width=140)
    if cells:
        console.print(table(cells, shown, str(path)))
    for group, found in tables.grouped({"records": records}).items():
        if GROUPS[group].drawn:
            console.print(tables.body(group, found), markup=False, highlight=False, soft_wrap=True)
    for line in failures(records):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    for line in [*floors.spilling(records), *floors.lowest(records), floors.verdict(records)]:
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    if _importable("matplotlib"):
        report.draw(path)
    else:
        console.print("no pictures: matplotlib is not installed; `python -m benchmarks report` draws them too")
    return 1 if any("error" in record for record in records) else 0


if __name__ == "__main__":
    raise SystemExit(main())
