"""`python -m tests.mutate`: makes random mistakes of a single line, one by one, and counts those that tests notice.

Of the device headers, and of planning, request and launch code; not of target.cuh, which the simulator replaces. Each
mutant is tried on a copy of the tree, in one process beside the compilers that a test starts (two at most). Results are
kept as JSON lines: the same command goes on where it was stopped.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import random
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.mutate.mutants import Mutant, all_mutants
from tests.mutate.runner import Tree, Verdict

ROOT = Path(__file__).resolve().parents[2]


def chosen(lines: list[list[Mutant]], seed: int) -> Iterator[Mutant]:
    """All lines in the order of the seed, one mutant of each: half of them of device code."""
    draw = random.Random(seed)
    device, host = ([m for m in lines if m[0].file.endswith(suffix)] for suffix in (".cuh", ".py"))
    draw.shuffle(device)
    draw.shuffle(host)
    for pair in zip(device, host, strict=False):
        yield from (draw.choice(mutants) for mutants in pair)


class Results:
    """A file of JSON lines: what it is of, then a line for each mutant that was tried."""

    def __init__(self, path: Path, header: dict[str, Any]) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        kept = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        if kept and kept[0] != header:
            raise SystemExit(
                f"{path} has the results of another tree, seed or choice of tests; remove it, or keep it with --results"
            )
        if not kept:
            self._append(header)
        self._verdicts = {self._key(entry): Verdict(**entry["verdict"]) for entry in kept[1:]}

    def get(self, mutant: Mutant) -> Verdict | None:
        return self._verdicts.get(self._key(dataclasses.asdict(mutant)))

    def add(self, mutant: Mutant, verdict: Verdict) -> None:
        self._append({**dataclasses.asdict(mutant), "verdict": dataclasses.asdict(verdict)})

    @staticmethod
    def _key(entry: dict[str, Any]) -> tuple[str, int, str]:
        return entry["file"], entry["line"], entry["new"]

    def _append(self, entry: dict[str, Any]) -> None:
        with self._path.open("a") as file:
            file.write(json.dumps(entry) + "\n")


def digest(lines: list[list[Mutant]]) -> str:
    """Of all mutants, and so of the sources."""
    return hashlib.sha256(repr(lines).encode()).hexdigest()[:16]


def commit() -> str:
    return subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True).stdout[:8]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.mutate", description=__doc__)
    parser.add_argument("--cases", type=int, default=60, help="mutants that compile")
    parser.add_argument("--seed", type=int, default=None, help="of their choice; by default from the commit")
    parser.add_argument("--timeout", type=float, default=1800, help="seconds for the tests of one mutant")
    parser.add_argument("--full", action="store_true", help="run `pytest --full`")
    parser.add_argument("--results", type=Path, default=None, help="JSON lines; by default .mutants/SEED.jsonl")
    options = parser.parse_args()
    seed = int(commit(), 16) if options.seed is None else options.seed
    lines = all_mutants(ROOT)
    results = Results(
        options.results or ROOT / ".mutants" / f"{seed}.jsonl",
        {"seed": seed, "sources": digest(lines), "full": options.full},
    )
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the tests that run are ended, too
    with tempfile.TemporaryDirectory(prefix="cuscan-mutants-") as folder:
        tree = Tree(ROOT, Path(folder), full=options.full)
        report(run(tree, chosen(lines, seed), results, options.cases, options.timeout))


def run(
    tree: Tree, mutants: Iterator[Mutant], results: Results, cases: int, seconds: float
) -> list[tuple[Mutant, Verdict]]:
    """Those that compile, until there are as many as `cases`, with a line of progress each."""
    tried: list[tuple[Mutant, Verdict]] = []
    for mutant in mutants:
        if len(tried) == cases:
            break
        verdict = results.get(mutant)
        if verdict is None:
            verdict = tree.judge(mutant, seconds)
            results.add(mutant, verdict)
        if verdict.status != "invalid":
            tried.append((mutant, verdict))
        noticed = sum(v.status == "noticed" for _, v in tried)
        place = f"{mutant.file}:{mutant.line} ({mutant.kind})"
        print(f"{noticed}/{len(tried)} {verdict.status:11} {verdict.seconds:5.0f} s  {place}  {verdict.by}", flush=True)
    return tried


def report(tried: list[tuple[Mutant, Verdict]]) -> None:
    survivors = [(mutant, verdict) for mutant, verdict in tried if verdict.status != "noticed"]
    for mutant, verdict in survivors:
        print(f"\n{verdict.status}: {mutant}")
    noticed = len(tried) - len(survivors)
    print(f"\n{noticed} of {len(tried)} mutants were noticed ({noticed / max(len(tried), 1):.0%})")


if __name__ == "__main__":
    main()
