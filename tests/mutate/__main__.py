"""`python -m tests.mutate`: makes random mistakes of a single line, one by one, and counts those that tests notice.

Of the device headers, and of planning, request and launch code; not of target.cuh, which the simulator replaces. Each
mutant has a copy of the tree, and the tests of `pytest --full` run on it in steps, those first that are most likely to
notice it (steps.py), until one fails that does not fail without the mutant. What steps say is kept as JSON lines: the
same command goes on where it was stopped. Run `pytest --full` before: then only what a mutant changes is compiled.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.mutate.campaign import NOTICED, Campaign, Results, Trial
from tests.mutate.mutants import Mutant, all_mutants
from tests.mutate.runner import Tree
from tests.mutate.steps import Suite

ROOT = Path(__file__).resolve().parents[2]


def chosen(lines: list[list[Mutant]], seed: int) -> Iterator[Mutant]:
    """One mutant of each line, in the order of the seed; half of the lines are device code."""
    draw = random.Random(seed)
    device, host = ([m for m in lines if m[0].file.endswith(suffix)] for suffix in (".cuh", ".py"))
    draw.shuffle(device)
    draw.shuffle(host)
    for pair in zip(device, host, strict=False):
        yield from (draw.choice(mutants) for mutants in pair)


def digest(lines: list[list[Mutant]]) -> str:
    """A digest of all mutants, and so of the sources."""
    return hashlib.sha256(repr(lines).encode()).hexdigest()[:16]


def commit() -> str:
    return subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True).stdout[:8]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.mutate", description=__doc__)
    parser.add_argument("--cases", type=int, default=60, help="mutants that compile")
    parser.add_argument("--seed", type=int, default=None, help="of their choice; by default from the commit")
    parser.add_argument("--jobs", type=int, default=1, help="steps that run at once")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so many")
    parser.add_argument("--step-seconds", type=float, default=900, help="after so many a step hangs")
    parser.add_argument("--results", type=Path, default=None, help="JSON lines; by default .mutants/SEED.jsonl")
    options = parser.parse_args()
    seed = int(commit(), 16) if options.seed is None else options.seed
    lines = all_mutants(ROOT)
    scratch = ROOT / ".mutants"
    results = Results(options.results or scratch / f"{seed}.jsonl", {"seed": seed, "sources": digest(lines)})
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that running tests end, too
    scratch.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="trees-", dir=scratch, ignore_cleanup_errors=True) as folder:
        campaign = Campaign(
            ROOT,
            suite(Path(folder)),
            chosen(lines, seed),
            results,
            cases=options.cases,
            step_seconds=options.step_seconds,
        )
        report(campaign.run(Path(folder), options.jobs, options.seconds))


def suite(folder: Path) -> Suite:
    """The tests of this tree."""
    tree = Tree(ROOT, folder / "collected")
    with ThreadPoolExecutor(2) as pool:
        full, default = (pool.submit(tree.collect, *options) for options in (("--full",), ()))
    texts = {path.name: path.read_text() for path in sorted((ROOT / "tests").glob("test_*.py"))}
    return Suite(texts, full.result(), default.result(), cases_of_headers())


def cases_of_headers() -> dict[str, list[str]]:
    """For each header, the cases that notice planted mistakes in it."""
    sys.path.insert(0, str(ROOT / "tests"))
    from test_mistakes import MISTAKES

    cases: dict[str, list[str]] = {}
    for mistake in MISTAKES:
        cases.setdefault(mistake.header, []).append(mistake.case)
    return cases


def report(trials: list[Trial]) -> None:
    judged = [trial for trial in trials if trial.verdict]
    for trial in trials:
        if trial.verdict not in NOTICED:
            print(f"\n{trial.verdict or f'{trial.passed} of {len(trial.steps)} steps passed'}: {trial.mutant}")
    noticed = sum(trial.verdict in NOTICED for trial in judged)
    print(f"\n{noticed} of {len(judged)} mutants were noticed ({noticed / max(len(judged), 1):.0%})")
    if len(judged) < len(trials):
        print(f"{len(trials) - len(judged)} are not judged yet: the same command goes on")


if __name__ == "__main__":
    main()
