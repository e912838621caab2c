"""Tries mutants side by side: `Campaign` hands out their steps, early steps first, and keeps what they say."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import threading
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.mutate.mutants import Mutant
from tests.mutate.runner import Outcome, Tree
from tests.mutate.steps import Suite


class Results:
    """A file of JSON lines: first a header, then the outcome of each step of each mutant."""

    def __init__(self, path: Path, header: dict[str, Any]) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        kept = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        if kept and kept[0] != header:
            raise SystemExit(f"{path} is of another tree or seed; remove it, or say --results OTHER")
        if not kept:
            self._append(header)
        self._outcomes: dict[tuple[str, int, str, str], Outcome] = {}
        for entry in kept[1:]:
            outcome = Outcome(**entry["outcome"])
            # A mutant that has failed would fail again, whichever tests are in its steps.
            step = entry["step"] if outcome.status == "passed" else ""
            self._outcomes[self._key(entry["mutant"], step)] = outcome

    def get(self, mutant: Mutant, step: Sequence[str] = ()) -> Outcome | None:
        """The outcome of a step; without a step, the failure of the mutant, if there is one."""
        return self._outcomes.get(self._key(dataclasses.asdict(mutant), self._digest(step) if step else ""))

    def add(self, mutant: Mutant, step: Sequence[str], outcome: Outcome) -> None:
        entry = {"mutant": dataclasses.asdict(mutant), "step": self._digest(step)}
        self._append({**entry, "outcome": dataclasses.asdict(outcome)})

    @staticmethod
    def _digest(step: Sequence[str]) -> str:
        return hashlib.sha256("\n".join(step).encode()).hexdigest()[:16]

    @staticmethod
    def _key(mutant: dict[str, Any], step: str) -> tuple[str, int, str, str]:
        return mutant["file"], mutant["line"], mutant["new"], step

    def _append(self, entry: dict[str, Any]) -> None:
        with self._path.open("a") as file:
            file.write(json.dumps(entry) + "\n")


class Trial:
    """A mutant, its steps, and their progress. The campaign's lock protects all of it."""

    def __init__(self, number: int, mutant: Mutant, steps: list[list[str]]) -> None:
        self.number, self.mutant, self.steps = number, mutant, steps
        self.begun = self.passed = self.running = 0  # numbers of steps
        self.verdict = "" if steps else "unnoticed"
        self.by, self.seconds = "", 0.0
        self.tree: Tree | None = None

    def take(self, outcome: Outcome) -> None:
        """Add the outcome of a step; any number of steps may run at once."""
        self.seconds += outcome.seconds
        self.passed += outcome.status == "passed"
        if not self.verdict and outcome.status in ("noticed", "hung", "invalid"):
            self.verdict, self.by = outcome.status, outcome.by
        if not self.verdict and self.passed == len(self.steps):
            self.verdict = "unnoticed"

    @property
    def has_more(self) -> bool:
        return not self.verdict and self.begun < len(self.steps)

    def __str__(self) -> str:
        how_far = self.verdict or f"passed {self.passed} of {len(self.steps)} steps"
        return (
            f"{how_far:10} {self.seconds:5.0f} s  {self.mutant.file}:{self.mutant.line} ({self.mutant.kind})  {self.by}"
        )


