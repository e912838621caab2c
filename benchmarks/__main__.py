"""`python -m benchmarks`: measure the matrix; `python -m benchmarks report`: write the README's tables."""

from __future__ import annotations

import argparse
import importlib.util
import shlex
import sys
from pathlib import Path

from benchmarks import report, store, worker
from benchmarks.cases import GROUPS, cases
from cuscan.bench.cases import Case
from cuscan.bench.environment import environment
from cuscan.bench.measure import Record
from cuscan.bench.report import failures, table
from cuscan.cli import peers

QUICK_ELEMENTS = {True: 1 << 26, False: 1 << 18}  # on a GPU, on the CPU


def main() -> int:
    """Run one command; the exit status."""
    options = _options()
    if options.command == "worker":
        return worker.work(options.against)
    if options.command == "report":
        return report.write()
    facts = environment()
    facts["commit"] = options.commit or facts["commit"]
    on_gpu = facts["gpu"] is not None
    if not on_gpu and not options.quick:
        print("No CUDA GPU found: the whole matrix needs one; `python -m benchmarks --quick` measures NumPy.")
        return 2
    chosen = cases(options.group or GROUPS, QUICK_ELEMENTS[on_gpu] if options.quick else None)
    chosen = [case for case in chosen if options.cell is None or options.cell in case.name]
    if not chosen:
        print(f"no cell's name holds {options.cell!r}", file=sys.stderr)
        return 2
    against = _against(on_gpu) if options.against is None else options.against
    path = store.path_for(facts, quick=options.quick)
    records = _measure(chosen, against, path, facts)
    return _finish(records, against, path)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("command", nargs="?", default="run", choices=["run", "report", "worker"])
    parser.add_argument("--group", action="append", choices=GROUPS, help="only this group; may be repeated")
    parser.add_argument("--cell", metavar="TEXT", help="only cells whose name holds this text")
    parser.add_argument("--quick", action="store_true", help="small shapes, and a result file of their own")
    parser.add_argument("--against", type=peers, metavar="NAMES", help="peers, joined by commas; or none")
    parser.add_argument("--commit", help="what to note as the commit, where git is not there to ask")
    return parser.parse_args()


def _against(on_gpu: bool) -> list[str]:
    names = ("torch", "cupy") if on_gpu else ("numpy",)
    return [name for name in names if importlib.util.find_spec(name)]


def _measure(chosen: list[Case], against: list[str], path: Path, facts: dict[str, object]) -> list[Record]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    command = shlex.join(["python", "-m", "benchmarks", *sys.argv[1:]])
    records = []
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=len(chosen))
        for step, record in worker.run(chosen, against):
            progress.update(task, description=f"{record['name']}: {step}")
            if step == "done":
                record["command"] = shlex.join(["python", "-m", "benchmarks", "--cell", record["name"]])
                record["commit"] = facts["commit"]
                records.append(record)
                store.merge(path, facts, command, [record])
                progress.advance(task)
    return records


def _finish(records: list[Record], against: list[str], path: Path) -> int:
    from rich.console import Console

    console = Console() if sys.stdout.isatty() else Console(width=130)
    console.print(table(records, against, str(path)))
    for line in failures(records):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    report.draw(path)
    return 1 if any("error" in record for record in records) else 0


if __name__ == "__main__":
    raise SystemExit(main())
