"""Runs the tests that matter for a mutant on a copy of the tree, until one notices it."""

from __future__ import annotations

import importlib.util
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.mutate.mutants import Mutant

# Of the tests of the CPU, those that no mutant can matter for.
_APART = ("gpu", "bench", "readme", "packaging", "cli", "mutate")
_FEW = 100  # tests of a small module
_STEP = "step.txt"
# A test plants a mistake of its own where the mutant is, and does not find the place: nothing is noticed.
_PLANTED = re.compile(r"^E .* is \d+ times in \S+\.cuh$", re.MULTILINE)
_COMPILER_ERROR = re.compile(r"\.(cuh|cpp|hpp):\d+:\d+: (fatal )?error:")


@dataclass(frozen=True)
class Verdict:
    """What became of a mutant: "noticed", "unnoticed", "out of time", or "invalid" (it does not compile)."""

    status: str
    by: str
    seconds: float


def _in_steps(tests: list[str]) -> Iterator[list[str]]:
    """All of them in some order, 16, then 32, 64, ... together."""
    shuffled = random.Random(len(tests)).sample(tests, len(tests))
    size = 16
    while shuffled:
        yield shuffled[:size]
        shuffled, size = shuffled[size:], 2 * size


class Tree:
    """A copy of the files that git has, or would add; one mutant at a time is put into it."""

    def __init__(self, source: Path, copy: Path, *, full: bool) -> None:
        self._source, self._copy, self._full = source, copy, full
        listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
        for name in subprocess.run(listed, cwd=source, capture_output=True, text=True, check=True).stdout.split("\n"):
            if name and (source / name).is_file():
                (copy / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source / name, copy / name)
        self._texts = {path.name: path.read_text() for path in sorted((copy / "tests").glob("test_*.py"))}
        self._tests = self._collect()

    def judge(self, mutant: Mutant, seconds: float) -> Verdict:
        """Run the steps for a mutant, one after the other."""
        mutant.put_into(self._copy)
        start = time.monotonic()
        try:
            if mutant.file.endswith(".py"):
                compile((self._copy / mutant.file).read_text(), mutant.file, "exec")
            steps = self.steps(mutant.file)
            while steps:
                step, left = steps.pop(0), seconds - (time.monotonic() - start)
                (self._copy / _STEP).write_text("\n".join(step))
                code, output = self._pytest("-x", "-q", f"@{_STEP}", seconds=left)
                if code is None:
                    return Verdict("out of time", step[0], time.monotonic() - start)
                found = re.search(r"^(?:FAILED|ERROR) (tests/.+?)(?: - |$)", output, re.MULTILINE)
                if found and _PLANTED.search(output):
                    steps.insert(0, [*step, f"--deselect={found[1]}"])
                elif code not in (0, 5):  # 5: nothing was selected
                    status = "invalid" if _COMPILER_ERROR.search(output) else "noticed"
                    return Verdict(status, found[1] if found else step[0], time.monotonic() - start)
            return Verdict("unnoticed", "", time.monotonic() - start)
        except SyntaxError:
            return Verdict("invalid", "", 0.0)
        finally:
            shutil.copy2(self._source / mutant.file, self._copy / mutant.file)

    def steps(self, file: str) -> list[list[str]]:
        """Tests to run together, by module or one by one; the cheapest step first.

        Device code: the tests that simulate kernels, of a family's own header those first that have its name; small
        modules whole, the others in shuffled steps of more and more tests, since a module compiles its kernels first.
        All else: the modules that mention the file, then those that compile no kernels, then the others.
        """
        stem = Path(file).stem
        modules = sorted(self._tests, key=lambda name: len(self._tests[name]))
        simulating = [name for name in modules if re.search(r"\bsimulator\b", self._texts[name])]
        if file.endswith(".cuh"):
            every = [test for name in simulating for test in self._tests[name]]
            own = [test for test in every if "/kernels/" in file and re.search(stem.replace("_", "[_-]"), test)]
            small = [name for name in simulating if len(self._tests[name]) <= _FEW]
            rest = [test for name in simulating if name not in small for test in self._tests[name] if test not in own]
            return [*_in_steps(own), *([f"tests/{name}"] for name in small), *_in_steps(rest)]
        mentioned = [name for name in modules if re.search(rf"\b{stem}\b", self._texts[name])]
        compiling = [name for name in modules if name in simulating or "nvrtc" in name]
        rest = [name for name in modules if name not in compiling] + compiling
        return [[f"tests/{name}"] for name in dict.fromkeys([n for n in mentioned if n not in compiling] + rest)]

    def _collect(self) -> dict[str, list[str]]:
        """The tests of each module."""
        code, output = self._pytest("--collect-only", "-q", "tests", seconds=300)
        assert code == 0, output
        tests: dict[str, list[str]] = {}
        for test, name in re.findall(r"^(tests/(test_\w+\.py)::.*)$", output, re.MULTILINE):
            if not name[5:].startswith(_APART):
                tests.setdefault(name, []).append(test)
        return tests

    def _pytest(self, *arguments: str, seconds: float) -> tuple[int | None, str]:
        """Exit status (None: the time was up) and output."""
        more = ["-n0"] if importlib.util.find_spec("xdist") else []
        more += ["--full"] if self._full else []
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *more, *arguments]
        environment = {**os.environ, "PYTHONPATH": str(self._copy), "PYTHONDONTWRITEBYTECODE": "1"}
        child = subprocess.Popen(
            command,
            cwd=self._copy,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            output, _ = child.communicate(timeout=max(seconds, 1))
            return child.returncode, output
        except subprocess.TimeoutExpired:
            return None, ""
        finally:
            if child.poll() is None:  # and the compilers that it has started
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()