class Campaign:
    """Tries mutants until `cases` of them compile and are judged, or the time is up."""

    def __init__(
        self,
        source: Path,
        suite: Suite,
        mutants: Iterable[Mutant],
        results: Results,
        *,
        cases: int,
        step_seconds: float,
    ) -> None:
        self._source, self._suite, self._mutants, self._results = source, suite, iter(mutants), results
        self._cases, self._step_seconds, self._end = cases, step_seconds, float("inf")
        self.trials: list[Trial] = []
        self._changed = threading.Condition()
        self._fails_anyway: dict[str, bool] = {}
        self._pristine: Tree | None = None
        self._on_pristine = threading.Lock()

    def run(self, folder: Path, jobs: int, seconds: float) -> list[Trial]:
        """All trials that compile, in the order of the mutants."""
        self._end = time.monotonic() + seconds
        self._pristine = Tree(self._source, folder / "pristine")
        with ThreadPoolExecutor(jobs) as pool:
            workers = [pool.submit(self._work, folder) for _ in range(jobs)]
            try:
                for worker in workers:
                    worker.result()
            except BaseException:
                self._end = 0.0
                for tree in [self._pristine, *(trial.tree for trial in self.trials)]:
                    if tree is not None:
                        tree.stop()
                raise
        return [trial for trial in self.trials if trial.verdict != "invalid"]

    def _work(self, folder: Path) -> None:
        while (taken := self._next()) is not None:
            trial, step = taken
            with self._changed:
                if trial.tree is None:
                    trial.tree = Tree(self._source, folder / str(trial.number), trial.mutant)
                tree = trial.tree
            self._judge(trial, tree, step)

    def _judge(self, trial: Trial, tree: Tree, step: int) -> None:
        tests, left = trial.steps[step], self._end - time.monotonic()
        outcome = tree.run(tests, f"step-{step}.txt", min(self._step_seconds, left))
        while outcome.status == "noticed" and outcome.by in tests and self._fails_without(outcome.by):
            tests = [test for test in tests if test != outcome.by]
            outcome = tree.run(tests, f"step-{step}.txt", min(self._step_seconds, self._end - time.monotonic()))
        is_late = outcome.status == "hung" and time.monotonic() >= self._end
        with self._changed:
            trial.running -= 1
            if outcome.status != "stopped" and not is_late:
                self._results.add(trial.mutant, trial.steps[step], outcome)
                trial.take(outcome)
                if trial.verdict and outcome.status != "stopped":
                    tree.stop()
                    print(self._count(), trial, flush=True)
            if trial.verdict and not trial.running:
                tree.remove()
            self._changed.notify_all()

    def _next(self) -> tuple[Trial, int] | None:
        """The step to run now: of a new mutant, or else of the one whose next step is the earliest."""
        with self._changed:
            while time.monotonic() < self._end:
                self._admit()
                waiting = [trial for trial in self.trials if trial.has_more]
                if waiting:
                    trial = min(waiting, key=lambda trial: (trial.begun, trial.number))
                    trial.begun, trial.running = trial.begun + 1, trial.running + 1
                    return trial, trial.begun - 1
                if not any(trial.running for trial in self.trials):
                    return None
                self._changed.wait(timeout=1)
            return None

    def _admit(self) -> None:
        """Add a mutant, unless there are enough, or one still waits for its first step."""
        if any(trial.begun == 0 and trial.has_more for trial in self.trials):
            return
        while sum(trial.verdict != "invalid" for trial in self.trials) < self._cases:
            mutant = next(self._mutants, None)
            if mutant is None:
                return
            trial = Trial(len(self.trials), mutant, self._suite.steps(mutant.file))
            self.trials.append(trial)
            if self._remembered(trial):
                return

    def _remembered(self, trial: Trial) -> bool:
        """Take outcomes from the file of results; return whether steps are left."""
        if trial.mutant.file.endswith(".py") and not _parses(trial.mutant, self._source):
            trial.verdict = "invalid"
        failed = self._results.get(trial.mutant)
        if failed is not None:
            trial.take(failed)
        said = [(step, self._results.get(trial.mutant, step)) for step in trial.steps]
        for _, outcome in said:
            if outcome is not None:
                trial.take(outcome)
        if trial.verdict:
            return False
        trial.steps = [step for step, outcome in said if outcome is None]
        trial.passed = 0
        return True

    def _fails_without(self, test: str) -> bool:
        """Whether a test fails on the tree without a mutant."""
        assert self._pristine is not None
        with self._on_pristine:
            if test not in self._fails_anyway:
                self._fails_anyway[test] = self._pristine.run([test], "step.txt", self._step_seconds).status != "passed"
                if self._fails_anyway[test]:
                    print(f"fails without a mutant: {test}", flush=True)
            return self._fails_anyway[test]

    def _count(self) -> str:
        judged = [trial for trial in self.trials if trial.verdict not in ("", "invalid")]
        return f"{sum(trial.verdict in NOTICED for trial in judged)}/{len(judged)}"


NOTICED = ("noticed", "hung")


def _parses(mutant: Mutant, source: Path) -> bool:
    lines = (source / mutant.file).read_text().split("\n")
    lines[mutant.line - 1] = mutant.new
    try:
        compile("\n".join(lines), mutant.file, "exec")
    except SyntaxError:
        return False
    return True
