"""Type checkers infer what a user's calls return, and find all mistakes in them, and no others."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
USER = Path(__file__).with_name("typing_user.py")
GUESTS = Path(__file__).with_name("typing_guests.py")
CHECKERS = {
    "mypy": ["mypy", "--strict"],
    "pyright": ["pyright", "--pythonpath", sys.executable],
}
AS_INSTALLED = {"mypy": ["--config-file=", "--no-warn-unused-ignores"], "pyright": []}  # ours skips the guests' types


def mistakes_of(path: Path) -> set[int]:
    """The lines of a file that end with the comment "wrong"."""
    return {number for number, line in enumerate(path.read_text().splitlines(), 1) if line.endswith("# wrong")}


def lines_with_errors(checker: str, path: Path, *options: str) -> set[int]:
    """The lines of a file in which a type checker finds an error."""
    pytest.importorskip(checker, reason=f"{checker} is not installed: pip install -e '.[lint]'")
    command = [sys.executable, "-m", *CHECKERS[checker], *options, str(path)]
    environment = os.environ | {"MYPYPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr  # it found errors, and did not fail otherwise
    return {int(number) for number in re.findall(rf"{re.escape(path.name)}:(\d+):.*\berror", done.stdout)}


@pytest.mark.parametrize("checker", CHECKERS)
def test_a_users_file(checker: str) -> None:
    assert mistakes_of(USER)
    assert lines_with_errors(checker, USER) == mistakes_of(USER)


@pytest.mark.parametrize("checker", CHECKERS)
def test_a_users_file_with_tensors_and_jax_arrays(checker: str) -> None:
    for guest in ("torch", "jax"):
        pytest.importorskip(guest, reason=f"{guest} is not installed")
    assert lines_with_errors(checker, GUESTS, *AS_INSTALLED[checker]) == mistakes_of(GUESTS)
