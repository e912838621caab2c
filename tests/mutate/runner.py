"""Runs the tests that matter for a mutant on a copy of the tree, until one notices it."""

from __future__ import annotations

import collections
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from tests.mutate.mutants import Mutant

# Of the tests of the CPU, those that no mutant can matter for.
_APART = ("gpu", "bench", "readme", "packaging", "cli", "mutate")
_COMPILER_ERROR = re.compile(r"\.(cuh|cpp|hpp):\d+:\d+: (fatal )?error:")


@dataclass(frozen=True)
class Verdict:
    """What became of a mutant: "noticed", "unnoticed", "out of time", or "invalid" (it does not compile)."""

    status: str
    by: str
    seconds: float


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
        self._counts = self._count()

    def judge(self, mutant: Mutant, seconds: float) -> Verdict:
        """Run the steps for a mutant, one after the other."""
        mutant.put_into(self._copy)
        start = time.monotonic()
        try:
            if mutant.file.endswith(".py"):
                compile((self._copy / mutant.file).read_text(), mutant.file, "exec")
            for step in self.steps(mutant.file):
                left = seconds - (time.monotonic() - start)
                code, output = self._pytest("-x", "-q", *step, seconds=left)
                if code is None:
                    return Verdict("out of time", " ".join(step), time.monotonic() - start)
                if code not in (0, 5):  # 5: nothing was selected
                    status = "invalid" if _COMPILER_ERROR.search(output) else "noticed"
                    found = re.search(r"^(?:FAILED|ERROR) (\S+)", output, re.MULTILINE)
                    return Verdict(status, found[1] if found else " ".join(step), time.monotonic() - start)
            return Verdict("unnoticed", "", time.monotonic() - start)
        except SyntaxError:
            return Verdict("invalid", "", 0.0)
        finally:
            shutil.copy2(self._source / mutant.file, self._copy / mutant.file)

    def steps(self, file: str) -> list[list[str]]:
        """Arguments of pytest, the cheapest step first.

        Device code: the modules that simulate kernels, of a family's own header those tests first that have its name.
        All else: the modules that mention the file, then those that do not simulate, then the others.
        """
        stem = Path(file).stem
        modules = sorted(self._counts, key=lambda name: self._counts[name])
        simulating = [name for name in modules if re.search(r"\bsimulator\b", self._texts[name])]
        if file.endswith(".cuh"):
            named = [f"tests/{name}" for name in simulating]
            own = [["-k", f"{stem} or {stem.replace('_', '-')}", *named]] if "/kernels/" in file else []
            return own + [[name] for name in named]
        mentioned = [name for name in modules if re.search(rf"\b{stem}\b", self._texts[name])]
        rest = [name for name in modules if name not in simulating] + simulating
        return [[f"tests/{name}"] for name in dict.fromkeys([n for n in mentioned if n not in simulating] + rest)]

    def _count(self) -> dict[str, int]:
        """The tests of each module."""
        code, output = self._pytest("--collect-only", "-q", "tests", seconds=300)
        assert code == 0, output
        counts = collections.Counter(re.findall(r"^tests/(test_\w+\.py)::", output, re.MULTILINE))
        return {name: count for name, count in counts.items() if not name[5:].startswith(_APART)}

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
